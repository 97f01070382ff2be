// AVX-512BW: 32 numbers of 16 bits a register, a whole line.
#pragma once

constexpr int short_lanes = 32;
typedef __m512i Shorts;

BCNN_INLINE Shorts load(const int16_t* p) { return _mm512_loadu_si512(p); }
BCNN_INLINE void store(int16_t* p, Shorts v) { _mm512_storeu_si512(p, v); }
BCNN_INLINE Shorts broadcast_short(int value) { return _mm512_set1_epi16(short(value)); }
BCNN_INLINE Shorts product(Shorts a, Shorts b) { return _mm512_mulhrs_epi16(a, b); }
BCNN_INLINE Shorts plus(Shorts a, Shorts b) { return _mm512_adds_epi16(a, b); }
BCNN_INLINE Shorts add(Shorts a, Shorts b) { return _mm512_add_epi16(a, b); }
BCNN_INLINE Shorts subtract(Shorts a, Shorts b) { return _mm512_sub_epi16(a, b); }
BCNN_INLINE Shorts smaller(Shorts a, Shorts b) { return _mm512_min_epi16(a, b); }
BCNN_INLINE Shorts larger(Shorts a, Shorts b) { return _mm512_max_epi16(a, b); }
BCNN_INLINE Shorts both_bits(Shorts a, Shorts b) { return _mm512_and_si512(a, b); }
BCNN_INLINE Shorts either_bits(Shorts a, Shorts b) { return _mm512_or_si512(a, b); }
BCNN_INLINE Shorts differing_bits(Shorts a, Shorts b) { return _mm512_xor_si512(a, b); }
typedef __m512i Amount;  // of a shift, made once: by lanes, since shifts by one number for all take two instructions
BCNN_INLINE Amount amount(int bits) { return _mm512_set1_epi16(short(bits)); }
BCNN_INLINE Shorts shift_up(Shorts a, Amount bits) { return _mm512_sllv_epi16(a, bits); }
BCNN_INLINE Shorts shift_down(Shorts a, Amount bits) { return _mm512_srav_epi16(a, bits); }
BCNN_INLINE Shorts if_above(Shorts a, Shorts b, Shorts then, Shorts otherwise) {
    return _mm512_mask_blend_epi16(_mm512_cmpge_epi16_mask(b, a), then, otherwise);
}
BCNN_INLINE Shorts in_order(Shorts v) {
#if !defined(BCNN_EMULATE_AVX512)
    asm volatile("" : "+v"(v));
#endif
    return v;
}
BCNN_INLINE unsigned above(Shorts x, Shorts t) { return ~unsigned(_mm512_cmpge_epi16_mask(t, x)); }

// Counts of a line, two groups, narrowed to 16 bits by one instruction, which takes four from one and four from the
// other by turns: dot_place undoes it.
typedef uint16_t ShortCount;
constexpr int short_groups = 2;
static int dot_place(int channel) {
    const int in = channel % kShortLine;
    return channel - in + in % 8 / 4 * group + in / 8 * 4 + in % 4;
}
struct ShortCounting {
    template <int T, class Each>
    BCNN_INLINE void each(const uint8_t* bits, size_t bits_stride, const uint8_t* w, size_t w_group, const Each& each) {
        count_tile<T, short_groups>(bits, bits_stride, w, w_group,
                                    [&](int t, const __m512i* n)
                                        __attribute__((always_inline)) { each(t, _mm512_packus_epi32(n[0], n[1])); });
    }
};
BCNN_INLINE Shorts count_shorts(const ShortCount* n) { return _mm512_load_si512(n); }

constexpr int int_lanes = 16;
typedef __m512i Ints;
typedef __m512i Pair;
BCNN_INLINE Ints load_ints(const int32_t* p) { return _mm512_loadu_si512(p); }
BCNN_INLINE Shorts narrow(Ints a, Ints b, const int32_t* down) {  // each >> its down, saturated
    const __m512i both =
        _mm512_packs_epi32(_mm512_srav_epi32(a, load_ints(down)), _mm512_srav_epi32(b, load_ints(down + int_lanes)));
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), both);  // quarters of a, then of b
}
BCNN_INLINE Pair load_pair(const int16_t* p) {
    int both;
    __builtin_memcpy(&both, p, 4);
    return _mm512_set1_epi32(both);
}
BCNN_INLINE Ints add_products(Ints sum, Pair x, const int16_t* w) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(x, load(w)));
}
BCNN_INLINE Ints add_products(Ints sum, Pair x, const int8_t* w) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(x, _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)w))));
}

#include "words_shorts.h"
