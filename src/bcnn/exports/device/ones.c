/* Bits that are set. */
#if (defined(__GNUC__) || defined(__clang__)) && \
    (defined(__POPCNT__) || defined(__aarch64__) || defined(__riscv_zbb) || defined(__wasm__))
#define POPCOUNT
#endif

#if @ONES@ || defined(POPCOUNT)

static unsigned ones(uint32_t w) {
#ifdef POPCOUNT
    return (unsigned)__builtin_popcount(w);
#else
    w -= (w >> 1) & 0x55555555u;
    w = (w & 0x33333333u) + ((w >> 2) & 0x33333333u);
    w = (w + (w >> 4)) & 0x0f0f0f0fu;
    return (unsigned)((w * 0x01010101u & 0xffffffffu) >> 24);
#endif
}

#endif
