// What the sources of kernels/cuda/fmm need beside host.h: operations that are rounded one by one,
// and a GPU's estimates of 1 / sqrt(x).
#pragma once
#include "host.h"
#include <cfloat>
#include <cstdint>

static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dsub_rn(double x, double y) { return x - y; }
static inline double __dmul_rn(double x, double y) { return x * y; }

// Off by up to 2^-22, by a hash of the argument's bits.
static inline float root_estimate(float x) {
    if (x < FLT_MIN) return 0;
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const double off = (bits * 2654435761u) / 4294967295.0 * 2 - 1;
    return (float)((1 + off * (1.0 / (1 << 22)) * 0.75) / std::sqrt((double)x));
}

// Of the high word of the argument, rounded to a high word.
static inline double root_estimate(double x) {
    if (x < DBL_MIN) return 0;
    uint64_t bits;
    std::memcpy(&bits, &x, 8);
    bits &= ~0xffffffffull;
    std::memcpy(&x, &bits, 8);
    x = 1 / std::sqrt(x);
    std::memcpy(&bits, &x, 8);
    bits = (bits + 0x80000000ull) & ~0xffffffffull;
    std::memcpy(&x, &bits, 8);
    return x;
}
