// NEON (AArch64): two registers of 4 floats make 8, and `cnt` counts the bits of every byte.
#pragma once

constexpr int lanes = 8;
struct Floats {
    float32x4_t a, b;
};

BCNN_INLINE Floats load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
BCNN_INLINE void store(float* p, Floats v) {
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
}
BCNN_INLINE Floats broadcast(float v) { return {vdupq_n_f32(v), vdupq_n_f32(v)}; }
BCNN_INLINE Floats add(Floats x, Floats y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
BCNN_INLINE Floats mul(Floats x, Floats y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
BCNN_INLINE Floats in_order(Floats v) { return v; }
BCNN_INLINE Floats prelu(Floats v, Floats slope) {
    const Floats scaled = mul(v, slope);
    return {vbslq_f32(vcltzq_f32(v.a), scaled.a, v.a), vbslq_f32(vcltzq_f32(v.b), scaled.b, v.b)};
}
BCNN_INLINE Floats exact_prelu(Floats v, Floats slope) { return prelu(v, slope); }
BCNN_INLINE Floats if_less(Floats a, Floats b, Floats then, Floats otherwise) {  // a < b ? then : otherwise
    return {vbslq_f32(vcltq_f32(a.a, b.a), then.a, otherwise.a), vbslq_f32(vcltq_f32(a.b, b.b), then.b, otherwise.b)};
}
BCNN_INLINE Floats larger(Floats a, Floats b) { return if_less(b, a, a, b); }  // a > b ? a : b
BCNN_INLINE Floats if_at_least(Floats a, Floats b, Floats then, Floats otherwise) {
    return {vbslq_f32(vcgeq_f32(a.a, b.a), then.a, otherwise.a), vbslq_f32(vcgeq_f32(a.b, b.b), then.b, otherwise.b)};
}
BCNN_INLINE unsigned at_least(Floats x, Floats t) {
    const uint32x4_t low = {1, 2, 4, 8}, high = {16, 32, 64, 128};
    return vaddvq_u32(vorrq_u32(vandq_u32(vcgeq_f32(x.a, t.a), low), vandq_u32(vcgeq_f32(x.b, t.b), high)));
}

constexpr int group = 8, tile_pixels = 4, tile_groups = 2;
constexpr int finish_registers = 2;                 // of channels that `finish` makes at a time
constexpr int conv_pixels = 4, conv_registers = 2;  // a tile of a dense convolution
#include "words.h"
typedef Wide Counting;

BCNN_INLINE Floats counts(const Wide* n) { return {vcvtq_f32_u32(vld1q_u32(n)), vcvtq_f32_u32(vld1q_u32(n + 4))}; }

template <int T, int G>
BCNN_INLINE void dot(const uint8_t* bits, size_t bits_stride, const uint8_t* w, size_t w_group, Wide* out, int next) {
    const int words = int(w_group / (4 * group));
    uint32x4_t total[T][2 * G];
    for (int t = 0; t < T; t++)
        for (int g = 0; g < 2 * G; g++) total[t][g] = vdupq_n_u32(0);
    for (int begin = 0; begin < words; begin += 31) {  // a byte holds 31 * 8 = 248
        const int end = begin + 31 < words ? begin + 31 : words;
        uint8x16_t sum[T][2 * G];
        for (int t = 0; t < T; t++)
            for (int g = 0; g < 2 * G; g++) sum[t][g] = vdupq_n_u8(0);
        for (int i = begin; i < end; i++) {
            uint8x16_t weights[2 * G];
            for (int g = 0; g < 2 * G; g++) weights[g] = vld1q_u8(w + g / 2 * w_group + i * 32 + g % 2 * 16);
            for (int t = 0; t < T; t++) {
                uint32_t word;
                __builtin_memcpy(&word, bits + t * bits_stride + 4 * i, 4);
                const uint8x16_t x = vreinterpretq_u8_u32(vdupq_n_u32(word));
                for (int g = 0; g < 2 * G; g++) sum[t][g] = vaddq_u8(sum[t][g], vcntq_u8(veorq_u8(x, weights[g])));
            }
        }
        for (int t = 0; t < T; t++)
            for (int g = 0; g < 2 * G; g++) total[t][g] = vpadalq_u16(total[t][g], vpaddlq_u8(sum[t][g]));
    }
    for (int t = 0; t < T; t++)
        for (int g = 0; g < 2 * G; g++) vst1q_u32(out + t * next + g * 4, total[t][g]);
}

// For popcount_peak. `hidden`: the compiler must take it for a new value.
typedef uint8x16_t Bits;
BCNN_INLINE Bits bits_of(uint32_t word) { return vreinterpretq_u8_u32(vdupq_n_u32(word)); }
BCNN_INLINE Bits count_differing(Bits sum, Bits x, Bits w) { return vaddq_u8(sum, vcntq_u8(veorq_u8(x, w))); }
BCNN_INLINE Bits hidden(Bits v) {
    asm volatile("" : "+w"(v));
    return v;
}
