/* SPDX-License-Identifier: MIT */
/*
 * Goal: on a Mac lib needs nothing of libibverbs but what Apple ships, the 18
 * exports of row R44 (spec/apple-and-ggml-transports.md). Method: lib is
 * compiled against a header with no more (tests/apple_sdk), loads a library
 * with no more, and moves bytes over a table with no more.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/verbs.h"
#include "tests/harness.h"
#include "tests/rig.h"
#include "tests/stage.h"

#define R44                                                                   \
	"get_device_list free_device_list get_device_name open_device "       \
	"close_device query_device query_port query_gid alloc_pd dealloc_pd " \
	"reg_mr dereg_mr create_cq destroy_cq create_qp destroy_qp "          \
	"modify_qp query_qp "

/* At the root of the sources; $D is a directory for what comes of it. */
#define IN_SOURCES "cd $BUILD/../.. && D=%s && CC=${CC:-gcc} && "
#define FLAGS                                                               \
	"-std=gnu11 -O1 -fPIC -Wall -Wextra -Werror -I. -Itests/apple_sdk " \
	"-DVERBENA_APPLE_SDK_CHECK "

static char folder[] = "/tmp/verbena-sdk-XXXXXX";

static void make_folder(void)
{
	CHECK(mkdtemp(folder), "%s: %s", folder, strerror(errno));
}

static void remove_folder(void)
{
	struct rig_output output;

	rig_shell(&output, "rm -rf %s", folder);
}

#define CHECK_DONE(output) \
	CHECK((output).status == 0, "%d: %s", (output).status, (output).text)

/* --- what it is compiled with ------------------------------------------- */

/* All warnings are errors: a call that the header lacks is one, too. */
Test(apple_sdk, R44_lib_compiles_and_links_with_no_name_but_apples)
{
	struct rig_output compiled, read, open;

	make_folder();
	rig_shell(&compiled,
		  IN_SOURCES
		  "$CC " FLAGS
		  "-shared -Wl,-Bsymbolic -o $D/lib.so lib/*.c -ldl -lpthread",
		  folder);
	rig_shell(&read,
		  IN_SOURCES "$CC " FLAGS
			     "-M lib/*.c | tr ' ' '\\n' | grep infiniband/ | "
			     "sort -u",
		  folder);
	rig_shell(&open,
		  IN_SOURCES "nm -D $D/lib.so | "
			     "grep -E 'ibv_|efadv|verbs_' | grep -v ' T vb_'",
		  folder);
	remove_folder();
	CHECK_DONE(compiled);
	CHECK(strcmp(read.text, "tests/apple_sdk/infiniband/verbs.h\n") == 0,
	      "headers that were read: %s", read.text);
	CHECK(open.text[0] == 0, "symbols: %s", open.text);
}

/* What the compilers and macOS have; what is not in it may still be. */
#define KNOWN                                                           \
	"arm_acle|arpa/inet|assert|ctype|dlfcn|errno|fcntl|infiniband/" \
	"(efadv|verbs)|inttypes|limits|netinet/in|poll|pthread|sched|"  \
	"signal|std(arg|bool|def|int|io|lib)|string|"                   \
	"sys/(mman|socket|stat|time|types|uio)|time|unistd"

Test(apple_sdk, lib_includes_only_headers_that_a_mac_has)
{
	struct rig_output output;

	rig_shell(&output,
		  IN_SOURCES "grep -hE '^# *include <' lib/*.[ch] | "
			     "grep -vE '<(" KNOWN ")[.]h>'",
		  folder);
	CHECK(output.text[0] == 0, "%s", output.text);
	rig_shell(&output, IN_SOURCES "grep -c 'include <' lib/verbs.h",
		  folder);
	CHECK_DONE(output); /* it looks where it should */
}

/* What lib names; each is a number in both headers. */
static const char *const sizes[] = {
	"struct ibv_device",	  "struct ibv_context",
	"struct ibv_device_attr", "struct ibv_port_attr",
	"struct ibv_pd",	  "struct ibv_mr",
	"struct ibv_cq",	  "struct ibv_qp",
	"struct ibv_qp_attr",	  "struct ibv_qp_init_attr",
	"struct ibv_wc",	  "struct ibv_sge",
	"struct ibv_send_wr",	  "struct ibv_recv_wr"};
