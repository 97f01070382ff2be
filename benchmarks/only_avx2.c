// cpuid without AVX-512 and VNNI, for a library in which every cpuid is replaced by ud2, also two bytes (only_avx2.py).
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <ucontext.h>

static struct sigaction before;

static void answer(int signal, siginfo_t* info, void* context) {
    greg_t* const r = ((ucontext_t*)context)->uc_mcontext.gregs;
    const uint8_t* const at = (const uint8_t*)r[REG_RIP];
    if (at[0] != 0x0F || at[1] != 0x0B) {
        sigaction(SIGILL, &before, 0);  // something else: happens again, and is answered as before
        return;
    }
    const unsigned leaf = (unsigned)r[REG_RAX], part = (unsigned)r[REG_RCX];
    unsigned a, b, c, d;
    __cpuid_count(leaf, part, a, b, c, d);
    if (leaf == 7 && part == 0) {
        b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 28 | 1u << 30 | 1u << 31);  // F, DQ, IFMA, CD, BW, VL
        c &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14);               // VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ
        d &= ~(1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25);              // VP2INTERSECT, AMX, FP16
    }
    if (leaf == 7 && part == 1) {
        a &= ~(1u << 4 | 1u << 5);                        // AVX-VNNI, AVX512-BF16
        d &= ~(1u << 4 | 1u << 5 | 1u << 10 | 1u << 19);  // AVX-VNNI-INT8, NE-CONVERT, VNNI-INT16, AVX10
    }
    r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
    r[REG_RIP] += 2;
}

int ready(void) {
    struct sigaction action = {0};
    action.sa_sigaction = answer;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGILL, &action, &before);
}
