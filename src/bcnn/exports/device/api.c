/* See model.h. */

void bcnn_@NAME@_begin(void *memory) {
    arena *m = (arena *)memory;
    memset(m->made, 0, sizeof m->made);
    pull(m);
}

void bcnn_@NAME@_row(void *memory, const uint8_t *rgb) {
    arena *m = (arena *)memory;
    if (m->made[OPS - 1] == ops[OPS - 1].steps) return; /* the rest of the image changes nothing */
    input_row(m, rgb);
    pull(m);
}

int bcnn_@NAME@_end(const void *memory, @NUMBER@ *out) {
    const arena *m = (const arena *)memory;
    const op *o = ops + OPS - 1;
    const uint32_t row = (uint32_t)o->width * o->channels;
    uint32_t y;
    if (m->made[OPS - 1] < ops[OPS - 1].steps) return 1;
    for (y = 0; y < o->height; y++, out += row) memcpy(out, map_row(m, o, y), row * sizeof *out);
    return 0;
}

int bcnn_@NAME@_run(const uint8_t *rgb, void *memory, @NUMBER@ *out) {
    uint32_t y;
    bcnn_@NAME@_begin(memory);
    for (y = 0; y < BCNN_@BIG@_HEIGHT; y++) bcnn_@NAME@_row(memory, rgb + y * (BCNN_@BIG@_WIDTH * 3u));
    return bcnn_@NAME@_end(memory, out);
}
