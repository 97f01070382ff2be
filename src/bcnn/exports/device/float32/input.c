/* The next row of the image. Parameters: three scales, three offsets, three shares of the intensity. */

static void input_row(arena *m, const uint8_t *rgb) {
    const op *o = ops;
    number *out = m->numbers + slots[o->at + m->made[0]];
    uint32_t x, k;
    for (x = 0; x < o->width; x++, rgb += 3, out += o->channels) {
        for (k = 0; k < 3; k++) out[k] = plus(times((number)rgb[k], value(o->a, k)), value(o->a, 3 + k));
        if (o->channels == 4) {
            out[3] = times(out[0], value(o->a, 6));
            for (k = 1; k < 3; k++) out[3] = plus(out[3], times(out[k], value(o->a, 6 + k)));
        }
    }
    m->made[0]++;
}
