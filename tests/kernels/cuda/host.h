// What the CUDA sources need to be compiled for the host: one thread for each of a block's, whose
// barriers are real, and one block after the other.
#pragma once
#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

struct dim { unsigned x, y, z; };
static thread_local dim threadIdx, blockIdx;
static dim gridDim, blockDim;
static std::barrier<> *of_block;
static inline void __syncthreads() { of_block->arrive_and_wait(); }

struct float4 { float x, y, z, w; };
struct double2 { double x, y; };
struct uint4 { unsigned x, y, z, w; };

template <class T> static inline T __ldcg(const T *at) { return *at; }
template <class T> static inline T __ldca(const T *at) { return *at; }
static inline float __fmaf_rn(float x, float y, float z) { return std::fmaf(x, y, z); }
static inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }
static inline unsigned multiply_add_halves(unsigned x, unsigned f, unsigned t) {
    unsigned result = 0;
    for (int lane = 0; lane < 2; lane++) {
        auto half = [&](unsigned word) {
            unsigned short bits = word >> (16 * lane);
            _Float16 value;
            std::memcpy(&value, &bits, 2);
            return (double)value;
        };
        _Float16 value = (_Float16)std::fma(half(x), half(f), half(t));
        unsigned short bits;
        std::memcpy(&bits, &value, 2);
        result |= (unsigned)bits << (16 * lane);
    }
    return result;
}

// Runs `body` for every thread of every block.
template <class Body> static void launch_on_host(unsigned blocks, unsigned threads, Body body) {
    gridDim = {blocks, 1, 1};
    blockDim = {threads, 1, 1};
    for (unsigned block = 0; block < blocks; block++) {
        std::barrier<> barrier(threads);
        of_block = &barrier;
        std::vector<std::thread> running;
        for (unsigned thread = 0; thread < threads; thread++)
            running.emplace_back([=] {
                threadIdx = {thread, 0, 0};
                blockIdx = {block, 0, 0};
                body();
            });
        for (auto &one : running) one.join();
    }
}
