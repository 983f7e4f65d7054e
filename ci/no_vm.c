/* SPDX-License-Identifier: MIT */
/* Run a program without process_vm_readv and writev, as some containers do:
 * no_vm PROGRAM [ARGUMENT…]. */
#include "ci/no_vm.h"

#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 2 || forbid_copying() != 0) {
		perror("no_vm");
		return 126;
	}
	execvp(argv[1], argv + 1);
	perror(argv[1]);
	return 127;
}
