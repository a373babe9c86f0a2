// Sums of q / r over lists of sources, pair by pair: kernels/cuda/fmm/direct.py.
//
// Points lie in slots, and each leaf starts a new group of 32, so that a warp loads a group and a
// thread holds one target from each of TILE groups. A block stages a chunk of its list of groups in
// shared memory while its threads load the next one into registers; each thread then processes the
// chunk, with its targets and their sums in registers.
//
// DOUBLE: 0 single, 1 double. ROOT: computation of 1 / r; 0 the estimate, 1 or 2 Newton steps after
// it, 3 a cubic step. THREADS of a block; TILE: targets of a thread; UNROLL: sources in one pass of
// the loop over a chunk. ADD: 1 to add to `sums`. SHIFT: 1 if coordinates are relative to centres
// of nodes; single precision only.

#define WARP 32
#define WARPS (THREADS / WARP)
#if SHIFT
// With the blocks on a processor, so that the compiler does not spill registers to fit more blocks.
#define BOUNDS THREADS, 768 / THREADS
#else
#define BOUNDS THREADS
#endif

#if DOUBLE
typedef double number;
typedef double2 vector;
#define PLANES 2
#define SUM(a, b) __dadd_rn(a, b)
#define SUBTRACT(a, b) __dsub_rn(a, b)
#define MULTIPLY(a, b) __dmul_rn(a, b)
#define MULTIPLY_ADD(a, b, c) __fma_rn(a, b, c)
#else
typedef float number;
typedef float4 vector;
#define PLANES 1
#define SUM(a, b) __fadd_rn(a, b)
#define SUBTRACT(a, b) __fsub_rn(a, b)
#define MULTIPLY(a, b) __fmul_rn(a, b)
#define MULTIPLY_ADD(a, b, c) __fmaf_rn(a, b, c)
#endif

// An estimate of 1 / sqrt(x); 0 if x is less than the smallest normal number.
#ifdef __CUDACC__
#if DOUBLE
__device__ __forceinline__ double root_estimate(double x) {
    // The estimate depends only on the high word of x, and its low word is 0.
    double y;
    asm("{\n\t.reg .pred far;\n\t.reg .b32 low, high;\n\t.reg .f64 estimate;\n\t"
        "rsqrt.approx.ftz.f64 estimate, %1;\n\t"
        "mov.b64 {low, high}, %1;\n\t"
        "setp.ge.s32 far, high, 0x00100000;\n\t"
        "mov.b64 {low, high}, estimate;\n\t"
        "selp.b32 high, high, 0, far;\n\t"
        "mov.b64 %0, {low, high};\n\t}"
        : "=d"(y) : "d"(x));
    return y;
}
#else
__device__ __forceinline__ float root_estimate(float x) {
    float y;
    asm("{\n\t.reg .pred far;\n\t.reg .f32 estimate;\n\t"
        "rsqrt.approx.ftz.f32 estimate, %1;\n\t"
        "setp.ge.f32 far, %1, 0f00800000;\n\t"
        "selp.f32 %0, estimate, 0f00000000, far;\n\t}"
        : "=f"(y) : "f"(x));
    return y;
}
#endif
#endif

struct point {
    number x, y, z, charge;
};

__device__ __forceinline__ point loaded(const vector *points, long long slots, unsigned slot) {
    const vector first = __ldcg(points + slot);
#if DOUBLE
    const vector second = __ldcg(points + slots + slot);
    return {first.x, first.y, second.x, second.y};
#else
    return {first.x, first.y, first.z, first.w};
#endif
}

__device__ __forceinline__ void stage(vector *staged, const point &p) {
#if DOUBLE
    staged[threadIdx.x] = {p.x, p.y};
    staged[THREADS + threadIdx.x] = {p.z, p.charge};
#else
    staged[threadIdx.x] = {p.x, p.y, p.z, p.charge};
#endif
}

