/* The plain loops that benchmarks/stencil_peers.py compares with.
   Arguments: j2d N STEPS REPEATS, or sw N 0 REPEATS. Prints the CPU seconds of each repeat. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

static float j2d(int n, int steps, int repeats) {
    const size_t line = n + 2;
    float *old = malloc(line * line * sizeof *old), *new = malloc(line * line * sizeof *new);
    for (size_t i = 0; i < line * line; i++)
        old[i] = new[i] = (float)(i * 2654435761u % 1000) / 1000;
    for (int repeat = 0; repeat < repeats; repeat++) {
        const double begin = cpu_s();
        for (int step = 0; step < steps; step++) {
            for (int i = 1; i <= n; i++)
                for (int j = 1; j <= n; j++)
                    new[i * line + j] = 0.2f * (old[i * line + j] + old[(i - 1) * line + j] +
                                                old[(i + 1) * line + j] + old[i * line + j - 1] +
                                                old[i * line + j + 1]);
            float *swapped = old;
            old = new;
            new = swapped;
        }
        printf("%.6f\n", cpu_s() - begin);
    }
    return old[line + 1];
}

static int sw(int n, int repeats) {
    int *row = malloc(n * sizeof *row), *first = malloc(n * sizeof *first),
        *second = malloc(n * sizeof *second), best = 0;
    srand(1);
    for (int i = 0; i < n; i++)
        first[i] = rand() % 4, second[i] = rand() % 4;
    for (int repeat = 0; repeat < repeats; repeat++) {
        const double begin = cpu_s();
        memset(row, 0, n * sizeof *row);
        for (int t = 0; t < n; t++)
            for (int i = 0, corner = 0, left = 0; i < n; i++) {
                const int above = row[i];
                int value = corner + (first[i] == second[t] ? 2 : -1);
                value = value > 0 ? value : 0;
                value = value > above - 1 ? value : above - 1;
                value = value > left - 1 ? value : left - 1;
                corner = above;
                row[i] = left = value;
                best = best > value ? best : value;
            }
        printf("%.6f\n", cpu_s() - begin);
    }
    return best;
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    const int n = atoi(argv[2]), steps = atoi(argv[3]), repeats = atoi(argv[4]);
    const double result = strcmp(argv[1], "sw") ? j2d(n, steps, repeats) : sw(n, repeats);
    fprintf(stderr, "%g\n", result);
    return 0;
}
