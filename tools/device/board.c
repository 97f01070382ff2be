/* The start of a Cortex-M under qemu, the test vectors, and the instructions of one image by SysTick.
 *
 * With -icount shift=0 an instruction is a nanosecond of virtual time. A loop of known length says how many of them are a tick. */
#include <stdlib.h>

#define main vectors
#include "test.c" /* the exported one, with its arena */
#undef main

#define JOIN3(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN3(a, b, c)
#define CALL(what) JOIN(bcnn_, NAME, what)

extern uint32_t stack_top;
extern void _start(void);

static void stuck(void) { exit(3); }

__attribute__((section(".vectors"), used)) static void (*const table[16])(void) = {
    (void (*)(void))&stack_top, _start, stuck, stuck, stuck, stuck, stuck, stuck,
    stuck, stuck, stuck, stuck, stuck, stuck, stuck, stuck,
};

static volatile uint32_t *const systick = (volatile uint32_t *)0xE000E010u; /* control, reload, value */

static uint32_t since(uint32_t before) { return (before - systick[2]) & 0xffffffu; }

int main(void) {
    static uint8_t row[ROW_BYTES];
    uint32_t ticks = 0, loop, before, y, n = 500000;
    const int wrong = vectors();
    systick[1] = 0xffffffu;
    systick[2] = 0;
    systick[0] = 5; /* processor clock, no interrupt */
    before = systick[2];
    __asm volatile(".syntax unified\n1: subs %0, %0, #1\n bne 1b" : "+l"(n) : : "cc");
    loop = since(before);
    for (y = 0; y < sizeof row; y++) row[y] = (uint8_t)(y * 37u);
    before = systick[2];
    CALL(_begin)(&arena);
    ticks += since(before);
    for (y = 0; y < HEIGHT; y++) {
        before = systick[2];
        CALL(_row)(&arena, row);
        ticks += since(before);
    }
    before = systick[2];
    CALL(_end)(&arena, out);
    ticks += since(before);
    printf("instructions %lu\n", (unsigned long)((uint64_t)ticks * 1000000u / loop));
    exit(wrong);
}
