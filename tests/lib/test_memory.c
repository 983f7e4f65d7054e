/* SPDX-License-Identifier: MIT */
/*
 * Goal: a ring's memory is aligned, zeroed, and where the system can a file
 * that others may map and nobody may cut; where it cannot, it is the runtime's.
 * And nothing of it is left. Method: the memory itself, as the process sees it.
 */
#define _GNU_SOURCE
#include "lib/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/runtime.h"
#include "tests/harness.h"

#define ALIGN (4u << 20)
#define BYTES (3u << 20)

static struct vb_runtime defaults(void)
{
	return vb_runtime_or_default(&(struct vb_runtime){0});
}

static void check_bytes(const struct vb_memory *memory)
{
	CHECK_EQ(memory->size_bytes, BYTES);
	CHECK_EQ((uintptr_t)memory->bytes % ALIGN, 0);
	for (size_t i = 0; i < BYTES; i++)
		CHECK(memory->bytes[i] == 0, "byte %zu", i);
	memset(memory->bytes, 0x5a, BYTES);
}

Test(memory, a_ring_is_a_file_that_nobody_can_cut)
{
	struct vb_runtime runtime = defaults();
	struct vb_memory memory;
	char byte = 0;
	int fd;

	for (int i = 0; i < 3; i++) {
		CHECK_EQ(vb_memory_open(&runtime, ALIGN, BYTES, &memory), 0);
		fd = memory.fd;
		CHECK(fd >= 0, "of malloc");
		check_bytes(&memory);
		CHECK_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
		CHECK_EQ(ftruncate(fd, 0), -1);
		CHECK_EQ(errno, EPERM);
		CHECK_EQ(pread(fd, &byte, 1, BYTES - 1), 1);
		CHECK_EQ(byte, 0x5a);
		vb_memory_close(&runtime, &memory);
		CHECK_EQ(fcntl(fd, F_GETFD), -1);
		CHECK(!memory.bytes, "still there");
		vb_memory_close(&runtime, &memory); /* nothing to do */
	}
}

/* A fork moves no page of it: what a device was told stays true. */
Test(memory, a_fork_leaves_the_ring_where_it_was)
{
	struct vb_runtime runtime = defaults();
	struct vb_memory memory;
	char byte = 0;
	int down[2];
	pid_t pid;

	CHECK_EQ(vb_memory_open(&runtime, ALIGN, BYTES, &memory), 0);
	CHECK_EQ(pipe(down), 0);
	pid = fork();
	if (pid == 0) {
		close(down[1]);
		_exit(read(down[0], &byte, 1) != 0);
	}
	memory.bytes[5] = 7; /* would be a copy from now on */
	CHECK_EQ(pread(memory.fd, &byte, 1, 5), 1);
	CHECK_EQ(byte, 7);
	close(down[0]);
	close(down[1]);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	vb_memory_close(&runtime, &memory);
}

Test(memory, without_a_descriptor_it_is_the_runtimes)
{
	struct vb_runtime runtime = defaults();
	struct vb_memory memory;
	struct rlimit limit;

	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 0;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	CHECK_EQ(vb_memory_open(&runtime, ALIGN, BYTES, &memory), 0);
	limit.rlim_cur = limit.rlim_max;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	CHECK_EQ(memory.fd, -1);
	check_bytes(&memory);
	vb_memory_close(&runtime, &memory);
}
