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
BCNN_INLINE Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }  // a > b ? a : b, also of zeros
BCNN_INLINE Floats if_at_least(Floats a, Floats b, Floats then, Floats otherwise) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ), otherwise, then);
}
BCNN_INLINE unsigned at_least(Floats x, Floats t) { return _mm512_cmp_ps_mask(x, t, _CMP_GE_OQ); }

constexpr int group = 16, tile_pixels = 7, tile_groups = 2;
constexpr int finish_registers = 2;  // of channels that `finish` makes at a time
// A tile of a dense convolution: with one register of channels, its products read their number from memory by
// themselves; shared by two it would take a pipe of its own. 7 divides 224, 112, ... 7.
constexpr int conv_pixels = 7, conv_registers = 1;
#include "words.h"

BCNN_INLINE Floats counts(const Wide* n) { return _mm512_cvtepi32_ps(_mm512_loadu_si512(n)); }

// Keeps values in registers and the order of the code; the compiler must take them for new ones.
BCNN_INLINE __m512i hidden(__m512i v) {
#if !defined(BCNN_EMULATE_AVX512)
    asm volatile("" : "+v"(v));
#endif
    return v;
}
BCNN_INLINE __m512i word_of(const uint8_t* bits) {
    int x;
    __builtin_memcpy(&x, bits, 4);
    return _mm512_set1_epi32(x);
}

// n for T pixels and G groups of channels: xor, count, add.
template <int T, int G>
BCNN_INLINE void count_words(const uint8_t* bits, size_t bits_stride, const uint8_t* w, size_t w_group,
                             __m512i (&n)[T][G]) {
    const auto word = [&](size_t i, bool first) __attribute__((always_inline)) {
        __m512i weights[G];
        for (int g = 0; g < G; g++) weights[g] = _mm512_load_si512(w + g * w_group + i);
        for (int t = 0; t < T; t++) {
            const __m512i x = word_of(bits + t * bits_stride + i / group);
            for (int g = 0; g < G; g++) {
                const __m512i differing = _mm512_popcnt_epi32(_mm512_xor_si512(x, weights[g]));
                n[t][g] = hidden(first ? differing : _mm512_add_epi32(n[t][g], differing));
            }
        }
    };
    word(0, true);
    for (size_t i = 4 * group; i < w_group; i += 4 * group) word(i, false);
}

// The same in 5 instructions for two words instead of 6, and with half as many counts, of which most processors begin
// only one a cycle. Bits are added up as a column of two binary digits, `ones` and a carry:
//   1. Of the word before, one = ones ^ (x1 ^ w1), and with the next, two = one ^ (x2 ^ w2): the new ones.
//   2. The carry is 1 where two of the three terms are: where `one` is 1, exactly one of the first two was, and the carry
//      is the third, x2 ^ w2 = one ^ two = ~two; where it is 0 they were equal, and the carry is either: ones.
//   3. n = 2 * (counts of carries) + count of the last ones.
template <int T>
BCNN_INLINE void count_pairs(const uint8_t* bits, size_t bits_stride, const uint8_t* w, size_t w_group,
                             __m512i (&n)[T]) {
    __m512i ones[T];
    for (int t = 0; t < T; t++) n[t] = ones[t] = _mm512_setzero_si512();
    size_t i = 0;
    for (; i + 8 * group <= w_group; i += 8 * group) {
        const __m512i w1 = _mm512_load_si512(w + i), w2 = _mm512_load_si512(w + i + 4 * group);
        for (int t = 0; t < T; t++) {
            const uint8_t* const x = bits + t * bits_stride + i / group;
            const __m512i one = _mm512_ternarylogic_epi32(word_of(x), ones[t], w1, 0x96);
            const __m512i two = _mm512_ternarylogic_epi32(word_of(x + 4), one, w2, 0x96);
            const __m512i carry = _mm512_ternarylogic_epi32(one, two, ones[t], 0x3A);  // one ? ~two : ones
            ones[t] = hidden(two);
            n[t] = hidden(_mm512_add_epi32(n[t], _mm512_popcnt_epi32(carry)));
        }
    }
    const bool odd = i < w_group;
    for (int t = 0; t < T; t++) {
        n[t] = _mm512_add_epi32(_mm512_add_epi32(n[t], n[t]), _mm512_popcnt_epi32(ones[t]));
        if (!odd) continue;
        const __m512i x = word_of(bits + t * bits_stride + i / group);
        n[t] = _mm512_add_epi32(n[t], _mm512_popcnt_epi32(_mm512_xor_si512(x, _mm512_load_si512(w + i))));
    }
}