static const char *const fields[] = {
	"struct ibv_device, transport_type",
	"struct ibv_device, name",
	"struct ibv_context, ops.poll_cq",
	"struct ibv_context, ops.post_send",
	"struct ibv_context, ops.post_recv",
	"struct ibv_context, num_comp_vectors",
	"struct ibv_device_attr, node_guid",
	"struct ibv_device_attr, vendor_id",
	"struct ibv_device_attr, vendor_part_id",
	"struct ibv_device_attr, hw_ver",
	"struct ibv_device_attr, max_qp",
	"struct ibv_device_attr, max_qp_wr",
	"struct ibv_device_attr, max_sge",
	"struct ibv_device_attr, max_cq",
	"struct ibv_device_attr, max_cqe",
	"struct ibv_device_attr, max_mr",
	"struct ibv_device_attr, max_pd",
	"struct ibv_device_attr, phys_port_cnt",
	"struct ibv_port_attr, max_mtu",
	"struct ibv_port_attr, active_mtu",
	"struct ibv_port_attr, gid_tbl_len",
	"struct ibv_port_attr, port_cap_flags",
	"struct ibv_port_attr, max_msg_sz",
	"struct ibv_port_attr, pkey_tbl_len",
	"struct ibv_port_attr, lid",
	"struct ibv_port_attr, sm_lid",
	"struct ibv_port_attr, lmc",
	"struct ibv_port_attr, active_width",
	"struct ibv_port_attr, active_speed",
	"struct ibv_port_attr, phys_state",
	"struct ibv_port_attr, link_layer",
	"struct ibv_mr, lkey",
	"struct ibv_mr, rkey",
	"struct ibv_qp, qp_num",
	"struct ibv_qp, state",
	"struct ibv_qp, qp_type",
	"struct ibv_qp_attr, path_mtu",
	"struct ibv_qp_attr, qkey",
	"struct ibv_qp_attr, rq_psn",
	"struct ibv_qp_attr, sq_psn",
	"struct ibv_qp_attr, dest_qp_num",
	"struct ibv_qp_attr, qp_access_flags",
	"struct ibv_qp_attr, ah_attr.grh.sgid_index",
	"struct ibv_qp_attr, ah_attr.grh.hop_limit",
	"struct ibv_qp_attr, ah_attr.dlid",
	"struct ibv_qp_attr, ah_attr.is_global",
	"struct ibv_qp_attr, ah_attr.port_num",
	"struct ibv_qp_attr, pkey_index",
	"struct ibv_qp_attr, max_rd_atomic",
	"struct ibv_qp_attr, max_dest_rd_atomic",
	"struct ibv_qp_attr, min_rnr_timer",
	"struct ibv_qp_attr, port_num",
	"struct ibv_qp_attr, timeout",
	"struct ibv_qp_attr, retry_cnt",
	"struct ibv_qp_attr, rnr_retry",
	"struct ibv_qp_init_attr, send_cq",
	"struct ibv_qp_init_attr, recv_cq",
	"struct ibv_qp_init_attr, cap.max_inline_data",
	"struct ibv_qp_init_attr, qp_type",
	"struct ibv_wc, status",
	"struct ibv_wc, opcode",
	"struct ibv_wc, byte_len",
	"struct ibv_send_wr, sg_list",
	"struct ibv_send_wr, num_sge",
	"struct ibv_send_wr, opcode",
	"struct ibv_send_wr, send_flags",
	"struct ibv_recv_wr, sg_list",
	"struct ibv_recv_wr, num_sge",
	"struct ibv_sge, length",
	"struct ibv_sge, lkey"};
