// Bits of a map in 32-bit words, bit c % 32 of word c // 32, and weights [group of channels][word][channel]: for instruction sets
// that count the bits of a word or of its bytes. Included after `lanes`, `group` and the primitives.
#pragma once

constexpr int together = 1;  // pixels whose bits are packed together
typedef uint32_t Narrow;
typedef uint32_t Wide;
constexpr int narrow_limit = 0;

BCNN_INLINE size_t bits_bytes(int k) { return size_t((k + 31) / 32) * 4; }
BCNN_INLINE size_t weight_bytes(int k) { return bits_bytes(k) * group; }
static void pack_weight(const uint32_t* weight, int o, int k, uint8_t* out) { pack_words(weight, o, k, group, out); }

// x >= threshold of a block of pixels, as bits.
static void sign_pack(const float* const* pixel, int pixels, View v, const float* threshold, uint8_t* bits, size_t bytes) {
    for (int j = 0, c = 0; j < int(bytes) * 8 / lanes; j++) {
        const Floats t = load(threshold + j * lanes);
        const ptrdiff_t at = place_of(v, c);
        for (int p = 0; p < pixels; p++) {
            const unsigned mask = at_least(load(pixel[p] + at), t);
            __builtin_memcpy(bits + p * bytes + j * (lanes / 8), &mask, lanes / 8);  // little endian, as all these machines
        }
        c = wrapped(c + lanes, v.period);
    }
}
