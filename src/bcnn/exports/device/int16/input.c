/* The next row of the image. */

static void input_row(arena *m, const uint8_t *rgb) {
    const op *o = ops;
    int16_t *out = m->numbers + slots[o->at + m->made[0]];
    uint32_t x, k;
    for (x = 0; x < o->width; x++, rgb += 3, out += o->channels) {
        for (k = 0; k < 3; k++)
            out[k] = saturated(rounded(rgb[k] * wide[o->extra + k] + wide[o->extra + 3 + k], o->shift));
        if (o->channels == 4) {
            int32_t sum = 0;
            for (k = 0; k < 3; k++) sum += out[k] * numbers[o->a.at + k];
            out[3] = saturated(rounded(sum, 14));
        }
    }
    m->made[0]++;
}
