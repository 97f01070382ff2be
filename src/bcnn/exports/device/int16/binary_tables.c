/* Binary convolution of single pixels by look-up, eight or four pixels at a time. Makes the numbers of signs that differ.
 *
 * 1. A pixel with bits x_j differs from a filter with bits w_j at  sum_j x_j + sum_j w_j (1 - 2 x_j)  places.
 * 2. Four pixels are four bytes of a word, so both sums are those of words: no byte ends outside 0 ... 224.
 * 3. The second sum, of five or six bits of the filter, has 32 or 64 values. Those of 32 bits are six tables, made once for these pixels
 *    and looked up by every filter. Of eight pixels an entry has two words. */

#ifndef POPCOUNT /* with it binary_pixels is faster */

#if defined(__GNUC__) || defined(__clang__)
typedef uint32_t __attribute__((may_alias)) lanes; /* where at other times rows are */
#else
typedef uint32_t lanes;
#endif

enum { FIELDS = 6 };
static const uint8_t bits[FIELDS] = {5, 5, 6, 5, 5, 6};

/* What the bits of 32 inputs of four pixels, from k on, add to a sum: the entries 1, 2, 4 ... of the tables. Entry 0 of the first table
 * is how many of them are 1, so that it is in every sum. */
static APART void begin_tables(lanes *table, uint32_t size, const int16_t *const *pixels, uint32_t channels, vec above, uint32_t k,
                                   uint32_t end) {
    const int16_t *p = pixels[0], *q = pixels[1], *r = pixels[2], *s = pixels[3];
    lanes *all = table;
    uint32_t c = k % channels, ones = 0, n, at;
    for (n = 0; n < FIELDS; n++) {
        table[0] = 0;
        for (at = size; at < size << bits[n]; at *= 2) {
            uint32_t v = 0;
            if (k < end) {
                const int32_t a = value(above, k++);
                v = (uint32_t)(a - s[c]) >> 31;
                v = v << 8 | (uint32_t)(a - r[c]) >> 31;
                v = v << 8 | (uint32_t)(a - q[c]) >> 31;
                v = v << 8 | (uint32_t)(a - p[c]) >> 31;
                if (++c == channels) c = 0;
                ones += v;
                v = 0x01010101u - 2 * v;
            }
            table[at] = v;
        }
        table += at;
    }
    *all = ones;
}

/* All entries of a table, from those. */
static APART lanes *fill_table(lanes *table, uint32_t size, uint32_t end) {
    uint32_t count;
    for (count = size; count < end; count *= 2) {
        const uint32_t v = table[count], w = table[count + size - 1];
        const lanes *from = table;
        lanes *to = table + count;
        uint32_t n;
        if (count < 4) {
            to[0] = from[0] + v;
            if (count == 2) to[1] = from[1] + w;
            continue;
        }
        to[0] = from[0] + v;
        to[1] = from[1] + w;
        to[2] = from[2] + v;
        to[3] = from[3] + w;
        for (n = count - 4; n; n -= 4) {
            from += 4, to += 4;
            to[0] = from[0] + v;
            to[1] = from[1] + w;
            to[2] = from[2] + v;
            to[3] = from[3] + w;
        }
    }
    return table + end;
}

/* The entry, of 2^log bytes, for a field of w. Processors without scaled addresses cut the field out at its place. */
#if defined(__ARM_ARCH_6M__) || defined(__riscv)
#define CUT(w, from, log) ((from) > (log) ? (w) >> (((from) - (log)) & 31) : (w) << (((log) - (from)) & 31))
#define ENTRY(table, w, from, ones, log) ((const lanes *)((const char *)(table) + (CUT(w, from, log) & (ones) << (log))))
#else
#define ENTRY(table, w, from, ones, log) ((table) + (((w) >> (from) & (ones)) << ((log) - 2)))
#endif

