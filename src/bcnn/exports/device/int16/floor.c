static int32_t floor_of(int32_t a, int32_t b) { return a / b - (a % b < 0); } /* b > 0 */
