/* Binary convolution: a pixel's values become bits, branch by branch; then xor and count against every filter. */

/* The bits of one tap, a group behind the other, each from a word of its own on. */
static void pack(const op *o, const branch *b, const number *x, uint32_t channels, uint32_t *bits) {
    const uint32_t inner = (uint32_t)o->reads / o->groups;
    uint32_t g, k, c = 0, i = 0, word;
    for (g = 0; g < o->groups; g++)
        for (k = 0, word = 0; k < inner; k++, i++) {
            if (one(x[c], value(b->above, i))) word |= (uint32_t)1 << (k & 31);
            if (++c == channels) c = 0;
            if ((k & 31) == 31 || k + 1 == inner) {
                *bits++ = word;
                word = 0;
            }
        }
}

static void binary_conv(arena *m, const op *o, number *out, uint32_t y) {
    const op *map = ops + o->source;
    const uint32_t inner = (uint32_t)o->reads / o->groups, made = (uint32_t)o->channels / o->groups;
    const uint32_t each = (inner + 31) / 32, pixel = each * o->groups, taps = (uint32_t)o->kernel_y * o->kernel_x;
    uint32_t *inside = m->words, *bits = m->words + (taps + 31) / 32; /* a bit a tap; then the taps */
    uint32_t x, n, t, k, i;
    for (x = 0; x < o->width; x++, out += o->channels)
        for (n = 0; n < o->part_count; n++) {
            const branch *b = branches + o->parts + n;
            const uint32_t *weight = words + b->weight;
            int32_t signs = 0;
            for (t = 0; t < taps; t++) {
                const int32_t ty = (int32_t)(y * o->stride_y + t / o->kernel_x * o->dilation_y) - o->top + b->dy;
                const int32_t tx = (int32_t)(x * o->stride_x + t % o->kernel_x * o->dilation_x) - o->left + b->dx;
                const number *at = tap(m, map, ty, tx);
                if ((t & 31) == 0) inside[t / 32] = 0;
                if (at)
                    pack(o, b, at, map->channels, bits + t * pixel);
                else if (b->pad != NONE)
                    memcpy(bits + t * pixel, words + b->pad, pixel * sizeof *bits);
                else
                    continue;
                inside[t / 32] |= (uint32_t)1 << (t & 31);
                signs += (int32_t)inner;
            }
            for (k = 0; k < o->channels; k++) {
                const uint32_t *from = bits + k / made * each;
                unsigned apart = 0;
                number v;
                for (t = 0; t < taps; t++, weight += each, from += pixel)
                    if (inside[t / 32] >> (t & 31) & 1)
                        for (i = 0; i < each; i++) apart += ones(from[i] ^ weight[i]);
                v = term(b, k, signs - 2 * (int32_t)apart, (int32_t)(taps * inner));
                out[k] = n ? plus(out[k], v) : v;
            }
        }
}