static const char *const values[] = {"IBV_QPT_RC",
				     "IBV_QPT_UC",
				     "IBV_QPS_RESET",
				     "IBV_QPS_INIT",
				     "IBV_QPS_RTR",
				     "IBV_QPS_RTS",
				     "IBV_QP_STATE",
				     "IBV_QP_ACCESS_FLAGS",
				     "IBV_QP_PKEY_INDEX",
				     "IBV_QP_PORT",
				     "IBV_QP_QKEY",
				     "IBV_QP_AV",
				     "IBV_QP_PATH_MTU",
				     "IBV_QP_TIMEOUT",
				     "IBV_QP_RETRY_CNT",
				     "IBV_QP_RNR_RETRY",
				     "IBV_QP_RQ_PSN",
				     "IBV_QP_MAX_QP_RD_ATOMIC",
				     "IBV_QP_MIN_RNR_TIMER",
				     "IBV_QP_SQ_PSN",
				     "IBV_QP_MAX_DEST_RD_ATOMIC",
				     "IBV_QP_CAP",
				     "IBV_QP_DEST_QPN",
				     "IBV_ACCESS_LOCAL_WRITE",
				     "IBV_ACCESS_REMOTE_WRITE",
				     "IBV_ACCESS_REMOTE_READ",
				     "IBV_ACCESS_REMOTE_ATOMIC",
				     "IBV_WR_SEND",
				     "IBV_SEND_SIGNALED",
				     "IBV_SEND_INLINE",
				     "IBV_WC_SUCCESS",
				     "IBV_WC_RECV",
				     "IBV_WC_LOC_LEN_ERR",
				     "IBV_WC_LOC_QP_OP_ERR",
				     "IBV_WC_LOC_PROT_ERR",
				     "IBV_WC_WR_FLUSH_ERR",
				     "IBV_WC_REM_INV_REQ_ERR",
				     "IBV_WC_REM_ACCESS_ERR",
				     "IBV_WC_REM_OP_ERR",
				     "IBV_WC_RETRY_EXC_ERR",
				     "IBV_WC_RNR_RETRY_EXC_ERR",
				     "IBV_WC_FATAL_ERR",
				     "IBV_MTU_4096",
				     "IBV_PORT_ACTIVE",
				     "IBV_LINK_LAYER_INFINIBAND",
				     "IBV_LINK_LAYER_ETHERNET"};

static void print_each(FILE *file, const char *as, const char *const *what,
		       size_t count)
{
	for (size_t i = 0; i < count; i++)
		fprintf(file, "printf(\"%s %%d\\n\", (int)%s(%s));\n", what[i],
			as, what[i]);
}
#define PRINT(file, as, what) \
	print_each(file, as, what, sizeof(what) / sizeof(*what))

static void write_layout(const char *path)
{
	FILE *file = fopen(path, "w");

	CHECK(file, "%s: %s", path, strerror(errno));
	fputs("#include <infiniband/verbs.h>\n#include <stdio.h>\n"
	      "int main(void)\n{\n",
	      file);
	PRINT(file, "sizeof", sizes);
	PRINT(file, "offsetof", fields);
	PRINT(file, "", values);
	fputs("return 0;\n}\n", file);
	fclose(file);
}

Test(apple_sdk, its_header_is_laid_out_as_the_systems)
{
	struct rig_output output;
	char path[64];

	make_folder();
	snprintf(path, sizeof(path), "%s/layout.c", folder);
	write_layout(path);
	rig_shell(&output,
		  IN_SOURCES
		  "$CC -o $D/system $D/layout.c && $D/system >$D/a && "
		  "$CC -Itests/apple_sdk -o $D/apple $D/layout.c && "
		  "$D/apple >$D/b && test -s $D/a && diff $D/a $D/b",
		  folder);
	remove_folder();
	CHECK_DONE(output);
}

/* --- what it loads ------------------------------------------------------ */

Test(apple_sdk, R44_the_names_that_must_be_there_are_these)
{
	static const char names[] =
#define X(name, result, arguments) #name " "
		VB_VERBS(X)
#undef X
		;

	CHECK(strcmp(names, R44) == 0, "have %s", names);
}

/* $D/NAME.so, which exports so many of them, from the first. */
static void build_library(const char *name, int count)
{
	struct rig_output output;

	rig_shell(&output,
		  IN_SOURCES
		  "for n in $(echo " R44 " | cut -d ' ' -f -%d); do "
		  "echo \"void ibv_$n(void); void ibv_$n(void) {}\"; done "
		  ">$D/%s.c && $CC -shared -fPIC -o $D/%s.so $D/%s.c",
		  folder, count, name, name, name);
	CHECK_DONE(output);
}

