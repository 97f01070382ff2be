/* A bit of a value, and what becomes of a dot. */

static int one(number x, parameter above) { return x > above; }

static number term(const branch *b, uint32_t k, int32_t dot, int32_t all) {
    (void)all;
    return saturated(product(dot * ((int32_t)1 << b->up), value(b->scale, k), 16384) + value(b->offset, k));
}
