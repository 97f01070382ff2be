/* Binary convolution of single pixels: the values of one become bits; then xor and count against every filter. Makes the numbers of
 * signs that differ. */

static void pack(vec above, uint32_t reads, const int16_t *x, uint32_t channels, uint32_t *bits) {
    uint32_t k = 0, c = 0;
    while (k < reads) {
        const uint32_t end = reads - k < 32 ? reads : k + 32, rest = 32 - (end - k);
        uint32_t word = 0;
        for (; k < end; k++) {
            word = word >> 1 | ((uint32_t)(value(above, k) - x[c]) & 0x80000000u);
            if (++c == channels) c = 0;
        }
        *bits++ = word >> rest;
    }
}

static void binary_pixels(arena *m, const op *o, int16_t *out, uint32_t y) {
    const op *map = ops + o->source;
    const branch *b = branches + o->parts;
    const uint32_t channels = map->channels, made = o->channels, each = ((uint32_t)o->reads + 31) / 32;
    const int16_t *in = map_row(m, map, y * o->stride_y);
    uint32_t x, k, i;
    for (x = 0; x < o->width; x++, in += o->stride_x * channels) {
        const uint32_t *weight = words + b->weight;
        pack(b->above, o->reads, in, channels, m->words);
        for (k = 0; k < made; k++, weight++) {
            unsigned apart = 0;
            for (i = 0; i < each; i++) apart += ones(m->words[i] ^ weight[i * made]);
            *out++ = (int16_t)apart;
        }
    }
}
