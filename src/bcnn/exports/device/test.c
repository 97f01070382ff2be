/* The test vectors of the packed file: whole images and row by row. Prints a line; 0 if every output is equal. */
#include <stdio.h>
#include <string.h>

#include "model.h"

#define VECTORS @VECTORS@

static const uint32_t seeds[VECTORS] = {@SEEDS@};
static const @STORED@ wanted[VECTORS][BCNN_@BIG@_OUTPUTS] = {
@WANTED@};
static bcnn_@NAME@_arena arena;
static @NUMBER@ out[BCNN_@BIG@_OUTPUTS];
#ifndef BCNN_ROWS_ONLY /* define it where RAM has no room for an image */
static uint8_t image[BCNN_@BIG@_HEIGHT * BCNN_@BIG@_WIDTH * 3];
#endif

static uint8_t byte_of(uint32_t seed, uint32_t i) {
    uint64_t h = (uint64_t)seed << 32 | i;
    h = (h ^ h >> 31) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 31) * 0x94D049BB133111EBu;
    return (uint8_t)(h >> 56);
}

@EQUAL@static int differs(unsigned v, const char *how) {
    unsigned k;
    for (k = 0; k < BCNN_@BIG@_OUTPUTS; k++)
        if (!equal(out[k], wanted[v][k])) {
            printf("vector %u, %s: output %u is another one\n", v, how, k);
            return 1;
        }
    return 0;
}

int main(void) {
    uint8_t row[BCNN_@BIG@_WIDTH * 3];
    uint32_t i, y;
    unsigned v;
    int wrong = 0;
    for (v = 0; v < VECTORS; v++) {
        bcnn_@NAME@_begin(&arena);
        for (y = 0; y < BCNN_@BIG@_HEIGHT; y++) {
            for (i = 0; i < sizeof row; i++) row[i] = byte_of(seeds[v], y * (uint32_t)sizeof row + i);
            bcnn_@NAME@_row(&arena, row);
        }
        wrong += bcnn_@NAME@_end(&arena, out) || differs(v, "row by row");
#ifndef BCNN_ROWS_ONLY
        for (i = 0; i < sizeof image; i++) image[i] = byte_of(seeds[v], i);
        wrong += bcnn_@NAME@_run(image, &arena, out) || differs(v, "whole");
#endif
    }
    printf("%s: %d test vectors, %d wrong\n", wrong ? "WRONG" : "equal", VECTORS, wrong);
    return wrong != 0;
}
