// Single-precision multiply-adds of every lane, and how long they took by the processor's clock and
// by the GPU's time: benchmarks/gpu_15min.py.

#define THREADS 256
#define CHAINS 16
#define ROUNDS 8

// A pass through the loop has CHAINS * ROUNDS multiply-adds of each thread. Chains begin at `size`
// times a number in [1, 2), each at its own, and go back and forth between two numbers: once by
// 1.75 x + 0.3125, once by its inverse. With `size` and `added` 0 all are zeros. `taken` gets cycles
// and nanoseconds of each block.
extern "C" __global__ void __launch_bounds__(THREADS)
    timed_multiply_adds(float *out, long long *taken, long long passes, float size, float added) {
    const float factor = 1.75f * size, back = size / 1.75f, removed = -added / 1.75f;
    float x[CHAINS];
#pragma unroll
    for (int i = 0; i < CHAINS; i++) {
        const unsigned mixed = (threadIdx.x * CHAINS + i + 1) * 2654435761u;
        x[i] = size * (1.0f + (mixed >> 9) * 0x1p-23f);
    }
    __syncthreads();
    long long begin_ns, end_ns;
    const long long begin = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin_ns));
#pragma unroll 1
    for (long long pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int round = 0; round < ROUNDS; round++)
#pragma unroll
            for (int i = 0; i < CHAINS; i++)
                x[i] = round % 2 ? __fmaf_rn(x[i], back, removed) : __fmaf_rn(x[i], factor, added);
    }
    __syncthreads();
    const long long end = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end_ns));
    float total = 0;
#pragma unroll
    for (int i = 0; i < CHAINS; i++) total += x[i];
    out[blockIdx.x * THREADS + threadIdx.x] = total;
    if (threadIdx.x == 0) {
        taken[2 * blockIdx.x] = end - begin;
        taken[2 * blockIdx.x + 1] = end_ns - begin_ns;
    }
}
