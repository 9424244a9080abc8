// What an MPI library takes for a start, for messages and for collectives: for `engines --rivals`, `startup` and
// `figures`. The loops are those of `mpj-perf`, and so are the lines that rank 0 prints:
//
//   rivals            `time` and the nanoseconds since the epoch after the first barrier
//   rivals hello      nothing: it starts and ends a job
//   rivals pingpong   PP,same,bytes,iterations,median us
//   rivals windows    RATE,bytes,window,median M/s and BW,bytes,window,median MB/s
//   rivals coll       COLL,operation,ranks,bytes,iterations,median us
//   rivals overlap    OVERLAP,bytes,us of the transfer,us of the computation,us of both,per cent of overlap
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

static int repeats(double each_ns, int least, int most) {
    double n = BUDGET_NS / (each_ns + 1);
    int count = n < least ? least : n > most ? most : (int)n;
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return count;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return values[n / 2];
}

// Returns the nanoseconds for `n` windows of messages from rank 0 to rank 1, each followed by a reply.
static double send_windows(char *send, char *receive, int bytes, int window, int n) {
    MPI_Request requests[64];
    char reply = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    long long start = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < n; i++) {
        for (int at = 0; at < window; at++) {
            char *buffer = (rank == 0 ? send : receive) + (size_t)at * (size_t)bytes;
            if (rank == 0) MPI_Isend(buffer, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[at]);
            else MPI_Irecv(buffer, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[at]);
        }
        for (int at = 0; at < window; at++) MPI_Wait(&requests[at], MPI_STATUS_IGNORE);
        if (rank == 0) MPI_Recv(&reply, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else MPI_Send(&reply, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
    return (double)(now_ns(CLOCK_MONOTONIC) - start);
}

static void windows(char *send, char *receive, int bytes, int window) {
    double rates[5];
    int n = repeats(send_windows(send, receive, bytes, window, 3) / 3, 2, 20000);
    for (int i = 0; i < 5; i++) {
        // Millions of messages per second.
        rates[i] = (double)n * window * 1e3 / send_windows(send, receive, bytes, window, n);
    }
    double rate = median(rates, 5);
    if (rank == 0 && bytes <= 64) printf("RATE,%d,%d,%.3f\n", bytes, window, rate);
    if (rank == 0 && bytes > 64) printf("BW,%d,%d,%.1f\n", bytes, window, rate * bytes);
}

enum { BARRIER, BCAST, ALLREDUCE, ALLTOALL, OPERATIONS };
static const char *const NAMES[] = {"barrier", "bcast", "allreduce", "alltoall"};

static void call(int operation, double *send, double *receive, int n) {
    if (operation == BARRIER) MPI_Barrier(MPI_COMM_WORLD);
    if (operation == BCAST) MPI_Bcast(send, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (operation == ALLREDUCE) MPI_Allreduce(send, receive, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (operation == ALLTOALL) MPI_Alltoall(send, n, MPI_DOUBLE, receive, n, MPI_DOUBLE, MPI_COMM_WORLD);
}

// Prints the median time of the slowest rank for one call after a barrier.
static void collective(int operation, double *send, double *receive, int bytes) {
    int ranks, n = bytes / (int)sizeof(double);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    call(operation, send, receive, n);
    MPI_Barrier(MPI_COMM_WORLD);
    long long start = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < 3; i++) {
        call(operation, send, receive, n);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    int count = repeats((double)(now_ns(CLOCK_MONOTONIC) - start) / 3, 5, 20000);
    double *times = malloc(sizeof *times * (size_t)count), *slowest = malloc(sizeof *times * (size_t)count);
    for (int i = 0; i < count; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        start = now_ns(CLOCK_MONOTONIC);
        call(operation, send, receive, n);
        times[i] = (double)(now_ns(CLOCK_MONOTONIC) - start) / 1e3;
    }
    MPI_Reduce(times, slowest, count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("COLL,%s,%d,%d,%d,%.2f\n", NAMES[operation], ranks, bytes, count, median(slowest, count));
    free(times);
    free(slowest);
}

static volatile unsigned long long computed;

static void compute(unsigned long long loops) {
    unsigned long long word = 1;
    while (loops-- > 0) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
    }
    computed = word;
}

// Returns the microseconds of the slower rank for the transfer of a message, if it has bytes, and a computation.
static double transfer_and_compute(char *message, int bytes, unsigned long long loops) {
    MPI_Request request = MPI_REQUEST_NULL;
    double mine, slowest;
    MPI_Barrier(MPI_COMM_WORLD);
    long long start = now_ns(CLOCK_MONOTONIC);
    if (bytes > 0 && rank == 0) MPI_Isend(message, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
    if (bytes > 0 && rank == 1) MPI_Irecv(message, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
    compute(loops);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    mine = (double)(now_ns(CLOCK_MONOTONIC) - start) / 1e3;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static void overlap(char *message, int bytes) {
    enum { ROUNDS = 51, PROBE = 1 << 20 };
    double transfer = 0, columns[3][ROUNDS], percent[ROUNDS];
    for (int i = 0; i < 10; i++) transfer = transfer_and_compute(message, bytes, 0);
    unsigned long long loops = (unsigned long long)(2 * transfer / transfer_and_compute(message, 0, PROBE) * PROBE);
    MPI_Bcast(&loops, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
    for (int i = 0; i < ROUNDS; i++) {
        columns[0][i] = transfer_and_compute(message, bytes, 0);
        columns[1][i] = transfer_and_compute(message, 0, loops);
        columns[2][i] = transfer_and_compute(message, bytes, loops);
        percent[i] = 100 * (columns[0][i] + columns[1][i] - columns[2][i]) / columns[0][i];
    }
    double found = median(percent, ROUNDS);
    found = found < 0 ? 0 : found > 100 ? 100 : found;
    if (rank == 0)
        printf("OVERLAP,%d,%.1f,%.1f,%.1f,%.0f\n", bytes, median(columns[0], ROUNDS), median(columns[1], ROUNDS),
            median(columns[2], ROUNDS), found);
}

int main(int argc, char **argv) {
    enum { MAX_BYTES = 4194304, WINDOW_BYTES = 16 * 1048576 };
    const char *mode = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (strcmp(mode, "hello") == 0) {
        MPI_Finalize();
        return 0;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (*mode == 0) {
        if (rank == 0) printf("time %lld\n", now_ns(CLOCK_REALTIME));
        MPI_Finalize();
        return 0;
    }
    char *send = malloc(WINDOW_BYTES), *receive = malloc(WINDOW_BYTES);
    memset(send, 1, WINDOW_BYTES);
    memset(receive, 2, WINDOW_BYTES);
    if (strcmp(mode, "pingpong") == 0)
        for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) pingpong(send, receive, SIZES[i]);
    if (strcmp(mode, "windows") == 0) {
        windows(send, receive, 8, 64);
        windows(send, receive, 1048576, 16);
    }
    if (strcmp(mode, "coll") == 0) {
        collective(BARRIER, NULL, NULL, 0);
        for (int operation = BCAST; operation < OPERATIONS; operation++)
            for (int bytes = 8; bytes <= 32768; bytes *= 4096)
                collective(operation, (double *)send, (double *)receive, bytes);
    }
    if (strcmp(mode, "overlap") == 0) overlap(send, MAX_BYTES);
    MPI_Finalize();
    return 0;
}
