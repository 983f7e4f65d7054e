/* SPDX-License-Identifier: MIT */
/* The memory of a ring. */
#define _GNU_SOURCE
#include "lib/memory.h"

#include <errno.h>
#include <string.h>

#include "lib/runtime.h"

#ifdef __linux__
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Where `size` bytes fit aligned, and reserved; NULL. */
static uint8_t *reserve(size_t align, size_t size)
{
	uint8_t *all = mmap(NULL, align + size, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t before;

	if (all == MAP_FAILED)
		return NULL;
	before = -(uintptr_t)all & (align - 1);
	if (before)
		munmap(all, before);
	munmap(all + before + size, align - before);
	return all + before;
}

/* Now: a page that is not there must not be found out by a signal. */
static int allocate(int fd, size_t size)
{
	int rc;

	do {
		rc = posix_fallocate(fd, 0, (off_t)size);
	} while (rc == EINTR);
	return rc;
}

/* False: the system has none to give, and malloc may. */
static bool open_file(size_t align, size_t size, struct vb_memory *memory)
{
	int fd = memfd_create("verbena ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *at = NULL;

	size = (size + page - 1) / page * page;
	if (fd >= 0 && allocate(fd, size) == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
		at = reserve(align, size);
	if (at && mmap(at, size, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) == at) {
		*memory = (struct vb_memory){at, size, fd};
		return true;
	}
	if (at)
		munmap(at, size);
	if (fd >= 0)
		close(fd);
	return false;
}

static void close_file(struct vb_memory *memory)
{
	munmap(memory->bytes, memory->size_bytes);
	close(memory->fd);
}
#else
static bool open_file(size_t align, size_t size, struct vb_memory *memory)
{
	(void)align;
	(void)size;
	(void)memory;
	return false;
}

static void close_file(struct vb_memory *memory)
{
	(void)memory;
}
#endif

int vb_memory_open(const struct vb_runtime *runtime, size_t align_bytes,
		   size_t size_bytes, struct vb_memory *memory)
{
	uint8_t *bytes;

	if (vb_runtime_is_default_alloc(runtime) &&
	    open_file(align_bytes, size_bytes, memory))
		return 0;
	bytes = runtime->alloc(runtime->arg, align_bytes, size_bytes);
	if (!bytes)
		return -ENOMEM;
	memset(bytes, 0, size_bytes);
	*memory = (struct vb_memory){bytes, size_bytes, -1};
	return 0;
}

void vb_memory_close(const struct vb_runtime *runtime, struct vb_memory *memory)
{
	if (memory->bytes && memory->fd >= 0)
		close_file(memory);
	else if (memory->bytes)
		runtime->free(runtime->arg, memory->bytes);
	memory->bytes = NULL;
}
