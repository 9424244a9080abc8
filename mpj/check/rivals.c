// For `engines --rivals`: what an MPI library takes for a start and a barrier, and for ping-pongs.
//
//   rivals            rank 0 prints `time` and the nanoseconds since the epoch after the first barrier
//   rivals pingpong   rank 0 prints lines as `mpj-perf pingpong` does: PP,same,bytes,iterations,median us
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const int SIZES[] = {0, 1, 8, 64, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536,
    131072, 262144, 524288, 1048576, 4194304};
enum { WARMUP = 23, MAX_ITERATIONS = 200000 };
static const double BUDGET_NS = 20e6;
static int rank;

static long long now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long exchange(char *send, char *receive, int bytes) {
    long long start = now_ns(CLOCK_MONOTONIC);
    if (rank == 0) MPI_Send(send, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(receive, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(send, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    return now_ns(CLOCK_MONOTONIC) - start;
}

static int compare(const void *a, const void *b) {
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

static void pingpong(char *send, char *receive, int bytes) {
    long long total = 0, *times;
    for (int i = 0; i < WARMUP; i++) total += exchange(send, receive, bytes);
    double iterations = BUDGET_NS / ((double)total / WARMUP + 1);
    int n = iterations < 10 ? 10 : iterations > MAX_ITERATIONS ? MAX_ITERATIONS : (int)iterations;
    MPI_Bcast(&n, 1, MPI_INT, 0, MPI_COMM_WORLD);
    times = malloc(sizeof *times * (size_t)n);
    for (int i = 0; i < n; i++) times[i] = exchange(send, receive, bytes);
    qsort(times, (size_t)n, sizeof *times, compare);
    if (rank == 0) printf("PP,same,%d,%d,%.3f\n", bytes, n, (double)times[n / 2] / 2e3);
    free(times);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 1 && strcmp(argv[1], "pingpong") == 0) {
        char *send = malloc(4194304), *receive = malloc(4194304);
        memset(send, 1, 4194304);
        memset(receive, 2, 4194304);
        for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) pingpong(send, receive, SIZES[i]);
        free(send);
        free(receive);
    } else if (rank == 0) {
        printf("time %lld\n", now_ns(CLOCK_REALTIME));
    }
    MPI_Finalize();
    return 0;
}
