/* The arithmetic: 16-bit numbers that saturate, sums of 32 bits that were bounded when the program was made. */

static int32_t down(int32_t v, unsigned n) { /* floor(v / 2^n), also where >> of a negative number is not that */
    return ((int32_t)-1 >> 1) == -1 ? v >> n : v >= 0 ? v >> n : ~(~v >> n);
}

static int32_t rounded(int32_t v, unsigned n) { return down(v + (int32_t)(((uint32_t)1 << n) >> 1), n); }

static int16_t saturated(int32_t v) { return (int16_t)(v > 32767 ? 32767 : v < -32768 ? -32768 : v); }

static int32_t product(int32_t a, int32_t b) { return down(a * b + 16384, 15); }

static int16_t shifted(int32_t v, int up) {
    return saturated(up >= 0 ? v * ((int32_t)1 << up) : rounded(v, (unsigned)-up));
}

static parameter value(vec v, uint32_t i) { return v.step ? bytes[v.at + i] * v.step : numbers[v.at + i]; }

static number plus(number a, number b) { return saturated((int32_t)a + b); }
