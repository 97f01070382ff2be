/* Outputs are stored as their bits; one that is no number has many. */
static int equal(float made, uint32_t bits) {
    float other;
    memcpy(&other, &bits, sizeof other);
    return made == other || (made != made && other != other);
}
