// No intrinsics: arrays of 8 that any C++ compiler handles. The one that every machine has.
#pragma once

constexpr int lanes = 8;
struct Floats {
    float v[lanes];
};

BCNN_INLINE Floats load(const float* p) {
    Floats r;
    for (int i = 0; i < lanes; i++) r.v[i] = p[i];
    return r;
}
BCNN_INLINE void store(float* p, Floats a) {
    for (int i = 0; i < lanes; i++) p[i] = a.v[i];
}
BCNN_INLINE Floats broadcast(float a) {
    Floats r;
    for (int i = 0; i < lanes; i++) r.v[i] = a;
    return r;
}
BCNN_INLINE Floats add(Floats a, Floats b) {
    for (int i = 0; i < lanes; i++) a.v[i] += b.v[i];
    return a;
}
BCNN_INLINE Floats mul(Floats a, Floats b) {
    for (int i = 0; i < lanes; i++) a.v[i] *= b.v[i];
    return a;
}
BCNN_INLINE Floats in_order(Floats a) { return a; }
BCNN_INLINE Floats prelu(Floats a, Floats slope) {
    for (int i = 0; i < lanes; i++) a.v[i] = a.v[i] >= 0 ? a.v[i] : slope.v[i] * a.v[i];
    return a;
}
BCNN_INLINE Floats exact_prelu(Floats v, Floats slope) { return prelu(v, slope); }
BCNN_INLINE Floats if_less(Floats a, Floats b, Floats then, Floats otherwise) {  // a < b ? then : otherwise
    for (int i = 0; i < lanes; i++) a.v[i] = a.v[i] < b.v[i] ? then.v[i] : otherwise.v[i];
    return a;
}
BCNN_INLINE Floats larger(Floats a, Floats b) { return if_less(b, a, a, b); }  // a > b ? a : b
BCNN_INLINE Floats if_at_least(Floats a, Floats b, Floats then, Floats otherwise) {
    for (int i = 0; i < lanes; i++) a.v[i] = a.v[i] >= b.v[i] ? then.v[i] : otherwise.v[i];
    return a;
}
BCNN_INLINE unsigned at_least(Floats x, Floats t) {
    unsigned mask = 0;
    for (int i = 0; i < lanes; i++) mask |= unsigned(x.v[i] >= t.v[i]) << i;
    return mask;
}

constexpr int group = 8, tile_pixels = 4, tile_groups = 1;
constexpr int finish_registers = 2;                 // of channels that `finish` makes at a time
constexpr int conv_pixels = 4, conv_registers = 2;  // a tile of a dense convolution
#include "words.h"
typedef Wide Counting;

BCNN_INLINE Floats counts(const Wide* n) {
    Floats r;
    for (int i = 0; i < lanes; i++) r.v[i] = float(int32_t(n[i]));
    return r;
}

BCNN_INLINE uint32_t popcount(uint32_t v) {
    v -= v >> 1 & 0x55555555u;
    v = (v & 0x33333333u) + (v >> 2 & 0x33333333u);
    v = (v + (v >> 4)) & 0x0F0F0F0Fu;
    return v * 0x01010101u >> 24;
}

template <int T, int G>
BCNN_INLINE void dot(const uint8_t* bits, size_t bits_stride, const uint8_t* w, size_t w_group, Wide* out, int next) {
    const size_t words = w_group / (4 * group);
    for (int t = 0; t < T; t++) {
        uint32_t sum[group] = {};
        for (size_t i = 0; i < words; i++) {
            uint32_t x, row[group];
            __builtin_memcpy(&x, bits + t * bits_stride + 4 * i, 4);
            __builtin_memcpy(row, w + i * sizeof row, sizeof row);
            for (int c = 0; c < group; c++) sum[c] += popcount(x ^ row[c]);
        }
        for (int c = 0; c < group; c++) out[t * next + c] = sum[c];
    }
}

// For popcount_peak. `hidden`: the compiler must take it for a new value.
struct Bits {
    uint32_t v[group];
};
BCNN_INLINE Bits bits_of(uint32_t word) {
    Bits r;
    for (int i = 0; i < group; i++) r.v[i] = word;
    return r;
}
BCNN_INLINE Bits count_differing(Bits sum, Bits x, Bits w) {
    for (int i = 0; i < group; i++) sum.v[i] += popcount(x.v[i] ^ w.v[i]);
    return sum;
}
BCNN_INLINE Bits hidden(Bits b) {
    asm volatile("" : "+m"(b));
    return b;
}
