// AVX2: 16 numbers of 16 bits a register. `vpmulhrsw` is R; it shares two of four pipes with `vpaddsw`, so sums that
// provably fit are `vpaddw`.
#pragma once

constexpr int short_lanes = 16;
typedef __m256i Shorts;

BCNN_INLINE Shorts load(const int16_t* p) { return _mm256_loadu_si256((const __m256i*)p); }
BCNN_INLINE void store(int16_t* p, Shorts v) { _mm256_storeu_si256((__m256i*)p, v); }
BCNN_INLINE Shorts broadcast_short(int value) { return _mm256_set1_epi16(short(value)); }
BCNN_INLINE Shorts product(Shorts a, Shorts b) { return _mm256_mulhrs_epi16(a, b); }
BCNN_INLINE Shorts plus(Shorts a, Shorts b) { return _mm256_adds_epi16(a, b); }
BCNN_INLINE Shorts add(Shorts a, Shorts b) { return _mm256_add_epi16(a, b); }
BCNN_INLINE Shorts subtract(Shorts a, Shorts b) { return _mm256_sub_epi16(a, b); }
BCNN_INLINE Shorts smaller(Shorts a, Shorts b) { return _mm256_min_epi16(a, b); }
BCNN_INLINE Shorts larger(Shorts a, Shorts b) { return _mm256_max_epi16(a, b); }
BCNN_INLINE Shorts both_bits(Shorts a, Shorts b) { return _mm256_and_si256(a, b); }
BCNN_INLINE Shorts either_bits(Shorts a, Shorts b) { return _mm256_or_si256(a, b); }
BCNN_INLINE Shorts differing_bits(Shorts a, Shorts b) { return _mm256_xor_si256(a, b); }
typedef __m128i Amount;  // of a shift, made once
BCNN_INLINE Amount amount(int bits) { return _mm_cvtsi32_si128(bits); }
BCNN_INLINE Shorts shift_up(Shorts a, Amount bits) { return _mm256_sll_epi16(a, bits); }
BCNN_INLINE Shorts shift_down(Shorts a, Amount bits) { return _mm256_sra_epi16(a, bits); }
BCNN_INLINE Shorts if_above(Shorts a, Shorts b, Shorts then, Shorts otherwise) {
    return _mm256_blendv_epi8(otherwise, then, _mm256_cmpgt_epi16(a, b));
}
BCNN_INLINE Shorts in_order(Shorts v) {
    asm volatile("" : "+x"(v));
    return v;
}
BCNN_INLINE unsigned above(Shorts x, Shorts t) {
    const __m256i bytes = _mm256_packs_epi16(_mm256_cmpgt_epi16(x, t), _mm256_setzero_si256());
    return unsigned(_mm256_movemask_epi8(_mm256_permute4x64_epi64(bytes, 0x08)));
}

constexpr int int_lanes = 8;
typedef __m256i Ints;
typedef __m256i Pair;
BCNN_INLINE Ints load_ints(const int32_t* p) { return _mm256_loadu_si256((const __m256i*)p); }
BCNN_INLINE Shorts narrow(Ints a, Ints b, const int32_t* down) {  // each >> its down, saturated
    const __m256i both =
        _mm256_packs_epi32(_mm256_srav_epi32(a, load_ints(down)), _mm256_srav_epi32(b, load_ints(down + int_lanes)));
    return _mm256_permute4x64_epi64(both, 0xD8);  // halves of a, then of b
}
BCNN_INLINE Pair load_pair(const int16_t* p) {
    int both;
    __builtin_memcpy(&both, p, 4);
    return _mm256_set1_epi32(both);
}
BCNN_INLINE Ints add_products(Ints sum, Pair x, const int16_t* w) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, load(w)));
}
BCNN_INLINE Ints add_products(Ints sum, Pair x, const int8_t* w) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)w))));
}

// --- bits ------------------------------------------------------------------------------------------------------------

static int short_count_place(int channel) { return byte_of(channel, false); }
static size_t short_bits_bytes(int words) { return size_t(words) * 16; }
static size_t short_weight_bytes(int words) { return weight_bytes(32 * words); }

// short_sign_pack leaves the nibbles of 64 channels in this order, of 32 in the order of the even eights.
BCNN_INLINE int short_place(int nibble, int of) {
    constexpr int place[8] = {0, 1, 8, 9, 2, 3, 10, 11};
    return of == 16 ? place[nibble % 8] + nibble / 8 * 4 : place[nibble] % 8 + place[nibble] / 8 * 4;
}

