/* SPDX-License-Identifier: MIT */
/*
 * What programs look at around libibverbs: device nodes and sysfs (4.6).
 *
 * Where it is permitted, in a mount namespace of the program's own, /dev and
 * /sys/class become directories of ours in which everything that was there is
 * bound back, except a real device's entries; nothing is made in the machine's
 * own directories. Elsewhere, as a folder beside the world's file, which
 * verbena-paths.so shows to the program instead (paths.c).
 */
#define _GNU_SOURCE
#include "sim/model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/core.h"

#define NODE "/dev/infiniband/uverbs0"

static int make_empty(const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);

	return fd < 0 ? -errno : close(fd);
}

/* Show entry `name` of the covered directory `old` at `to`. */
static int bind_back(int old, const char *name, const char *to)
{
	char from[PATH_MAX], link[PATH_MAX] = "";
	struct stat st;
	int rc;

	if (fstatat(old, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return 0; /* gone meanwhile */
	if (S_ISLNK(st.st_mode)) {
		if (readlinkat(old, name, link, sizeof(link) - 1) < 0)
			return 0;
		return symlink(link, to) ? -errno : 0;
	}
	if (S_ISDIR(st.st_mode))
		rc = mkdir(to, 0755) ? -errno : 0;
	else
		rc = make_empty(to);
	snprintf(from, sizeof(from), "/proc/self/fd/%d/%s", old, name);
	if (!rc && mount(from, to, NULL, MS_BIND | MS_REC, NULL) != 0)
		rc = errno == ENOENT ? 0 : -errno; /* gone meanwhile */
	return rc;
}

/* Whatever is mounted on `path` from here on stays with us. In a chroot the
 * root is no mount, but `path` may be one. */
static bool make_private(const char *path)
{
	return mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 ||
	       mount(NULL, path, NULL, MS_REC | MS_SLAVE, NULL) == 0;
}

/* Cover `path`; only entries whose name begins with "infiniband" are lost.
 * 1: there is no such directory, or we may not; nothing was done. */
static int cover(const char *path)
{
	char to[PATH_MAX];
	int old, rc = 0;
	DIR *dir;

	if (!make_private(path))
		return 1;
	old = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = old < 0 ? NULL : fdopendir(old);
	if (!dir || mount("verbena", path, "tmpfs", MS_NOSUID, "mode=755")) {
		rc = 1;
		if (!dir && old >= 0)
			close(old);
	}
	for (struct dirent *at; !rc && (at = readdir(dir));) {
		if (!strcmp(at->d_name, ".") || !strcmp(at->d_name, "..") ||
		    !strncmp(at->d_name, "infiniband", 10))
			continue;
		snprintf(to, sizeof(to), "%s/%s", path, at->d_name);
		rc = bind_back(old, at->d_name, to);
	}
	if (dir)
		closedir(dir);
	return rc;
}

/* Where a tree is made; the first error stays, and ends the work. */
struct tree {
	const char *root;
	int rc;
};

/* The folders above `path`, as needed. */
static void make_folders(struct tree *tree, char *path)
{
	for (char *at = path + 1; !tree->rc && (at = strchr(at, '/')); at++) {
		*at = 0;
		if (mkdir(path, 0755) != 0 && errno != EEXIST)
			tree->rc = -errno;
		*at = '/';
	}
}

/* Write a line to dir/file below the tree's /sys/class. */
__attribute__((format(printf, 4, 5))) static void put(struct tree *tree,
						      const char *dir,
						      const char *file,
						      const char *format, ...)
{
	char path[PATH_MAX];
	va_list args;
	FILE *out;

	snprintf(path, sizeof(path), "%s/sys/class/%s/%s", tree->root, dir,
		 file);
	make_folders(tree, path);
	out = tree->rc ? NULL : fopen(path, "we");
	if (!out) {
		tree->rc = tree->rc ? tree->rc : -errno;
		return;
	}
	va_start(args, format);
	vfprintf(out, format, args);
	va_end(args);
	fputc('\n', out);
	if (fclose(out) != 0)
		tree->rc = -errno;
}

/* "100 Gb/sec (4X EDR)", as the kernel writes it. */
static void rate_text(const struct ibv_port_attr *port, char text[64])
{
	static const struct {
		int speed, tenths;
		const char *name;
	} lanes[] = {{1, 25, "SDR"},	{2, 50, "DDR"},	   {4, 100, "QDR"},
		     {8, 100, "FDR10"}, {16, 140, "FDR"},  {32, 250, "EDR"},
		     {64, 500, "HDR"},	{128, 1000, "NDR"}};
	static const int widths[] = {
		[1] = 1, [2] = 4, [4] = 8, [8] = 12, [16] = 2};
	size_t i = 0;
	int tenths, width;

	while (i + 1 < sizeof(lanes) / sizeof(*lanes) &&
	       lanes[i].speed != port->active_speed)
		i++;
	width = port->active_width <= 16 ? widths[port->active_width] : 0;
	tenths = lanes[i].tenths * width;
	snprintf(text, 64, "%d%s Gb/sec (%dX %s)", tenths / 10,
		 tenths % 10 ? ".5" : "", width, lanes[i].name);
}

static void put_gids(struct tree *tree, const struct sim_host *host,
		     const char *port)
{
	char file[32], text[48];

	for (int i = 0; i < host->port_attr.gid_tbl_len; i++) {
		const uint8_t *gid = sim_gid_at(host, (uint32_t)i);

		for (int at = 0; at < 8; at++)
			snprintf(text + 5 * at, sizeof(text) - (size_t)(5 * at),
				 "%02x%02x%s", gid[2 * at], gid[2 * at + 1],
				 at < 7 ? ":" : "");
		snprintf(file, sizeof(file), "gids/%d", i);
		put(tree, port, file, "%s", text);
		/* The kernel answers EINVAL for the type of an empty one. */
		snprintf(file, sizeof(file), "gid_attrs/types/%d", i);
		if (i < host->gid_count)
			put(tree, port, file,
			    host->gid_type[i] == IBV_GID_TYPE_ROCE_V2
				    ? "RoCE v2"
				    : "IB/RoCE v1");
	}
}

static void put_port(struct tree *tree, const struct sim_host *host,
		     const char *device, int index)
{
	static const char *const layers[] = {"Unknown", "InfiniBand",
					     "Ethernet"};
	const struct ibv_port_attr *attr = &host->port_attr;
	bool is_up = host->port[index].state == IBV_PORT_ACTIVE;
	char dir[128], rate[64];

	snprintf(dir, sizeof(dir), "infiniband/%s/ports/%d", device, index + 1);
	rate_text(attr, rate);
	put(tree, dir, "state", is_up ? "4: ACTIVE" : "1: DOWN");
	put(tree, dir, "phys_state", is_up ? "5: LinkUp" : "3: Disabled");
	put(tree, dir, "link_layer", "%s",
	    attr->link_layer < 3 ? layers[attr->link_layer] : layers[0]);
	put(tree, dir, "rate", "%s", rate);
	put(tree, dir, "lid", "0x%x", host->port[index].lid);
	put(tree, dir, "lid_mask_count", "%d", attr->lmc);
	put(tree, dir, "sm_lid", "0x%x", attr->sm_lid);
	put(tree, dir, "sm_sl", "%d", attr->sm_sl);
	put(tree, dir, "cap_mask", "0x%08x", attr->port_cap_flags);
	put(tree, dir, "pkeys/0", "0xffff");
	put_gids(tree, host, dir);
}

static void put_device(struct tree *tree, const struct sim_host *host)
{
	static const char verbs[] = "infiniband_verbs",
			  node[] = "infiniband_verbs/uverbs0";
	const struct sim_model *model = sim_model_of(host);
	char dir[80], guid[32];

	snprintf(dir, sizeof(dir), "infiniband/%s", model->device_name);
	snprintf(guid, sizeof(guid), "%04x:%04x:%04x:%04x",
		 (unsigned)(host->guid >> 48) & 0xffff,
		 (unsigned)(host->guid >> 32) & 0xffff,
		 (unsigned)(host->guid >> 16) & 0xffff,
		 (unsigned)host->guid & 0xffff);
	put(tree, dir, "node_type", "%d: CA", model->node_type);
	put(tree, dir, "node_guid", "%s", guid);
	put(tree, dir, "sys_image_guid", "%s", guid);
	put(tree, dir, "fw_ver", "%s", host->attr.fw_ver);
	put(tree, verbs, "abi_version", "6");
	put(tree, node, "ibdev", "%s", model->device_name);
	put(tree, node, "abi_version", "1");
	for (int i = 0; i < host->port_count; i++)
		put_port(tree, host, model->device_name, i);
}

/* 1: it cannot be covered here. */
static int cover_node(void)
{
	int rc = cover("/dev");

	if (rc)
		return rc;
	/* Programs ask only whether it is a character device they may use. */
	if (mkdir("/dev/infiniband", 0755) != 0)
		return -errno;
	rc = make_empty(NODE);
	if (!rc && mount("/dev/null", NODE, NULL, MS_BIND, NULL) != 0)
		rc = -errno;
	return rc;
}

/* 1: we may not, or there is nothing to cover. */
static int cover_all(const struct sim_host *host)
{
	struct tree tree = {.root = ""};
	int rc;

	if (unshare(CLONE_NEWNS) != 0)
		return errno == EPERM ? 1 : -errno;
	rc = cover_node();
	if (!rc)
		rc = cover("/sys/class");
	if (!rc)
		put_device(&tree, host);
	return rc ? rc : tree.rc;
}

/* The tree in a folder of its own; it is complete when it has its name. */
static int make_tree(const struct sim_host *host, const char *folder)
{
	char path[SIM_TREE_MAX + 64], made[SIM_TREE_MAX + 16];
	struct tree tree = {.root = made};

	if (access(folder, F_OK) == 0)
		return 0; /* of another program on this host */
	snprintf(made, sizeof(made), "%s+%d", folder, (int)getpid());
	put_device(&tree, host);
	snprintf(path, sizeof(path), "%s" NODE, made);
	make_folders(&tree, path);
	if (!tree.rc && symlink("/dev/null", path) != 0)
		tree.rc = -errno;
	if (!tree.rc && rename(made, folder) == 0)
		return 0;
	sim_remove_tree(made);
	/* Another program was quicker, or this one cannot. */
	return tree.rc || access(folder, F_OK) == 0 ? tree.rc : -errno;
}

int sim_world_surround(const struct sim_world *w, int host,
		       char tree[SIM_TREE_MAX])
{
	char *folder = getcwd(NULL, 0);
	mode_t mask = umask(022);
	int rc = cover_all(&w->seg->host[host]);

	tree[0] = 0;
	if (rc > 0) {
		sim_tree_name(w->name, host, tree);
		rc = make_tree(&w->seg->host[host], tree);
	}
	umask(mask);
	/* It may be one that was covered. */
	if (!rc && folder && chdir(folder) != 0)
		rc = -errno;
	free(folder);
	return rc;
}

void sim_tree_name(const char *world, int host, char tree[SIM_TREE_MAX])
{
	snprintf(tree, SIM_TREE_MAX, "/dev/shm/verbena+%s+%c", world,
		 'a' + host);
}

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

void sim_remove_tree(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
