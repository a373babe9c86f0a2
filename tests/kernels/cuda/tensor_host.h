// The numbers of tensor cores for the host: item `i` of a word of 32 bits, by NUMBER.
#pragma once
#include "host.h"

#if NUMBER == 0
constexpr int ITEMS = 1;
static inline double item(double word, int) { return word; }
#elif NUMBER == 3
constexpr int ITEMS = 4;
static inline double item(unsigned word, int i) {
    const unsigned bits = word >> (8 * i) & 255, exponent = bits >> 3 & 15, mantissa = bits & 7;
    const double size = exponent ? std::ldexp(8 + mantissa, (int)exponent - 10)
                                 : std::ldexp(mantissa, -9);
    return bits & 128 ? -size : size;
}
#else
constexpr int ITEMS = 2;
static inline double item(unsigned word, int i) {
    const unsigned short bits = word >> (16 * i);
#if NUMBER == 1
    _Float16 value;
    std::memcpy(&value, &bits, 2);
#else
    const unsigned whole = (unsigned)bits << 16;
    float value;
    std::memcpy(&value, &whole, 4);
#endif
    return value;
}
#endif
