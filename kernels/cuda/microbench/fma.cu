// Multiply-adds with a chosen number for each loaded word: kernels/cuda/microbench/fma.py.
//
// Every chain alternates between x = p x + q and x = r x + s; a loaded word replaces q or s in one
// step. The work is divided into chunks of equal numbers of trips, which the blocks share, so that
// it is the same on every GPU.
//
// NUMBER: 0 single, 1 double, 2 two halves, 3 integer of 32 bits. LEVEL: 0 registers, 1 shared
// memory, 2 L1, 3 L2, 4 main memory. OPS: multiply-adds for each word. A block loads the same words
// again after `region_trips` trips.

#define THREADS 256
#define VECTORS 2
#define BLOCK_STEPS 16
#define REGISTER_STEPS 64

#if NUMBER == 0
typedef float number;
typedef float4 vector;
#define WIDTH 4
#define MULTIPLY_ADD(x, f, t) __fmaf_rn(x, f, t)
#elif NUMBER == 1
typedef double number;
typedef double2 vector;
#define WIDTH 2
#define MULTIPLY_ADD(x, f, t) __fma_rn(x, f, t)
#elif NUMBER == 2
typedef unsigned number;
typedef uint4 vector;
#define WIDTH 4
#ifdef __CUDACC__
__device__ __forceinline__ number multiply_add_halves(number x, number f, number t) {
    number result;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(f), "r"(t));
    return result;
}
#endif
#define MULTIPLY_ADD(x, f, t) multiply_add_halves(x, f, t)
#else
typedef unsigned number;
typedef uint4 vector;
#define WIDTH 4
#define MULTIPLY_ADD(x, f, t) ((x) * (f) + (t))
#endif

#if LEVEL == 0
#define CHAINS 8
#else
#define CHAINS (VECTORS * WIDTH / 2)
#endif

#define TRIP (VECTORS * THREADS)
// REGION: vectors that a block loads repeatedly from the memory of its processor.
#define REGION (2 * TRIP)

struct factors {
    number p, q, r, s;
};

// `count` steps of all chains, the first one with r and s if ODD.
template <int ODD>
__device__ __forceinline__ void steps(number (&x)[CHAINS], const factors &by, int count) {
#pragma unroll
    for (int i = 0; i < count; i++) {
#pragma unroll
        for (int c = 0; c < CHAINS; c++)
            x[c] = (i + ODD) % 2 ? MULTIPLY_ADD(x[c], by.r, by.s)
                                 : MULTIPLY_ADD(x[c], by.p, by.q);
    }
}

// The OPS - 1 steps after a step with a word; a loop if there are many.
template <int ODD>
__device__ __forceinline__ void steps_after_word(number (&x)[CHAINS], const factors &by) {
    const int count = OPS - 1;
#if OPS - 1 >= 2 * BLOCK_STEPS
#pragma unroll 1
    for (int i = 0; i < count / BLOCK_STEPS; i++) steps<ODD>(x, by, BLOCK_STEPS);
    steps<ODD>(x, by, count % BLOCK_STEPS);
#else
    steps<ODD>(x, by, count);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
    multiply_adds(number *out, const number *start, const vector *words, int region_trips,
                  number p, number q, number r, number s, long long chunks, int trips) {
    const factors by = {p, q, r, s};
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    number x[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; c++) x[c] = start[thread * CHAINS + c];
#if LEVEL == 1
    __shared__ vector region[REGION];
    for (int i = threadIdx.x; i < REGION; i += THREADS) region[i] = words[i];
    __syncthreads();
#elif LEVEL > 1
    // Each block has different words: see region_trips in kernels/cuda/microbench/chunks.py.
    const vector *region = words + (long long)blockIdx.x * region_trips * TRIP;
#endif
#if LEVEL > 0
    int place = 0;
#endif
#pragma unroll 1
    for (long long chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
#pragma unroll 1
        for (int trip = 0; trip < trips; trip++) {
#if LEVEL == 0
            steps<0>(x, by, REGISTER_STEPS);
#else
            const vector *at = region + place * TRIP + threadIdx.x;
            union {
                vector vectors[VECTORS];
                number words[VECTORS * WIDTH];
            } loaded;
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
#if LEVEL == 1
                loaded.vectors[v] = at[v * THREADS];
#elif LEVEL == 2
                loaded.vectors[v] = __ldca(at + v * THREADS);
#else
                loaded.vectors[v] = __ldcg(at + v * THREADS);
#endif
            }
            place = place + 1 == region_trips ? 0 : place + 1;
#pragma unroll
            for (int c = 0; c < CHAINS; c++) x[c] = MULTIPLY_ADD(x[c], by.p, loaded.words[2 * c]);
            steps_after_word<1>(x, by);
#pragma unroll
            for (int c = 0; c < CHAINS; c++)
                x[c] = OPS % 2 ? MULTIPLY_ADD(x[c], by.r, loaded.words[2 * c + 1])
                               : MULTIPLY_ADD(x[c], by.p, loaded.words[2 * c + 1]);
            steps_after_word<(OPS + 1) % 2>(x, by);
#endif
        }
    }
#pragma unroll
    for (int c = 0; c < CHAINS; c++) out[thread * CHAINS + c] = x[c];
}
