/* Real convolution: sums of 32 bits. Filters are [made][taps][read]. */

static void conv(arena *m, const op *o, number *out, uint32_t y) {
    const op *map = ops + o->source;
    const uint32_t inner = (uint32_t)o->reads / o->groups, made = (uint32_t)o->channels / o->groups;
    const uint32_t taps = (uint32_t)o->kernel_y * o->kernel_x;
    uint32_t x, t, k, i;
    for (x = 0; x < o->width; x++, out += o->channels)
        for (k = 0; k < o->channels; k++) {
            int32_t sum = wide[o->extra + k];
            for (t = 0; t < taps; t++) {
                const int32_t ty = (int32_t)(y * o->stride_y + t / o->kernel_x * o->dilation_y) - o->top;
                const int32_t tx = (int32_t)(x * o->stride_x + t % o->kernel_x * o->dilation_x) - o->left;
                const int16_t *at = tap(m, map, ty, tx);
                const uint32_t weight = (k * taps + t) * inner;
                uint32_t c = k / made * inner % map->channels;
                if (!at) continue;
                for (i = 0; i < inner; i++) {
                    sum += at[c] * value(o->a, weight + i);
                    if (++c == map->channels) c = 0;
                }
            }
            out[k] = saturated(rounded(sum, (unsigned)value(o->c, k)));
        }
}
