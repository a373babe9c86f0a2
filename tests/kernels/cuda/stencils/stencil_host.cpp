// Wavefronts of prisms for the host. All that is counted is counted as it happens. Before each block
// its shared memory is filled with numbers that are none; what lies beside it must stay so.
#include "../host.h"
#include <algorithm>
#include <atomic>
#undef __shared__
#define __shared__

enum { ADDITIONS, MULTIPLICATIONS, BROUGHT_IN, WRITTEN_OUT, BARRIERS, KINDS };
static std::atomic<long long> counted[KINDS];
static void count(int kind) { counted[kind].fetch_add(1, std::memory_order_relaxed); }

#define OPERATIONS(prefix, number)                                                                 \
    static number prefix##add_rn(number x, number y) { return count(ADDITIONS), x + y; }           \
    static number prefix##sub_rn(number x, number y) { return count(ADDITIONS), x - y; }           \
    static number prefix##mul_rn(number x, number y) { return count(MULTIPLICATIONS), x * y; }
OPERATIONS(__f, float)
OPERATIONS(__d, double)

template <class T> static void bring_in(T *to, const T *from) { count(BROUGHT_IN), *to = *from; }
template <class T> static void write_out(T *to, const T *from) { count(WRITTEN_OUT), *to = *from; }
static void wait() {}
static void block_barrier() {
    if (!threadIdx.x && !threadIdx.y) count(BARRIERS);
    __syncthreads();
}
#define __syncthreads block_barrier

static constexpr int GUARD = 4096;
static std::vector<unsigned char> memory;
#define shared ((number *)(memory.data() + GUARD))
#include SOURCE
#undef __syncthreads

typedef void wavefront_of(void *, void *, int, int, long long, int, int, int);

// Runs a wavefront, from the last block to the first where `backwards`. Adds what it did to
// `counts`, after which comes how many bytes of the last block's shared memory were not written.
// Returns how many beside it were.
extern "C" long long on_host(wavefront_of *wavefront, unsigned blocks, unsigned along_1,
                             unsigned along_2, int shared_bytes, int backwards, long long *counts,
                             void *even, void *odd, int size_1, int size_2, long long line,
                             int steps, int first, int base) {
    const unsigned char none = 0xff;
    for (auto &own : counted) own = 0;
    memory.assign(shared_bytes + 2 * GUARD, none);
    auto other = [&](int from, int to) {
        return std::count_if(memory.begin() + from, memory.begin() + to,
                             [](unsigned char byte) { return byte != none; });
    };
    launch_on_host(blocks, along_1 * along_2, [=] {
        const unsigned thread = threadIdx.x, block = blockIdx.x;
        if (!thread) std::memset(memory.data() + GUARD, none, shared_bytes);
        __syncthreads();
        threadIdx = {thread % along_2, thread / along_2, 0};
        blockIdx = {backwards ? blocks - 1 - block : block, 0, 0};
        wavefront(even, odd, size_1, size_2, line, steps, first, base);
    });
    const long long outside = other(0, GUARD) + other(GUARD + shared_bytes, shared_bytes + 2 * GUARD);
    for (int kind = 0; kind < KINDS; kind++) counts[kind] += counted[kind];
    counts[KINDS] = shared_bytes - other(GUARD, GUARD + shared_bytes);
    return outside;
}
