/* Averages and the maximum over a window. */

/* Of 2 x 2 taps, all on the map. */
static void pool_squares(const arena *m, const op *o, int16_t *out, uint32_t y) {
    const op *map = ops + o->source;
    const uint32_t channels = o->channels, right = o->dilation_x * channels, width = o->width;
    const uint32_t next = o->stride_x * channels - channels;
    const int16_t *a = map_row(m, map, y * o->stride_y), *b = map_row(m, map, y * o->stride_y + o->dilation_y);
    const int largest = o->kind == MAX_POOL;
    uint32_t x, k;
    for (x = width; x; x--, a += next, b += next)
        for (k = channels; k; k--, a++, b++) {
            const int32_t p = *a, q = a[right], r = *b, s = b[right];
            if (largest) {
                const int32_t top = p > q ? p : q, low = r > s ? r : s;
                *out++ = (int16_t)(top > low ? top : low);
            } else
                *out++ = (int16_t)down(p + q + r + s + 2, 2);
        }
}

static void pool(arena *m, const op *o, number *out, uint32_t y) {
    const op *map = ops + o->source;
    const uint32_t taps = (uint32_t)o->kernel_y * o->kernel_x;
    const int largest = o->kind == MAX_POOL;
    uint32_t x, t, k;
    if (taps == 4 && o->kernel_x == 2 && o->extra) {
        pool_squares(m, o, out, y);
        return;
    }
    for (x = 0; x < o->width; x++, out += o->channels)
        for (k = 0; k < o->channels; k++) {
            int32_t v = largest ? -32768 : 0, inside = 0;
            for (t = 0; t < taps; t++) {
                const int32_t ty = (int32_t)(y * o->stride_y + t / o->kernel_x * o->dilation_y) - o->top;
                const int32_t tx = (int32_t)(x * o->stride_x + t % o->kernel_x * o->dilation_x) - o->left;
                const int16_t *at = tap(m, map, ty, tx);
                if (!at) continue;
                inside++;
                v = !largest ? v + at[k] : at[k] > v ? at[k] : v;
            }
            out[k] = largest ? (int16_t)v : saturated(mean(v, o->shift ? inside : (int32_t)taps));
        }
}
