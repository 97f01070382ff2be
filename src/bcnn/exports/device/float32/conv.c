/* Real convolution and the fully connected layer, depth wise or not: tap by tap, in a tap by ascending channel. Filters are
 * [made][taps][read]. */

static void filter_taps(const op *o, const number *in, number *out, uint32_t ky) {
    const op *map = ops + o->source;
    const uint32_t inner = (uint32_t)o->reads / o->groups, made = (uint32_t)o->channels / o->groups;
    uint32_t x, kx, k, i;
    for (k = 0; k < o->channels; k++) {
        const uint32_t first = k / made * inner % map->channels;
        number *at = out + k;
        for (x = 0; x < o->width; x++, at += o->channels)
            for (kx = 0; kx < o->kernel_x; kx++) {
                const int32_t tx = (int32_t)(x * o->stride_x + kx * o->dilation_x) - o->left;
                const uint32_t weight = ((k * o->kernel_y + ky) * o->kernel_x + kx) * inner;
                const number *pixel;
                uint32_t c = first;
                if (tx < 0 || tx >= map->width) continue;
                pixel = in + (uint32_t)tx * map->channels;
                for (i = 0; i < inner; i++) {
                    *at = plus(*at, times(pixel[c], value(o->a, weight + i)));
                    if (++c == map->channels) c = 0;
                }
            }
    }
}

static void filter_offsets(const op *o, number *out) {
    uint32_t x, k;
    for (x = 0; x < o->width; x++)
        for (k = 0; k < o->channels; k++) *out++ = value(o->b, k);
}
