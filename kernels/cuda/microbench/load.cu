// Sums of words from one level of the memory: kernels/cuda/microbench/load.py.
//
// Every word of a trip has a separate sum, so that no instruction that adds three numbers can take
// two words: one word is one addition.
//
// LEVEL: 1 shared memory, 2 L1, 3 L2 or main memory. VECTORS: loads of 16 bytes in a trip. A block
// loads the same words again after `region_trips` trips.

#define THREADS 256
#define SUMS (4 * VECTORS)
#define TRIP (VECTORS * THREADS)
#define REGION 1024

extern "C" __global__ void __launch_bounds__(THREADS)
    sums(unsigned *out, const uint4 *words, int region_trips, long long chunks, int trips) {
    unsigned sum[SUMS];
#pragma unroll
    for (int s = 0; s < SUMS; s++) sum[s] = 0;
#if LEVEL == 1
    __shared__ uint4 region[REGION];
    for (int i = threadIdx.x; i < REGION; i += THREADS) region[i] = words[i];
    __syncthreads();
#else
    // Each block has different words: see region_trips in kernels/cuda/microbench/chunks.py.
    const uint4 *region = words + (long long)blockIdx.x * region_trips * TRIP;
#endif
    int place = 0;
#pragma unroll 1
    for (long long chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
#pragma unroll 1
        for (int trip = 0; trip < trips; trip++) {
            uint4 loaded[VECTORS];
            const uint4 *at = region + place * TRIP + threadIdx.x;
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
#if LEVEL == 1
                loaded[v] = at[v * THREADS];
#elif LEVEL == 2
                loaded[v] = __ldca(at + v * THREADS);
#else
                loaded[v] = __ldcg(at + v * THREADS);
#endif
            }
            place = place + 1 == region_trips ? 0 : place + 1;
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
                sum[4 * v] += loaded[v].x;
                sum[4 * v + 1] += loaded[v].y;
                sum[4 * v + 2] += loaded[v].z;
                sum[4 * v + 3] += loaded[v].w;
            }
        }
    }
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
#pragma unroll
    for (int s = 0; s < SUMS; s++) out[thread * SUMS + s] = sum[s];
}