// 1 / r from r^2; 2 / r with Newton steps: a step is y (3 - x y^2) / 2, and the last one omits its
// factor 1 / 2.
__device__ __forceinline__ number inverse_root(number x) {
    number y = root_estimate(x);
#if ROOT == 3
    const number rest = MULTIPLY_ADD(-x, MULTIPLY(y, y), (number)1);
    const number step = MULTIPLY_ADD(rest, (number)0.375, (number)0.5);
    return MULTIPLY_ADD(MULTIPLY(y, rest), step, y);
#else
#if ROOT == 2
    const number half = MULTIPLY((number)0.5, y);
    y = MULTIPLY(half, MULTIPLY_ADD(-x, MULTIPLY(y, y), (number)3));
#endif
#if ROOT >= 1
    y = MULTIPLY(y, MULTIPLY_ADD(-x, MULTIPLY(y, y), (number)3));
#endif
    return y;
#endif
}

// sums: of each target's slot. targets, sources: PLANES rows of vectors: x, y, z, charge, or in
// double precision x, y and then z, charge. groups: the jobs' lists of groups of sources, in whole
// chunks. jobs: the first group of targets, the number of these groups, the begin of the list, and
// its chunks. shifts: for each of groups, from the targets' centre to the centre of the group.
extern "C" __global__ void __launch_bounds__(BOUNDS)
    direct_sums(number *sums, const vector *targets, long long target_slots, const vector *sources,
                long long source_slots, const unsigned *groups, const uint4 *jobs
#if SHIFT
                ,
                const vector *shifts
#endif
    ) {
    __shared__ vector staged[PLANES * THREADS];
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint4 job = __ldcg(jobs + blockIdx.x);
    unsigned slot[TILE];
    point target[TILE];
    number total[TILE];
#pragma unroll
    for (int t = 0; t < TILE; t++) {
        const unsigned group = warp * TILE + t;
        slot[t] = (job.x + (group < job.y ? group : 0)) * WARP + lane;
        target[t] = loaded(targets, target_slots, slot[t]);
        total[t] = 0;
    }
    const unsigned *row = groups + job.z + warp;
    point coming = {};
    if (job.w) coming = loaded(sources, source_slots, __ldcg(row) * WARP + lane);
#if SHIFT
    const vector *of_row = shifts + job.z + warp;
    vector shift = {};
    if (job.w) shift = __ldcg(of_row);
#endif
#pragma unroll 1
    for (unsigned chunk = 0; chunk < job.w; chunk++) {
        __syncthreads();
#if SHIFT
        coming.x = SUM(coming.x, shift.x);
        coming.y = SUM(coming.y, shift.y);
        coming.z = SUM(coming.z, shift.z);
#endif
        stage(staged, coming);
        __syncthreads();
        row += WARPS;
        if (chunk + 1 < job.w) coming = loaded(sources, source_slots, __ldcg(row) * WARP + lane);
#if SHIFT
        of_row += WARPS;
        if (chunk + 1 < job.w) shift = __ldcg(of_row);
#endif
        if (warp * TILE >= job.y) continue;  // This warp has no targets.
#pragma unroll 1
        for (int pass = 0; pass < THREADS; pass += UNROLL) {
#pragma unroll
            for (int s = pass; s < pass + UNROLL; s++) {
                const vector first = staged[s];
#if DOUBLE
                const vector second = staged[THREADS + s];
                const point source = {first.x, first.y, second.x, second.y};
#else
                const point source = {first.x, first.y, first.z, first.w};
#endif
#pragma unroll
                for (int t = 0; t < TILE; t++) {
                    const number dx = SUBTRACT(target[t].x, source.x);
                    const number dy = SUBTRACT(target[t].y, source.y);
                    const number dz = SUBTRACT(target[t].z, source.z);
                    const number r2 =
                        MULTIPLY_ADD(dx, dx, MULTIPLY_ADD(dy, dy, MULTIPLY(dz, dz)));
                    total[t] = MULTIPLY_ADD(inverse_root(r2), source.charge, total[t]);
                }
            }
        }
    }
#pragma unroll
    for (int t = 0; t < TILE; t++)
        if (warp * TILE + t < job.y) {
#if ADD
            total[t] = SUM(total[t], sums[slot[t]]);
#endif
            sums[slot[t]] = total[t];
        }
}
