/* SPDX-License-Identifier: MIT */
/* Two MPI ranks send each other 200 messages and check every byte. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS	     200
#define BYTES	     65536
#define LENGTH(i)    (1 + (i)*331 % BYTES)
#define FILLER(i, r) ((unsigned char)((i)*2 + (r)))

static unsigned char buffer[BYTES];

static int wrong_bytes(int round, int sender)
{
	int wrong = 0;

	for (int at = 0; at < LENGTH(round); at++)
		wrong += buffer[at] != FILLER(round, sender);
	return wrong;
}

int main(int argc, char **argv)
{
	int rank, wrong = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int turn = 0; turn < 2 * ROUNDS; turn++) {
		int round = turn / 2, sender = turn % 2;

		if (rank == sender) {
			memset(buffer, FILLER(round, sender), BYTES);
			MPI_Send(buffer, LENGTH(round), MPI_BYTE, 1 - rank, 0,
				 MPI_COMM_WORLD);
		} else {
			MPI_Recv(buffer, LENGTH(round), MPI_BYTE, sender, 0,
				 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			wrong += wrong_bytes(round, sender);
		}
	}
	printf("rank %d: %d wrong bytes\n", rank, wrong);
	MPI_Finalize();
	return wrong != 0;
}