static int optional_entries(const struct vb_verbs *verbs)
{
	int count = 0;

#define X(name, symbol, in, result, arguments) count += verbs->name != NULL;
	VB_VERBS_OPTIONAL(X)
#undef X
	return count;
}

/* With lib as it is compiled here, and as it is there. */
Test(apple_sdk, R44_a_library_that_exports_no_more_is_enough)
{
	int (*load)(const char *library, struct vb_verbs **verbs);
	struct vb_verbs *verbs = NULL;
	struct rig_output output;
	char all[64], less[64], lib[64];
	void *handle;

	make_folder();
	snprintf(all, sizeof(all), "%s/all.so", folder);
	snprintf(less, sizeof(less), "%s/less.so", folder);
	snprintf(lib, sizeof(lib), "%s/lib.so", folder);
	build_library("all", 18);
	build_library("less", 17);
	rig_shell(&output,
		  IN_SOURCES "$CC " FLAGS "-shared -Wl,-Bsymbolic -o $D/lib.so "
			     "lib/*.c -ldl -lpthread",
		  folder);
	CHECK_DONE(output);
	CHECK_EQ(vb_verbs_load(less, &verbs), -ENODEV);
	CHECK_EQ(vb_verbs_load(all, &verbs), 0);
	CHECK(!verbs->query_gid_ex && !verbs->get_device_guid &&
		      !verbs->create_ah && !verbs->destroy_ah,
	      "only libefa.so.1 has more");
	vb_verbs_put(verbs);
	handle = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
	CHECK(handle, "%s", dlerror());
	*(void **)&load = dlsym(handle, "vb_verbs_load");
	CHECK_EQ(load(less, &verbs), -ENODEV);
	CHECK_EQ(load(all, &verbs), 0);
	CHECK_EQ(optional_entries(verbs), 0);
	vb_verbs_put(verbs);
	dlclose(handle);
	remove_folder();
}

/* --- what it runs with -------------------------------------------------- */

static struct ibv_context *(*real_open)(struct ibv_device *device);

/* Without a mark the context has no table of extended calls. */
static struct ibv_context *open_plain(struct ibv_device *device)
{
	struct ibv_context *context = real_open(device);

	if (context)
		context->abi_compat = NULL;
	return context;
}

static struct vb_verbs *apple_verbs(void)
{
	static struct vb_verbs verbs;
	const struct vb_verbs *all = spy_verbs();

	verbs = (struct vb_verbs){.refs = 1000000};
#define X(name, result, arguments) verbs.name = all->name;
	VB_VERBS(X)
#undef X
	real_open = all->open_device;
	verbs.open_device = open_plain;
	return &verbs;
}

#define BYTES 100000u

static int send_and_recv(struct stage_end *end)
{
	struct vb_transport *t = end->transport;
	int rc = stage_send_pattern(t, 0, BYTES);

	if (!rc)
		rc = vb_flush(t);
	return rc ? rc : stage_recv_pattern(t, 0, BYTES);
}

static int recv_and_send(struct stage_end *end)
{
	struct vb_transport *t = end->transport;
	int rc = stage_recv_pattern(t, 0, BYTES);

	if (!rc)
		rc = stage_send_pattern(t, 0, BYTES);
	return rc ? rc : vb_flush(t);
}

static void move(enum vb_mode mode)
{
	struct stage stage;

	stage_init(&stage, "apple-tb", NULL);
	for (int side = 0; side < 2; side++) {
		stage.end[side].options.verbs = apple_verbs();
		stage.end[side].options.mode = mode;
		stage.end[side].script = side ? recv_and_send : send_and_recv;
	}
	stage_run(&stage, SIM_LATE);
	for (int side = 0; side < 2; side++) {
		struct stage_end *end = &stage.end[side];

		CHECK(end->probed == 0 && end->activated == 0 && end->rc == 0 &&
			      end->closed == 0,
		      "%d: %d, %d, %d, %d: %s", side, end->probed,
		      end->activated, end->rc, end->closed, end->cause.text);
	}
	stage_fini(&stage);
}

Test(apple_sdk, R44_bytes_move_over_a_table_of_no_more)
{
	move(VB_COMPAT);
	move(VB_HARDENED_ONLY);
}