/* Adds to the sums what the tables have for the filters; keep is 0 for sums that begin. */
static APART void look_up(const lanes *const *tables, const uint32_t *weight, lanes *sums, uint32_t made, uint32_t keep) {
    const lanes *a = tables[0], *b = tables[1], *c = tables[2], *d = tables[3], *e = tables[4], *f = tables[5];
    for (; made; made--, sums++) {
        const uint32_t w = *weight++;
        *sums = (*sums & keep) + *ENTRY(a, w, 0, 31u, 2) + *ENTRY(b, w, 5, 31u, 2) + *ENTRY(c, w, 10, 63u, 2) + *ENTRY(d, w, 16, 31u, 2) +
                *ENTRY(e, w, 21, 31u, 2) + *ENTRY(f, w, 26, 63u, 2);
    }
}

static APART void look_up_two(const lanes *table, const uint32_t *weight, lanes *sums, uint32_t made, uint32_t keep) {
    for (; made; made--, sums += 2) {
        const uint32_t w = *weight++;
        const lanes *a = ENTRY(table, w, 0, 31u, 3), *b = ENTRY(table, w, 5, 31u, 3), *c = ENTRY(table, w, 10, 63u, 3);
        const lanes *d = ENTRY(table, w, 16, 31u, 3), *e = ENTRY(table, w, 21, 31u, 3), *f = ENTRY(table, w, 26, 63u, 3);
        uint32_t v = a[0], u = a[1];
        v += b[64], u += b[65];
        v += c[128], u += c[129];
        v += d[256], u += d[257];
        v += e[320], u += e[321];
        v += f[384], u += f[385];
        v += sums[0] & keep, u += sums[1] & keep;
        sums[0] = v, sums[1] = u;
    }
}

/* Bytes of words become numbers of up to four pixels, or are added to them. */
static void spread(const lanes *sums, uint32_t size, int16_t *out, uint32_t made, uint32_t pixels, int add) {
    uint32_t k, p;
    for (k = made; k; k--, sums += size, out++) {
        uint32_t v = *sums;
        int16_t *at = out;
        if (pixels == 4 && !add) {
            *at = (int16_t)(v & 255);
            at += made;
            *at = (int16_t)(v >> 8 & 255);
            at += made;
            *at = (int16_t)(v >> 16 & 255);
            at += made;
            *at = (int16_t)(v >> 24);
        } else
            for (p = pixels; p; p--, at += made, v >>= 8) *at = (int16_t)((add ? *at : 0) + (int32_t)(v & 255));
    }
}

static void binary_tables(arena *m, const op *o, int16_t *out, uint32_t y) {
    const op *map = ops + o->source;
    const branch *b = branches + o->parts;
    const uint32_t channels = map->channels, made = o->channels, reads = o->reads, width = o->width, size = o->shift;
    const uint32_t step = o->stride_x * channels;
    const int16_t *in = map_row(m, map, y * o->stride_y);
    const lanes *tables[6];
    lanes *table = (lanes *)(m->numbers + slots[o->extra + y]), *sums = table + 256 * size;
    uint32_t x, p, first, end;
    for (x = 0; x < width; x += 4 * size, out += 4 * size * made) {
        const uint32_t *weight = words + b->weight;
        const int16_t *pixels[8];
        for (p = 0; p < 8; p++) pixels[p] = in + (x + p < width ? x + p : x) * step;
        for (first = 0; first < reads; first = end) { /* as many as bytes can count */
            uint32_t k;
            end = reads - first > 224 ? first + 224 : reads;
            for (k = first; k < end; k += 32, weight += made) {
                const uint32_t keep = k == first ? 0 : 0xffffffffu;
                lanes *next = table;
                for (p = 0; p < size; p++) begin_tables(table + p, size, pixels + 4 * p, channels, b->above, k, end);
                for (p = 0; p < FIELDS; p++) {
                    tables[p] = next;
                    next = fill_table(next, size, size << bits[p]);
                }
                if (size == 2)
                    look_up_two(table, weight, sums, made, keep);
                else
                    look_up(tables, weight, sums, made, keep);
            }
            spread(sums, size, out, made, width - x < 4 ? width - x : 4, first > 0);
            if (size == 2 && x + 4 < width)
                spread(sums + 1, size, out + 4 * made, made, width - x < 8 ? width - x - 4 : 4, first > 0);
        }
    }
}

#endif
