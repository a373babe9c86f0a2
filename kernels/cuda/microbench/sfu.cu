// Special functions, and multiply-adds between them: kernels/cuda/microbench/sfu.py.
//
// Without multiply-adds, chains of reciprocals: x, 1 / x, x and so on. With OPS of them for each
// value, x becomes p / sqrt|x| + q, and then alternately r x + s and t x + u.
//
// VALUES: special functions of a chain in a trip.

#define THREADS 256
#define CHAINS 8

#ifdef __CUDACC__
__device__ __forceinline__ float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
__device__ __forceinline__ float reciprocal_root(float x) {
    float result;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    special_functions(float *out, const float *start, float p, float q, float r, float s, float t,
                      float u, long long chunks, int trips) {
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    float x[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; c++) x[c] = start[thread * CHAINS + c];
#pragma unroll 1
    for (long long chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
#pragma unroll 1
        for (int trip = 0; trip < trips; trip++) {
#pragma unroll
            for (int v = 0; v < VALUES; v++) {
#pragma unroll
                for (int c = 0; c < CHAINS; c++)
                    x[c] = OPS ? reciprocal_root(fabsf(x[c])) : reciprocal(x[c]);
#pragma unroll
                for (int i = 0; i < OPS; i++) {
#pragma unroll
                    for (int c = 0; c < CHAINS; c++)
                        x[c] = i == 0  ? __fmaf_rn(x[c], p, q)
                               : i % 2 ? __fmaf_rn(x[c], r, s)
                                       : __fmaf_rn(x[c], t, u);
                }
            }
        }
    }
#pragma unroll
    for (int c = 0; c < CHAINS; c++) out[thread * CHAINS + c] = x[c];
}
