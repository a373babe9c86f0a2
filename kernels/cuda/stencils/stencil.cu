// One wavefront of a stencil over time, in hexagonal tiles: kernels/cuda/stencils/stencil.py.
//
// Each block computes a prism: a hexagon of steps and points of the first axis, along the whole
// second axis. A row of the hexagon is a step; a column is a point of the second axis. The block
// goes through the prism in pieces of TILE_2 columns, one after the other. In each row a piece
// begins one column before its begin in the previous row, so that the values it needs from the
// previous piece are already in shared memory. A stencil of one axis runs as one of two axes; its
// second axis has one point and no neighbours.
//
// Shared memory holds two steps, HEIGHT points of the first axis by WIDTH columns. A value
// overwrites the value of two steps before, which is no longer needed. In a prism of more than
// WIDTH columns, a column replaces the column WIDTH before it.
//
// STENCIL: the index of its name in CODES of stencil.py. DOUBLE: whether numbers have 64 bits.
// TILE_T, TILE_1: steps of a tile and points of its first row. WRAPS: whether a prism has more than
// WIDTH columns, fixed ones included. THREADS_1, THREADS_2: threads of a block along the two axes.

#if DOUBLE
typedef double number;
#define ADD(x, y) __dadd_rn(x, y)
#define SUB(x, y) __dsub_rn(x, y)
#define MUL(x, y) __dmul_rn(x, y)
#else
typedef float number;
#define ADD(x, y) __fadd_rn(x, y)
#define SUB(x, y) __fsub_rn(x, y)
#define MUL(x, y) __fmul_rn(x, y)
#endif

#define AXES (STENCIL == 0 ? 1 : 2)
#define HALF (TILE_T / 2)
#define PITCH (2 * TILE_1 + TILE_T - 2)
#define HEIGHT (TILE_1 + TILE_T)
#define BORDER (AXES - 1)

#ifdef __CUDACC__
extern __shared__ number shared[];

// Copies a number from global to shared memory, without a register where the GPU can do so.
// `wait` waits for all copies of this thread.
__device__ __forceinline__ void bring_in(number *to, const number *from) {
#if __CUDA_ARCH__ >= 800
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                 :
                 : "r"(place), "l"(from), "n"(sizeof(number))
                 : "memory");
#else
    *to = *from;
#endif
}
__device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
__device__ __forceinline__ void write_out(number *to, const number *from) { *to = *from; }
#endif

// The range from `low` up to, not including, `high`.
struct range {
    int low, high;
};

// The problem, the tile of a block, and its current piece.
struct place {
    int size_1, size_2, steps;
    long long line;  // distance in numbers between neighbouring points along the first axis
    int first, left; // the step of the tile's first row, and the first point of that row
    int piece, turn; // the piece, and where its first row's first column lies in shared memory
};

__device__ __forceinline__ int at_most(int x, int most) { return x < most ? x : most; }
__device__ __forceinline__ int at_least(int x, int least) { return x > least ? x : least; }

// The points of a row of the tile that lie in the grid; for a missing row or step an empty range
// that touches no border.
__device__ __forceinline__ range points(const place &at, int row) {
    const int out = at_most(row, TILE_T - 1 - row), step = at.first + row;
    const int low = at_least(at.left - out, 0);
    const int high = at_most(at.left + TILE_1 + out, at.size_1);
    const bool there = out >= 0 && step >= 1 && step <= at.steps && low < high;
    return there ? range{low, high} : range{-1, -1};
}

// The columns of a row of the piece that lie in the grid.
__device__ __forceinline__ range columns(const place &at, int row) {
    if (AXES == 1) return {0, 1};
    const int left = at.piece * TILE_2 - row;
    return {at_least(left, 0), at_most(left + TILE_2, at.size_2)};
}

// The position of a column in shared memory.
__device__ __forceinline__ int column_place(const place &at, int column) {
#if WRAPS
    const int turned = at.turn + column - at.piece * TILE_2;
    return turned < 0 ? turned + WIDTH : turned >= WIDTH ? turned - WIDTH : turned;
#else
    return column + BORDER;
#endif
}

// The position of a point of the first axis in the shared memory of a step.
__device__ __forceinline__ int point_place(const place &at, int step, int point) {
    return ((step & 1) * HEIGHT + point - at.left + HALF) * WIDTH;
}

// Calls `body(point, column)` for the points of `all` that are not in `but`, and for each column.
// The threads of the block share the calls.
template <class Body>
__device__ __forceinline__ void for_each(range all, range but, range of_columns, Body body) {
    const int begin = at_most(at_least(but.low, all.low), all.high);
    const int end = at_most(at_least(but.high, begin), all.high);
    const int count = all.high - all.low - (end - begin);
#pragma unroll 1
    for (int c = of_columns.low + threadIdx.x; c < of_columns.high; c += THREADS_2) {
#pragma unroll 1
        for (int i = threadIdx.y; i < count; i += THREADS_1) {
            const int point = all.low + i;
            body(point < begin ? point : point + (end - begin), c);
        }
    }
}

