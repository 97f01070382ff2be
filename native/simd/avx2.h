// AVX2: 8 floats a register, and binary dot products by table.
//
// Popcount has no instruction here. With channels in bytes, `vpshufb` counts four bits of 32 channels at once:
//   1. n = popcount(x ^ w) summed over nibbles (4 bits) of x and w.
//   2. For one nibble x, popcount(x ^ w) as a function of w is a table of 16 bytes.
//   3. `vpshufb` looks up 32 channels' nibbles w in that table: no xor, no mask, no shift; one addition sums it up.
// That is 2 instructions for 128 binary MACs; xor + nibble popcount needs 4. So weights are stored a nibble a byte,
// [group of 32][nibble][32], and bits of a map as the table's offset, 16 * nibble, a byte each.
#pragma once

#define BCNN_INLINE static inline __attribute__((always_inline))

constexpr int lanes = 8;
typedef __m256 Floats;

BCNN_INLINE Floats load(const float* p) { return _mm256_loadu_ps(p); }
BCNN_INLINE void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
BCNN_INLINE Floats broadcast(float v) { return _mm256_set1_ps(v); }
BCNN_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
BCNN_INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
BCNN_INLINE Floats prelu(Floats v, Floats slope) { return _mm256_blendv_ps(v, _mm256_mul_ps(v, slope), v); }
BCNN_INLINE unsigned at_least(Floats x, Floats t) {
    return unsigned(_mm256_movemask_ps(_mm256_cmp_ps(x, t, _CMP_GE_OQ)));
}

// Two nibbles as table offsets: 0xHL -> bytes 0xL0, 0xH0.
struct Nibbles {
    uint16_t of[256];
    constexpr Nibbles() : of() {
        for (unsigned m = 0; m < 256; m++) of[m] = uint16_t((m & 15) << 4 | (m & 0xF0) << 8);
    }
};
static constexpr Nibbles nibbles;
struct alignas(64) Tables {
    uint8_t of[16][16];
    constexpr Tables() : of() {
        for (int x = 0; x < 16; x++)
            for (int w = 0; w < 16; w++)
                for (int b = 0; b < 4; b++) of[x][w] = uint8_t(of[x][w] + (((x ^ w) >> b) & 1));
    }
};
static constexpr Tables tables;

constexpr int group = 32, tile_pixels = 4, tile_groups = 2;
typedef uint8_t Narrow;   // counts fit a byte
typedef uint16_t Wide;
constexpr int put_bytes = 2;  // of bits of one register
constexpr int narrow_limit = 252;

BCNN_INLINE size_t bits_bytes(int k) { return size_t((k + 7) / 8) * 2; }
BCNN_INLINE size_t weight_bytes(int k) { return bits_bytes(k) * group; }
BCNN_INLINE void put_bits(uint8_t* bits, int vector, unsigned mask) {
    __builtin_memcpy(bits + vector * 2, &nibbles.of[mask], 2);
}

// Wide counts are made from even and odd bytes; this order of channels in a group's bytes makes both come out in order.
BCNN_INLINE int byte_of(int channel, bool narrow) {
    return narrow ? channel : channel < 16 ? 2 * channel : 2 * (channel - 16) + 1;
}
static void pack_weight(const uint32_t* weight, int o, int k, uint8_t* out) {
    const int words = (k + 31) / 32, count = int(bits_bytes(k));
    const bool narrow = k <= narrow_limit;
    for (int c = 0; c < o; c++) {
        uint8_t* to = out + size_t(c / group) * weight_bytes(k) + byte_of(c % group, narrow);
        const uint32_t* from = weight + size_t(c) * words;
        for (int i = 0; i < count; i++) to[size_t(i) * group] = uint8_t(from[i / 8] >> (i % 8 * 4) & 15);
    }
}

BCNN_INLINE Floats counts(const Narrow* n) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)n)));
}
BCNN_INLINE Floats counts(const Wide* n) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)n)));
}

template <int T, int G>
BCNN_INLINE void dot_bytes(const uint8_t* bits, size_t bits_stride, const uint8_t* w, size_t w_group, int begin, int end,
                           __m256i (&sum)[T][G]) {
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++) sum[t][g] = _mm256_setzero_si256();
    for (int i = begin; i < end; i++) {
        __m256i weights[G];
        for (int g = 0; g < G; g++) weights[g] = _mm256_load_si256((const __m256i*)(w + g * w_group + i * group));
        for (int t = 0; t < T; t++) {
            const uint8_t* at = &tables.of[0][0] + bits[t * bits_stride + i];
            const __m256i table = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i*)at));
            for (int g = 0; g < G; g++)
                sum[t][g] = _mm256_add_epi8(sum[t][g], _mm256_shuffle_epi8(table, weights[g]));
        }
    }
}

// n for T pixels and G groups of channels; out [T][kPad]
template <int T, int G>
BCNN_INLINE void dot(const uint8_t* bits, size_t bits_stride, const uint8_t* w, size_t w_group, Narrow* out) {
    __m256i sum[T][G];
    dot_bytes<T, G>(bits, bits_stride, w, w_group, 0, int(w_group / group), sum);
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++) _mm256_store_si256((__m256i*)(out + t * kPad + g * group), sum[t][g]);
}
template <int T, int G>
BCNN_INLINE void dot(const uint8_t* bits, size_t bits_stride, const uint8_t* w, size_t w_group, Wide* out) {
    const int count = int(w_group / group);
    const int parts = (count + 62) / 63;  // a byte holds 63 * 4 = 252
    for (int part = 0; part < parts; part++) {
        __m256i sum[T][G];
        dot_bytes<T, G>(bits, bits_stride, w, w_group, count * part / parts, count * (part + 1) / parts, sum);
        for (int t = 0; t < T; t++)
            for (int g = 0; g < G; g++) {
                __m256i* to = (__m256i*)(out + t * kPad + g * group);
                __m256i even = _mm256_and_si256(sum[t][g], _mm256_set1_epi16(255));
                __m256i odd = _mm256_srli_epi16(sum[t][g], 8);
                if (part) {
                    even = _mm256_add_epi16(even, _mm256_load_si256(to));
                    odd = _mm256_add_epi16(odd, _mm256_load_si256(to + 1));
                }
                _mm256_store_si256(to, even);
                _mm256_store_si256(to + 1, odd);
            }
    }
}
