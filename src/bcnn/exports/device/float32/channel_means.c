/* Means over channels: of those with one remainder, divided; or of the magnitudes of all, times their share. */

static void channel_means(arena *m, const op *o, number *out, uint32_t y) {
    const op *map = ops + o->source;
    const number *in = map_row(m, map, y);
    const int magnitudes = o->kind == ABS_MEAN;
    uint32_t x, k, c;
    for (x = 0; x < o->width; x++, in += map->channels)
        for (k = 0; k < o->channels; k++) {
            number sum = 0;
            uint32_t count = 0;
            for (c = k; c < map->channels; c += o->channels, count++) {
                const number v = magnitudes && in[c] < 0 ? -in[c] : in[c];
                sum = count ? plus(sum, v) : v;
            }
            *out++ = magnitudes ? times(sum, value(o->a, 0)) : over(sum, (number)count);
        }
}