// x > limit of a block of pixels, as offsets of tables. An odd last pixel is paired with itself.
//   1. Comparisons of a pixel and 32 channels, narrowed to bytes that are 0 or -1.
//   2. `vpmaddubsw` by 1, 2, 4, 8 for the first pixel and 16, 32, 64, 128 for the second adds up two neighbours,
//      `vpmaddwd` by -16 the two sums: 16 times the number of the table, in 32 bits.
//   3. Two such registers are narrowed to one.
template <int count>  // lines of channels: 1 or 2
static void short_sign_pack_64(const int16_t* x, int pixels, const ptrdiff_t* at, const int16_t* limit, uint8_t* bits,
                               size_t bytes) {
    const __m256i first = _mm256_set1_epi32(0x08040201), second = _mm256_set1_epi32(int(0x80402010));
    const __m256i scale = _mm256_set1_epi16(-16);
    Shorts t[2 * count];
    for (int j = 0; j < 2 * count; j++) t[j] = load(limit + j * short_lanes);
    for (int p = 0; p < pixels; p += 2, bits += bytes) {
        const int16_t *a = x + size_t(p) * kShortLine, *b = p + 1 < pixels ? a + kShortLine : a;
        __m256i offsets[count];
        for (int i = 0; i < count; i++) {
            const ptrdiff_t one = at[2 * i], other = at[2 * i + 1];
            const __m256i of_a = _mm256_packs_epi16(_mm256_cmpgt_epi16(load(a + one), t[2 * i]),
                                                    _mm256_cmpgt_epi16(load(a + other), t[2 * i + 1]));
            const __m256i of_b = _mm256_packs_epi16(_mm256_cmpgt_epi16(load(b + one), t[2 * i]),
                                                    _mm256_cmpgt_epi16(load(b + other), t[2 * i + 1]));
            const __m256i sums =
                _mm256_add_epi16(_mm256_maddubs_epi16(first, of_a), _mm256_maddubs_epi16(second, of_b));
            offsets[i] = _mm256_madd_epi16(sums, scale);
        }
        const __m256i all = _mm256_packus_epi32(offsets[0], offsets[count - 1]);
        if (count == 2)
            _mm256_storeu_si256((__m256i*)bits, all);
        else
            _mm_storeu_si128((__m128i*)bits, _mm256_castsi256_si128(_mm256_permute4x64_epi64(all, 0x08)));
    }
}

static void short_sign_pack(const int16_t* x, int pixels, View v, const int16_t* limit, uint8_t* bits, size_t bytes) {
    const int words = int(bytes / 16);
    for (int i = 0, c = 0; i < words; i += 2) {
        ptrdiff_t at[4];
        for (int j = 0; j < 4; j++, c = wrapped(c + short_lanes, v.period)) at[j] = place_of<int16_t>(v, c);
        const auto pack = i + 1 < words ? short_sign_pack_64<2> : short_sign_pack_64<1>;
        pack(x, pixels, at, limit + i * 32, bits + i * 16, bytes);
    }
}

static void pack_short_weight(const uint32_t* weight, int o, int words, uint8_t* out) {
    for (int c = 0; c < o; c++) {
        uint8_t* to = out + size_t(c / group) * short_weight_bytes(words) + byte_of(c % group, false);
        for (int i = 0; i < 8 * words; i++) {
            const int of = words - i / 16 * 2 < 2 ? 8 : 16;
            to[size_t(i / 16 * 16 + short_place(i % 16, of)) * group] =
                uint8_t(weight[size_t(c) * size_t(words) + i / 8] >> (i % 8 * 4) & 15);
        }
    }
}

static void pack_short_taps(const uint32_t* weight, int o, int words, uint8_t* out) {
    pack_taps(weight, o, words, false, out);
}

// --- counts ----------------------------------------------------------------------------------------------------------

typedef Wide ShortCount;
typedef ShortCount ShortCounting;

// A line of counts from two rows of a RankTable.
BCNN_INLINE void add_rows(const uint8_t* one, const uint8_t* other, Narrow* n) {
    const __m256i sum =
        _mm256_add_epi8(_mm256_load_si256((const __m256i*)one), _mm256_load_si256((const __m256i*)other));
    _mm256_store_si256((__m256i*)n, sum);
}

// Counts of register j of a line of channels, times 2^bits; `by_byte`: bits are 8. Bytes of the first register are the
// even ones (byte_of), so neither needs a shuffle.
template <bool by_byte>
BCNN_INLINE Shorts shifted_counts(const Narrow* n, int j, Amount bits) {
    const __m256i all = _mm256_loadu_si256((const __m256i*)n), high = _mm256_set1_epi16(short(0xFF00));
    if (by_byte) return j ? _mm256_and_si256(all, high) : _mm256_slli_epi16(all, 8);
    return shift_up(j ? _mm256_srli_epi16(all, 8) : _mm256_andnot_si256(high, all), bits);
}
template <bool by_byte>
BCNN_INLINE Shorts shifted_counts(const Wide* n, int j, Amount bits) {
    return shift_up(load((const int16_t*)n + j * short_lanes), bits);
}
