// What this x86-64 processor has and the operating system saves, asked of the processor itself. The compilers' __builtin_cpu_supports
// needs a variable of their run-time library, which not all of them (zig) link into a shared module.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>

namespace bcnn {

struct Cpu {
    bool avx2 = false, fma = false;
    bool avx512 = false;  // F, BW, VL and VPOPCNTDQ
};

inline Cpu cpu() {
    Cpu found;
    unsigned a, b, c, d;
    const auto bit = [](unsigned word, int index) { return bool(word >> index & 1); };
    if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27) || !bit(c, 28)) return found;  // OSXSAVE, AVX
    const bool fma = bit(c, 12);
    unsigned saved, high;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));  // XCR0: the registers that the system saves
    const bool ymm = (saved & 0x06) == 0x06, zmm = (saved & 0xe6) == 0xe6;
    if (!ymm || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
    found.fma = fma;
    found.avx2 = bit(b, 5);
    found.avx512 = found.avx2 && zmm && bit(b, 16) && bit(b, 30) && bit(b, 31) && bit(c, 14);
    return found;
}

}  // namespace bcnn
#endif
