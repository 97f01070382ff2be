/* The start of a Cortex-M under qemu, the test vectors, and the instructions of one image; on RISC-V the C library starts.
 *
 * With -icount shift=0 an instruction is a nanosecond of virtual time. SysTick counts it in ticks, and a loop of known length says how
 * many instructions those are; a RISC-V core counts instructions itself. */
#include <stdlib.h>

#define main vectors
#include "test.c" /* the exported one, with its arena */
#undef main

#define JOIN3(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN3(a, b, c)
#define CALL(what) JOIN(bcnn_, NAME, what)

#ifdef __riscv

static uint32_t now(void) {
    uint32_t count;
    __asm volatile("csrr %0, minstret" : "=r"(count));
    return count;
}

static uint32_t since(uint32_t before) { return now() - before; }

static double instructions_a_count(void) { return 1; }

#else

extern uint32_t stack_top;
extern void _start(void);

static void stuck(void) { exit(3); }

static void reset(void) {
#ifdef __ARM_FP
    *(volatile uint32_t *)0xE000ED88u |= 0xf00000u; /* the floating point unit is off until it is told otherwise */
    __asm volatile("dsb\n isb");
#endif
    _start();
}

__attribute__((section(".vectors"), used)) static void (*const table[16])(void) = {
    (void (*)(void))&stack_top, reset, stuck, stuck, stuck, stuck, stuck, stuck,
    stuck, stuck, stuck, stuck, stuck, stuck, stuck, stuck,
};

static volatile uint32_t *const systick = (volatile uint32_t *)0xE000E010u; /* control, reload, value */

static uint32_t now(void) { return systick[2]; }

static uint32_t since(uint32_t before) { return (before - systick[2]) & 0xffffffu; }

static double instructions_a_count(void) {
    uint32_t before, n = 500000;
    systick[1] = 0xffffffu;
    systick[2] = 0;
    systick[0] = 5; /* processor clock, no interrupt */
    before = now();
    __asm volatile(".syntax unified\n1: subs %0, %0, #1\n bne 1b" : "+l"(n) : : "cc");
    return 1e6 / since(before);
}

#endif

int main(void) {
    static uint8_t row[ROW_BYTES];
    uint32_t count = 0, before, y;
    const int wrong = vectors();
    const double each = instructions_a_count();
    for (y = 0; y < sizeof row; y++) row[y] = (uint8_t)(y * 37u);
    before = now();
    CALL(_begin)(&arena);
    count += since(before);
    for (y = 0; y < HEIGHT; y++) {
        before = now();
        CALL(_row)(&arena, row);
        count += since(before);
    }
    before = now();
    CALL(_end)(&arena, out);
    count += since(before);
    printf("instructions %lu\n", (unsigned long)(count * each));
    exit(wrong);
}