// Bytes of a group's weights from which pairs are counted; see `choose_counting`.
constexpr size_t least_pairs = 8 * 4 * group, no_pairs = ~size_t(0);  // with fewer than 8 words they never pay
static size_t pairs_from = least_pairs;

// Hands the counts of every pixel, G registers, to `each(t, n)`: they stay in registers until then.
template <int T, int G, class Each>
BCNN_INLINE void count_tile(const uint8_t* bits, size_t bits_stride, const uint8_t* w, size_t w_group,
                            const Each& each) {
    __m512i n[T][G];
    if (T == 1 || w_group < pairs_from) {
        count_words<T, G>(bits, bits_stride, w, w_group, n);
    } else {
        constexpr int P = T < tile_pixels ? T : tile_pixels;  // pixels at a time: each takes two registers
        for (int t0 = 0; t0 < T; t0 += P)
#pragma GCC unroll 2
            for (int g = 0; g < G; g++) {
                __m512i of_group[P];
                count_pairs<P>(bits + t0 * bits_stride, bits_stride, w + g * w_group, w_group, of_group);
                for (int t = 0; t < P; t++) n[t0 + t][g] = of_group[t];
            }
    }
#pragma GCC unroll 16
    for (int t = 0; t < T; t++) each(t, n[t]);
}

// Which way is faster depends on the core. Where two of these instructions start a cycle it is pairs (Ice Lake, Zen 4);
// where four do, but only two that read three registers or count, it is words (Zen 5). So both are timed, once. `way`:
// "words" or "pairs" decides it, for tests of both on any core.
static void choose_counting(const char* way) {
    constexpr int words = 16, turns = 200;  // some 0.1 ms
    constexpr size_t w_group = words * 4 * group;
    alignas(64) uint8_t w[2 * w_group] = {}, bits[tile_pixels * words * 4] = {};
    uint64_t least[2] = {~uint64_t(0), ~uint64_t(0)};
    if (way) least[way[0] == 'p'] = 0;
    for (int i = 0; i < turns && !way; i++)
        for (int pairs = 0; pairs < 2; pairs++) {
            pairs_from = pairs ? least_pairs : no_pairs;
            const uint64_t begin = __builtin_ia32_rdtsc();
            for (int again = 0; again < 4; again++)
                count_tile<tile_pixels, 2>(bits, words * 4, w, w_group,
                                           [](int, const __m512i* n)
                                               __attribute__((always_inline)) { hidden(n[0]), hidden(n[1]); });
            const uint64_t took = __builtin_ia32_rdtsc() - begin;
            if (took < least[pairs]) least[pairs] = took;
        }
    pairs_from = least[1] < least[0] ? least_pairs : no_pairs;
}

// Counts never leave registers: what follows is done with them there. `each(t, counts)` for T pixels, V registers each.
struct Counting {
    template <int T, int V, class Each>
    BCNN_INLINE void each(const uint8_t* bits, size_t bits_stride, const uint8_t* w, size_t w_group, const Each& each) {
        count_tile<T, V>(bits, bits_stride, w, w_group, [&](int t, const __m512i* n) __attribute__((always_inline)) {
            Floats of[V];
            for (int j = 0; j < V; j++) of[j] = _mm512_cvtepi32_ps(n[j]);
            each(t, of);
        });
    }
};
template <int T, int G>
BCNN_INLINE void dot(const uint8_t* bits, size_t bits_stride, const uint8_t* w, size_t w_group, Wide* out, int next) {
    count_tile<T, G>(bits, bits_stride, w, w_group, [&](int t, const __m512i* n) __attribute__((always_inline)) {
        for (int g = 0; g < G; g++) _mm512_store_si512(out + t * next + g * group, n[g]);
    });
}

// For popcount_peak.
typedef __m512i Bits;
BCNN_INLINE Bits bits_of(uint32_t word) { return _mm512_set1_epi32(int(word)); }
BCNN_INLINE Bits count_differing(Bits sum, Bits x, Bits w) {
    return _mm512_add_epi32(sum, _mm512_popcnt_epi32(_mm512_xor_si512(x, w)));
}
