/* @TITLE@
 * Made by bcnn @VERSION@ from a packed file; do not edit. C99; needs <stdint.h> and <string.h>, no heap@NOFLOAT@.
 *
 * Flash: @FLASH@ bytes of constants, and the code. RAM: BCNN_@BIG@_ARENA_BYTES, and some hundred bytes of stack. */
#ifndef BCNN_@BIG@_H
#define BCNN_@BIG@_H

#include <stdint.h>

#define BCNN_@BIG@_HEIGHT @HEIGHT@
#define BCNN_@BIG@_WIDTH @WIDTH@
#define BCNN_@BIG@_OUTPUTS @OUTPUTS@
@FRACTION@#define BCNN_@BIG@_FLASH_BYTES @FLASH@
#define BCNN_@BIG@_ARENA_BYTES sizeof(bcnn_@NAME@_arena) /* @RAM@ */

typedef struct {
    uint32_t words[@WORDS@];
    uint16_t made[@MADE@];
    @NUMBER@ numbers[@NUMBERS@];
} bcnn_@NAME@_arena;

#ifdef __cplusplus
extern "C" {
#endif

/* The outputs of one image, height * width * 3 bytes, red first. `arena` is a bcnn_@NAME@_arena; 0: all is well. */
int bcnn_@NAME@_run(const uint8_t *rgb, void *arena, @NUMBER@ *out);

/* The same for a camera without a frame buffer: begin, every row of width * 3 bytes from the top, end.
 * `end` returns 1 and leaves `out` alone if rows are missing. */
void bcnn_@NAME@_begin(void *arena);
void bcnn_@NAME@_row(void *arena, const uint8_t *rgb);
int bcnn_@NAME@_end(const void *arena, @NUMBER@ *out);

@LABELS@
#ifdef __cplusplus
}
#endif
#endif
