/* Binary convolution of single pixels: the values of one become bits; then xor and count against every filter. Makes the numbers of
 * signs that differ. */

#if @PIXELS@ || defined(POPCOUNT)

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

/* Those of two words, with one sum of bytes. */
static unsigned ones_of_two(uint32_t v, uint32_t w) {
#ifdef POPCOUNT
    return ones(v) + ones(w);
#else
    v -= (v >> 1) & 0x55555555u;
    w -= (w >> 1) & 0x55555555u;
    v = (v & 0x33333333u) + ((v >> 2) & 0x33333333u) + (w & 0x33333333u) + ((w >> 2) & 0x33333333u);
    v = (v & 0x0f0f0f0fu) + ((v >> 4) & 0x0f0f0f0fu);
    return (unsigned)((v * 0x01010101u & 0xffffffffu) >> 24);
#endif
}

static void binary_pixels(arena *m, const op *o, int16_t *out, uint32_t y) {
    const op *map = ops + o->source;
    const branch *b = branches + o->parts;
    const uint32_t channels = map->channels, made = o->channels, each = ((uint32_t)o->reads + 31) / 32, step = o->stride_x * channels;
    const int16_t *in = map_row(m, map, y * o->stride_y);
    uint32_t x, k, i;
    for (x = o->width; x; x--, in += step, out += made) {
        const uint32_t *weight = words + b->weight;
        pack(b->above, o->reads, in, channels, m->words);
        if (each & 1) {
            const uint32_t v = m->words[0];
            for (k = 0; k < made; k++) out[k] = (int16_t)ones(v ^ *weight++);
        }
        for (i = each & 1; i < each; i += 2, weight += made) {
            const uint32_t v = m->words[i], w = m->words[i + 1];
            if (i == 0)
                for (k = 0; k < made; k++, weight++) out[k] = (int16_t)ones_of_two(v ^ *weight, w ^ weight[made]);
            else
                for (k = 0; k < made; k++, weight++) out[k] = (int16_t)(out[k] + (int32_t)ones_of_two(v ^ *weight, w ^ weight[made]));
        }
    }
}

#endif
