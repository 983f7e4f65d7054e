/* SPDX-License-Identifier: MIT */
/*
 * verbena-paths.so, loaded before a program that may have no mount namespace:
 * where it names /dev/infiniband or /sys/class/infiniband*, it is given the
 * same name below the folder that VERBENA_PATHS names. All else is passed on.
 *
 * It sees what a program calls in the C library, not what the C library calls
 * in itself; each such function that takes a path and matters is here.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NODE "/dev/infiniband/uverbs0"

/* `path` as it would be from the root, without "//", "." and ".."; false when
 * it does not fit. Links are not followed. */
static bool absolute(const char *path, char to[PATH_MAX])
{
	char whole[2 * PATH_MAX] = "";
	size_t len = 0;

	if (path[0] != '/' && !getcwd(whole, PATH_MAX))
		return false;
	if (strlen(path) >= PATH_MAX)
		return false;
	strcat(whole, "/");
	strcat(whole, path);
	for (char *save, *part = strtok_r(whole, "/", &save); part;
	     part = strtok_r(NULL, "/", &save)) {
		if (strcmp(part, ".") == 0)
			continue;
		if (strcmp(part, "..") == 0) {
			while (len && to[--len] != '/')
				;
			continue;
		}
		if (len + 1 + strlen(part) >= PATH_MAX)
			return false;
		len += (size_t)snprintf(to + len, PATH_MAX - len, "/%s", part);
	}
	to[len] = 0;
	return true;
}

/* The name that the program is shown for `path`; `room` holds it. */
static const char *shown(const char *path, char room[PATH_MAX])
{
	static const char *const covered[] = {"/dev/infiniband",
					      "/sys/class/infiniband"};
	const char *folder = getenv("VERBENA_PATHS");
	char whole[PATH_MAX];

	if (!folder || !path || !strstr(path, "infiniband") ||
	    !absolute(path, whole))
		return path;
	/* A character device, also to those who do not follow links. */
	if (strcmp(whole, NODE) == 0)
		return "/dev/null";
	for (int i = 0; i < 2; i++) {
		if (strncmp(whole, covered[i], strlen(covered[i])) != 0)
			continue;
		if (snprintf(room, PATH_MAX, "%s%s", folder, whole) < PATH_MAX)
			return room;
	}
	return path;
}

/* A function that stands before the C library's of the same name. */
#define PASS(type, name, parameters, ...)                          \
	type name parameters                                       \
	{                                                          \
		static type(*real) parameters;                     \
		char room[PATH_MAX];                               \
                                                                   \
		if (!real)                                         \
			*(void **)&real = dlsym(RTLD_NEXT, #name); \
		return real(__VA_ARGS__);                          \
	}

PASS(int, chdir, (const char *path), shown(path, room))
PASS(DIR *, opendir, (const char *path), shown(path, room))
PASS(FILE *, fopen, (const char *path, const char *mode), shown(path, room),
     mode)
PASS(FILE *, fopen64, (const char *path, const char *mode), shown(path, room),
     mode)
PASS(int, stat, (const char *path, struct stat *to), shown(path, room), to)
PASS(int, stat64, (const char *path, struct stat64 *to), shown(path, room), to)
PASS(int, lstat, (const char *path, struct stat *to), shown(path, room), to)
PASS(int, lstat64, (const char *path, struct stat64 *to), shown(path, room), to)
PASS(int, fstatat, (int at, const char *path, struct stat *to, int flags), at,
     shown(path, room), to, flags)
PASS(int, fstatat64, (int at, const char *path, struct stat64 *to, int flags),
     at, shown(path, room), to, flags)
PASS(int, statx,
     (int at, const char *path, int flags, unsigned mask, struct statx *to), at,
     shown(path, room), flags, mask, to)
PASS(int, access, (const char *path, int mode), shown(path, room), mode)
PASS(int, faccessat, (int at, const char *path, int mode, int flags), at,
     shown(path, room), mode, flags)
PASS(ssize_t, readlink, (const char *path, char *to, size_t size),
     shown(path, room), to, size)
PASS(ssize_t, getxattr,
     (const char *path, const char *name, void *to, size_t size),
     shown(path, room), name, to, size)
PASS(ssize_t, lgetxattr,
     (const char *path, const char *name, void *to, size_t size),
     shown(path, room), name, to, size)
PASS(char *, realpath, (const char *path, char *to), shown(path, room), to)
PASS(int, scandir,
     (const char *path, struct dirent ***list,
      int (*filter)(const struct dirent *),
      int (*compare)(const struct dirent **, const struct dirent **)),
     shown(path, room), list, filter, compare)
PASS(int, scandir64,
     (const char *path, struct dirent64 ***list,
      int (*filter)(const struct dirent64 *),
      int (*compare)(const struct dirent64 **, const struct dirent64 **)),
     shown(path, room), list, filter, compare)

/* The mode is there only when a file may be made; a spare one does no harm,
 * and is not read where it is not there. */
#define PASS_OPEN(name, parameters, ...)                           \
	int name parameters                                        \
	{                                                          \
		static int(*real) parameters;                      \
		char room[PATH_MAX];                               \
		mode_t mode = 0;                                   \
		va_list args;                                      \
                                                                   \
		if (!real)                                         \
			*(void **)&real = dlsym(RTLD_NEXT, #name); \
		if (flags & (O_CREAT | __O_TMPFILE)) {             \
			va_start(args, flags);                     \
			mode = va_arg(args, mode_t);               \
			va_end(args);                              \
		}                                                  \
		return real(__VA_ARGS__, flags, mode);             \
	}

PASS_OPEN(open, (const char *path, int flags, ...), shown(path, room))
PASS_OPEN(open64, (const char *path, int flags, ...), shown(path, room))
PASS_OPEN(openat, (int at, const char *path, int flags, ...), at,
	  shown(path, room))
PASS_OPEN(openat64, (int at, const char *path, int flags, ...), at,
	  shown(path, room))

/* What a program built with _FORTIFY_SOURCE calls instead. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int at, const char *path, int flags);
int __openat64_2(int at, const char *path, int flags);
char *__realpath_chk(const char *path, char *to, size_t size);

PASS(int, __open_2, (const char *path, int flags), shown(path, room), flags)
PASS(int, __open64_2, (const char *path, int flags), shown(path, room), flags)
PASS(int, __openat_2, (int at, const char *path, int flags), at,
     shown(path, room), flags)
PASS(int, __openat64_2, (int at, const char *path, int flags), at,
     shown(path, room), flags)
PASS(char *, __realpath_chk, (const char *path, char *to, size_t size),
     shown(path, room), to, size)
