/* One filter a channel, 16 bits from tap to tap. Filters are [made][taps], with one step for all or one for each. */

enum { ROWS = 3 }; /* of the source that are read together */

typedef struct { /* of a row of outputs: every `next` of the source and every `made` of the map is a pixel */
    uint32_t channels, next, made, whole; /* pixels with all three taps */
    int32_t left, right, half;
} row_of_taps;

/* Three taps side by side of each of some rows of the source, for a row of one channel. The first pixel may lack the first tap (left),
 * the last pixel the last (right). */
static APART void three_taps(const row_of_taps *o, const int16_t *const *in, uint32_t rows, uint32_t place, int16_t *out, vec filter,
                             uint32_t weight) {
    const uint32_t channels = o->channels, next = o->next, made = o->made;
    const int32_t half = o->half;
    for (; rows; rows--, weight += 3) {
        const int32_t a = value(filter, weight), b = value(filter, weight + 1), c = value(filter, weight + 2);
        const int16_t *x = *in++ + place;
        int16_t *at = out;
        uint32_t pixels = o->whole;
        if (o->left) {
            *at = (int16_t)tap_sum(tap_sum(*at + product(x[0], b, half)) + product(x[channels], c, half));
            x += next - channels, at += made;
        }
        if (next == channels)
            for (; pixels > 1; pixels -= 2) {
                const int32_t p = x[0], q = x[channels], r = x[2 * channels], s = x[3 * channels];
                int32_t v = tap_sum(*at + product(p, a, half));
                v = tap_sum(v + product(q, b, half));
                *at = (int16_t)tap_sum(v + product(r, c, half));
                at += made;
                v = tap_sum(*at + product(q, a, half));
                v = tap_sum(v + product(r, b, half));
                *at = (int16_t)tap_sum(v + product(s, c, half));
                at += made;
                x += 2 * channels;
            }
        for (; pixels; pixels--, x += next, at += made) {
            int32_t v = tap_sum(*at + product(x[0], a, half));
            v = tap_sum(v + product(x[channels], b, half));
            *at = (int16_t)tap_sum(v + product(x[2 * channels], c, half));
        }
        if (o->right) *at = (int16_t)tap_sum(tap_sum(*at + product(x[0], a, half)) + product(x[channels], b, half));
    }
}

/* Any taps of a row of one channel. */
static void any_taps(const op *o, const int16_t *in, uint32_t channels, int16_t *at, vec filter, uint32_t weight) {
    const int32_t on_map = ops[o->source].width;
    uint32_t x, t;
    for (x = 0; x < o->width; x++, at += o->channels)
        for (t = 0; t < o->kernel_x; t++) {
            const int32_t tx = (int32_t)(x * o->stride_x + t * o->dilation_x) - o->left;
            if (tx >= 0 && tx < on_map)
                *at = (int16_t)tap_sum(*at + product(in[(uint32_t)tx * channels], value(filter, weight + t), o->half));
        }
}

/* Adds to a row of outputs, or to the offsets if it is a fresh one, the taps of rows of the source: those of row ky of the filters on. */
static void filter_taps(const op *o, const int16_t *const *in, uint32_t rows, int16_t *out, uint32_t ky, uint32_t fresh) {
    const op *map = ops + o->source;
    const uint32_t channels = map->channels, made = o->channels, width = o->width, kernel = o->kernel_x;
    const uint32_t taps = o->kernel_y * kernel, edges = (uint32_t)(o->left > 0) + 1;
    const int32_t over = (int32_t)((width - 1) * o->stride_x) - o->left + 3 - map->width; /* taps on the right */
    const int three = kernel == 3 && o->dilation_x == 1 && o->left <= 1 && over <= 1 && map->width > 1 && width >= edges;
    const row_of_taps row = {channels, o->stride_x * channels, made, width - (uint32_t)(o->left + (over > 0)), o->left, over > 0, o->half};
    const vec steps = o->c;
    vec filter = o->a;
    const int32_t step = filter.step;
    uint32_t weight = ky * kernel, k, c = 0, n;
    for (k = 0; k < made; k++, out++, weight += taps) {
        if (steps.at != NONE) filter.step = step * numbers[steps.at + k];
        if (fresh) {
            const int16_t offset = (int16_t)value(o->b, k);
            int16_t *at = out;
            for (n = width; n; n--, at += made) *at = offset;
        }
        if (three)
            three_taps(&row, in, rows, c, out, filter, weight);
        else
            for (n = 0; n < rows; n++) any_taps(o, in[n] + c, channels, out, filter, weight + n * kernel);
        if (++c == channels) c = 0;
    }
}
