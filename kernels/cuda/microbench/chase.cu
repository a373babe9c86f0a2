// Chains of dependent loads through random cycles of lines: kernels/cuda/microbench/chase.py.
//
// The first word of a line is the position of the next line, in bytes from the first line of its
// chain. One thread of each block follows a chain.
//
// LEVEL: 1 shared memory, 2 L1, 3 L2 or main memory. LINES: the lines of a chain
// at level 1.

#define THREADS 32
#define LINE_BYTES 128
#define LINE_WORDS (LINE_BYTES / 4)
#define HOPS 16

// Links the lines of all chains. `order`: the indices of the `n_lines` lines of each chain.
extern "C" __global__ void link_lines(unsigned *lines, const unsigned *order, int n_lines,
                                      int chains) {
    const long long count = (long long)n_lines * chains;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const long long first = i / n_lines * n_lines;
        const long long next = i + 1 == first + n_lines ? first : i + 1;
        lines[(first + order[i]) * LINE_WORDS] = order[next] * LINE_BYTES;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    chase(unsigned *places, const unsigned *lines, int n_lines, long long trips) {
    const unsigned *first = lines + (long long)blockIdx.x * n_lines * LINE_WORDS;
#if LEVEL == 1
    __shared__ unsigned region[LINES * LINE_WORDS];
#pragma unroll 1
    for (int i = threadIdx.x; i < LINES; i += THREADS)
        region[i * LINE_WORDS] = first[i * LINE_WORDS];
    __syncthreads();
#endif
    if (threadIdx.x) return;
    unsigned place = places[blockIdx.x];
#pragma unroll 1
    for (long long trip = 0; trip < trips; trip++) {
#pragma unroll
        for (int hop = 0; hop < HOPS; hop++) {
#if LEVEL == 1
            place = *(const unsigned *)((const char *)region + place);
#elif LEVEL == 2
            place = __ldca((const unsigned *)((const char *)first + place));
#else
            place = __ldcg((const unsigned *)((const char *)first + place));
#endif
        }
    }
    places[blockIdx.x] = place;
}
