// AVX-512 with F, BW, VL and VPOPCNTDQ: 16 floats a register, and an instruction that counts the bits of 16 words.
#pragma once

constexpr int lanes = 16;
typedef __m512 Floats;

BCNN_INLINE Floats load(const float* p) { return _mm512_loadu_ps(p); }
BCNN_INLINE void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
BCNN_INLINE Floats broadcast(float v) { return _mm512_set1_ps(v); }
BCNN_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
BCNN_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
// Keeps the order of the code: GCC 12 would put sums that are to interleave one after the other.
BCNN_INLINE Floats in_order(Floats v) {
#if !defined(BCNN_EMULATE_AVX512)
    asm volatile("" : "+v"(v));
#endif
    return v;
}
BCNN_INLINE Floats prelu(Floats v, Floats slope) {
    return _mm512_mask_mul_ps(v, _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_LT_OQ), v, slope);
}
BCNN_INLINE Floats exact_prelu(Floats v, Floats slope) { return prelu(v, slope); }
BCNN_INLINE Floats if_less(Floats a, Floats b, Floats then, Floats otherwise) {  // a < b ? then : otherwise
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), otherwise, then);
}
BCNN_INLINE Floats if_at_least(Floats a, Floats b, Floats then, Floats otherwise) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ), otherwise, then);
}
BCNN_INLINE unsigned at_least(Floats x, Floats t) { return _mm512_cmp_ps_mask(x, t, _CMP_GE_OQ); }

constexpr int group = 16, tile_pixels = 7, tile_groups = 2;
constexpr int finish_registers = 2;  // of channels that `finish` makes at a time
#include "words.h"

BCNN_INLINE Floats counts(const Wide* n) { return _mm512_cvtepi32_ps(_mm512_loadu_si512(n)); }

template <int T, int G>
BCNN_INLINE void dot(const uint8_t* bits, size_t bits_stride, const uint8_t* w, size_t w_group, Wide* out) {
    __m512i sum[T][G];
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++) sum[t][g] = _mm512_setzero_si512();
    for (size_t i = 0; i < w_group; i += 4 * group) {
        __m512i weights[G];
        for (int g = 0; g < G; g++) weights[g] = _mm512_load_si512(w + g * w_group + i);
        for (int t = 0; t < T; t++) {
            int x;
            __builtin_memcpy(&x, bits + t * bits_stride + i / group, 4);
            for (int g = 0; g < G; g++) {
                const __m512i differ = _mm512_xor_si512(_mm512_set1_epi32(x), weights[g]);
                sum[t][g] = _mm512_add_epi32(sum[t][g], _mm512_popcnt_epi32(differ));
            }
        }
    }
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++) _mm512_store_si512(out + t * kPad + g * group, sum[t][g]);
}

// For popcount_peak. `hidden`: the compiler must take it for a new value.
typedef __m512i Bits;
BCNN_INLINE Bits bits_of(uint32_t word) { return _mm512_set1_epi32(int(word)); }
BCNN_INLINE Bits count_differing(Bits sum, Bits x, Bits w) {
    return _mm512_add_epi32(sum, _mm512_popcnt_epi32(_mm512_xor_si512(x, w)));
}
BCNN_INLINE Bits hidden(Bits v) {
#if !defined(BCNN_EMULATE_AVX512)
    asm volatile("" : "+v"(v));
#endif
    return v;
}