// Loads the values of the previous step that a row of a piece needs and the prism did not compute.
__device__ __forceinline__ void load(const place &at, const number *grid, int row) {
    const range own = points(at, row), older = points(at, row - 2), across = columns(at, row);
    const int step = at.first + row - 1;
    auto body = [&](int point, int column) {
        bring_in(shared + point_place(at, step, point) + column_place(at, column),
                 grid + (point + 1) * at.line + column + BORDER);
    };
    // The previous piece has loaded the column at the left and the next one; the row of two steps
    // before has loaded the fixed border values.
    const int left = across.low ? across.low + 1 : 0;
    const int right = at_most(across.high + 1, at.size_2);
    const int low = own.low == 0 && older.low == 0 ? 0 : own.low - 1;
    const int high =
        own.high == at.size_1 && older.high == at.size_1 ? at.size_1 : own.high + 1;
    for_each({low, high}, points(at, row - 1), {left, right}, body);
#if STENCIL
    if (across.low == 0) for_each(own, older, {-1, 0}, body);
    if (across.high == at.size_2) for_each(own, older, {right, right + 1}, body);
#endif
}

// The next value of a point c with neighbours n, s along the first axis, and w, e along the second.
__device__ __forceinline__ number result(number c, number n, number s, number w, number e) {
#if STENCIL == 0
    return MUL((number)(1.0 / 3.0), ADD(ADD(n, c), s));
#elif STENCIL == 1
    return MUL((number)0.2, ADD(ADD(ADD(ADD(c, n), s), w), e));
#elif STENCIL == 2
    const number twice = MUL((number)2.0, c), eighth = (number)0.125;
    const number one = ADD(c, MUL(eighth, ADD(SUB(n, twice), s)));
    return ADD(one, MUL(eighth, ADD(SUB(w, twice), e)));
#elif STENCIL == 3
    const number around = ADD(ADD(n, s), ADD(w, e));
    return ADD(MUL((number)0.5, c), MUL((number)0.125, around));
#else
    const number dn = SUB(n, c), ds = SUB(s, c), dw = SUB(w, c), de = SUB(e, c);
    const number squares = ADD(ADD(MUL(dn, dn), MUL(ds, ds)), ADD(MUL(dw, dw), MUL(de, de)));
    return ADD(ADD((number)0.25, MUL((number)0.5, c)), MUL((number)0.0625, squares));
#endif
}

// Computes a row of a piece.
__device__ __forceinline__ void compute(const place &at, int row) {
    const range own = points(at, row), across = columns(at, row);
    const int step = at.first + row;
#pragma unroll 1
    for (int c = across.low + threadIdx.x; c < across.high; c += THREADS_2) {
        const number *const old = shared + point_place(at, step - 1, own.low);
        number *const now = shared + point_place(at, step, own.low);
        const int middle = column_place(at, c);
        const int west = AXES == 1 ? 0 : column_place(at, c - 1);
        const int east = AXES == 1 ? 0 : column_place(at, c + 1);
#pragma unroll 1
        for (int i = threadIdx.y; i < own.high - own.low; i += THREADS_1) {
            const number *const line = old + i * WIDTH;
            now[i * WIDTH + middle] =
                result(line[middle], line[middle - WIDTH], line[middle + WIDTH], line[west],
                       line[east]);
        }
    }
}

// Writes the points of a row of a piece that other tiles or the next iteration need.
__device__ __forceinline__ void store(const place &at, number *grid, int row) {
    const range own = points(at, row), next = points(at, row + 1);
    range kept = {own.high, own.high};
    if (next.low < next.high) {
        kept.low = next.low ? next.low + 1 : 0;
        kept.high = next.high < at.size_1 ? next.high - 1 : at.size_1;
    }
    const int step = at.first + row;
    for_each(own, kept, columns(at, row), [&](int point, int column) {
        write_out(grid + (point + 1) * at.line + column + BORDER,
                  shared + point_place(at, step, point) + column_place(at, column));
    });
}

// `even`, `odd`: the grids of even and odd steps, with their fixed borders; an iteration begins at
// step 0. `first`: the step of the first row of all tiles. `base`: the first point of the first
// tile's first row.
extern "C" __global__ void __launch_bounds__(THREADS_1 * THREADS_2)
    wavefront(number *even, number *odd, int size_1, int size_2, long long line, int steps,
              int first, int base) {
    place at = {size_1, size_2, steps, line, first, base + (int)blockIdx.x * PITCH, 0, BORDER};
    const int pieces = (size_2 + TILE_T - 2) / TILE_2 + 1;
#pragma unroll 1
    for (; at.piece < pieces; at.piece++) {
        bool any = false;
#pragma unroll 1
        for (int row = 0; row < TILE_T; row++) {
            const range own = points(at, row), across = columns(at, row);
            if (own.low >= own.high || across.low >= across.high) continue;
            any = true;
            load(at, (first + row) & 1 ? even : odd, row);
        }
        if (any) {
            wait();
            __syncthreads();
#pragma unroll 1
            for (int row = 0; row < TILE_T; row++) {
                const range own = points(at, row), across = columns(at, row);
                if (own.low >= own.high || across.low >= across.high) continue;
                compute(at, row);
                __syncthreads();
            }
#pragma unroll 1
            for (int row = 0; row < TILE_T; row++) store(at, (first + row) & 1 ? odd : even, row);
            __syncthreads();
        }
#if WRAPS
        at.turn += at.turn + TILE_2 < WIDTH ? TILE_2 : TILE_2 - WIDTH;
#endif
    }
}
