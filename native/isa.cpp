// Which instruction sets are built, and which this machine has.
#include <cstdlib>

#include "cpu.h"
#include "kernels/kernels.h"

namespace bcnn {

void pack_words(const uint32_t* weight, int o, int k, int lanes, uint8_t* out) {
    const size_t words = size_t(k + 31) / 32;
    for (size_t c = 0; c < size_t(o); c++)
        for (size_t i = 0; i < words; i++) {
            const size_t at = (c / lanes * words + i) * lanes + c % lanes;
            __builtin_memcpy(out + 4 * at, weight + c * words + i, 4);
        }
}

const Isa* isas() {
#if defined(__x86_64__)
    static const bool avx2 = cpu().avx2;
#if defined(BCNN_EMULATE_AVX512)
    static const bool avx512 = true;
#else
    static const bool avx512 = cpu().avx512;
#endif
    static const bool chosen = avx512 && (choose_avx512_counting(std::getenv("BCNN_AVX512_COUNTS")), true);
    (void)chosen;
    static const Isa all[] = {
        {&avx512_kernels, avx512}, {&avx2_kernels, avx2}, {&scalar_kernels, true}, {nullptr, false}};
#elif defined(__aarch64__)
    static const Isa all[] = {{&neon_kernels, true}, {&scalar_kernels, true}, {nullptr, false}};
#elif defined(__wasm__)  // a module with SIMD loads where there is SIMD, or not at all
    static const Isa all[] = {{&wasm_kernels, true}, {nullptr, false}};
#else
    static const Isa all[] = {{&scalar_kernels, true}, {nullptr, false}};
#endif
    return all;
}

}  // namespace bcnn
