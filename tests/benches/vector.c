/* `tickwire perf vector` in MPI: the same metrics, sizes and rounds, in the same form. Two ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank;

static void turn(int first, const void *from, int sent, MPI_Datatype as, void *to, int received, MPI_Datatype into) {
  if (first) MPI_Send(from, sent, as, 1 - rank, 1, MPI_COMM_WORLD);
  MPI_Recv(to, received, into, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (!first) MPI_Send(from, sent, as, 1 - rank, 1, MPI_COMM_WORLD);
}

static void measure(const char *metric, int bytes, const double *numbers, void *packed, void *to, MPI_Datatype every_second) {
  int doubles = bytes / 8, rounds = bytes <= 1024 ? 20000 : (256 << 20) / bytes;
  int vector = metric[0] == 'v', strided = vector || metric[0] == 's', pack = metric[0] == 'p';
  double start = 0;
  for (int round = 0; round < rounds + rounds / 10; round++) {
    if (round == rounds / 10) start = MPI_Wtime();
    if (pack) {
      int at = 0;
      if (rank == 1) MPI_Recv(to, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Pack(numbers, 1, every_second, packed, bytes, &at, MPI_COMM_WORLD);
      MPI_Send(packed, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD);
      if (rank == 0) MPI_Recv(to, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      turn(rank == 0, strided ? (const void *)numbers : packed, strided ? 1 : bytes, strided ? every_second : MPI_BYTE,
           to, vector ? 1 : strided ? doubles : bytes, vector ? every_second : strided ? MPI_DOUBLE : MPI_BYTE);
    }
  }
  if (rank == 0) printf("%s %d %.4f us\n", metric, bytes, (MPI_Wtime() - start) / rounds / 2 * 1e6);
}

int main(int argc, char **argv) {
  const char *metrics[] = {"contiguous", "packed", "strided", "vector"};
  int sizes[] = {1 << 10, 64 << 10, 1 << 20};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int s = 0; s < 3; s++) {
    int doubles = sizes[s] / 8;
    double *numbers = malloc(16 * doubles), *there = calloc(2 * doubles, 8);
    void *packed = calloc(1, sizes[s]);
    MPI_Datatype every_second;
    for (int n = 0; n < 2 * doubles; n++) numbers[n] = n;
    MPI_Type_vector(doubles, 1, 2, MPI_DOUBLE, &every_second);
    MPI_Type_commit(&every_second);
    for (int m = 0; m < 4; m++) measure(metrics[m], sizes[s], numbers, packed, there, every_second);
    for (int n = 0; n < 2 * doubles; n += 2) if (there[n] != n) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Type_free(&every_second);
    free(numbers); free(there); free(packed);
  }
  MPI_Finalize();
  return 0;
}
