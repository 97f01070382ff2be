/* Averages and the maximum over a window. */

static void pool(arena *m, const op *o, number *out, uint32_t y) {
    const op *map = ops + o->source;
    const uint32_t taps = (uint32_t)o->kernel_y * o->kernel_x;
    const int largest = o->kind == MAX_POOL;
    uint32_t x, t, k;
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
