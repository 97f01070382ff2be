/* The nearest whole number, halves up. */
static int32_t mean(int32_t total, int32_t count) { return floor_of(total + count / 2, count); }
