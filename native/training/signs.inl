// Matrix products with one +-1 operand, by table. Part of kernels.inl.
//
// A matrix product with one +-1 operand needs no multiplication. The definition:
//   1. out[j][l] = sum over i of s[i][j] * v[i][l], with s = +-1 and lanes l.
//   2. Take i four at a time: the four signs of a column j are one number from 0 to 15.
//   3. For each group of four, write down all sixteen sums +-v0 +-v1 +-v2 +-v3 (`signed_sums`): twenty additions for 4 x lanes.
//   4. Then out[j] = sum over groups of table[group][index of column j] (`select_sum`): one addition in place of four
//      multiply-adds, and in forward direction with +-1 on both sides the table and its sums fit int8, four times the lanes.
// Which operand is which:
//   forward      y[m][o]  = sum over k of sign(x)[m][k] * w[o][k]     groups over k, columns m, lanes o (table of weights, made once)
//   weight grad  dw[o][k] = sum over m of sign(x)[m][k] * dy[m][o]    groups over m, columns k, lanes o
//   sign grad    ds[m][k] = sum over o of w[o][k] * dy[m][o]          groups over o, columns k, lanes m (w = +-1 only)

// The sixteen sums of rows v[0..3] (each `kRow` bytes): entry n adds row i where bit i of n is set and subtracts it elsewhere.
template <class V>
BCNN_INLINE void signed_sums(const char* const v[kGroup], char* table) {
    for (size_t half = 0; half < kRow; half += sizeof(V)) {
        const V a = load<V>(v[0] + half), b = load<V>(v[1] + half), c = load<V>(v[2] + half), d = load<V>(v[3] + half);
        const V ab = a + b, a_b = a - b, cd = c + d, c_d = c - d;
        const V low[4] = {-ab, a_b, -a_b, ab}, high[4] = {-cd, c_d, -c_d, cd};
        for (int n = 0; n < 16; n++) store(table + n * kRow + half, V(low[n & 3] + high[n >> 2]));
    }
}

// N columns side by side. `Beside`: columns whose indices are, too; one load of four or eight, since loads are what this loop is made of.
template <class V, int N, bool Beside>
BCNN_INLINE void select_columns(const char* table, const uint8_t* index, size_t column_stride, size_t group_stride,
                                size_t groups, char* out, bool accumulate) {
    constexpr size_t parts = kRow / sizeof(V);
    V sum[N][parts];
    for (int n = 0; n < N; n++)
        for (size_t i = 0; i < parts; i++) sum[n][i] = accumulate ? load<V>(out + n * kRow + i * sizeof(V)) : V{};
    for (size_t g = 0; g < groups; g++) {
        uint64_t some = 0;
        if (Beside) __builtin_memcpy(&some, index, N);
        for (int n = 0; n < N; n++) {
            const size_t number = Beside ? some >> 8 * n & 0xFF : index[n * column_stride];
            const char* row = table + 4 * number;
            for (size_t i = 0; i < parts; i++) sum[n][i] += load<V>(row + i * sizeof(V));
        }
        table += kTable;
        index += group_stride;
    }
    for (int n = 0; n < N; n++)
        for (size_t i = 0; i < parts; i++) store(out + n * kRow + i * sizeof(V), sum[n][i]);
}

// out[column] (+)= sum over groups of table[group][index[column, group]]. An index is 16 times its number, so that it is a
// byte and four times it is the row's place.
template <class V>
static void select_sum(const char* table, const uint8_t* index, size_t column_stride, size_t group_stride,
                       size_t groups, size_t columns, char* out, bool accumulate) {
    size_t j = 0;
    if (column_stride == 1 && kLittleEndian) {
        if (sizeof(V) == kRow)  // one register a column
            for (; j + 8 <= columns; j += 8)
                select_columns<V, 8, true>(table, index + j, 1, group_stride, groups, out + j * kRow, accumulate);
        for (; j + 4 <= columns; j += 4)
            select_columns<V, 4, true>(table, index + j, 1, group_stride, groups, out + j * kRow, accumulate);
    }
    for (; j + 4 <= columns; j += 4)
        select_columns<V, 4, false>(table, index + j * column_stride, column_stride, group_stride, groups,
                                    out + j * kRow, accumulate);
    for (; j < columns; j++)
        select_columns<V, 1, false>(table, index + j * column_stride, column_stride, group_stride, groups,
                                    out + j * kRow, accumulate);
}

// Index of four neighbouring channels of one pixel, for every group of channels: groups over k.
BCNN_INLINE void index_channels(const float* x, const float* bias, size_t channels, uint8_t* index) {
    size_t k = 0;
#ifdef BCNN_TRAINING_AVX512
    for (; k + 16 <= channels; k += 16) {
        const __m512 sum = _mm512_add_ps(_mm512_loadu_ps(x + k), _mm512_loadu_ps(bias + k));
        uint32_t mask = _mm512_cmp_ps_mask(sum, _mm512_setzero_ps(), _CMP_GE_OQ);
        mask = (mask | mask << 8) & 0x00FF00FF;  // four signs move to the upper half of a byte
        store(index + k / 4, (mask << 4 | mask << 8) & 0xF0F0F0F0);
    }
#endif
#ifdef BCNN_TRAINING_AVX2
    for (; k + 8 <= channels; k += 8) {
        const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(x + k), _mm256_loadu_ps(bias + k));
        const unsigned mask = unsigned(_mm256_movemask_ps(_mm256_cmp_ps(sum, _mm256_setzero_ps(), _CMP_GE_OQ)));
        index[k / 4] = uint8_t(mask << 4);
        index[k / 4 + 1] = uint8_t(mask & 0xF0);
    }
#endif
    for (; k < channels; k += 4) {
        unsigned bits = 0;
        for (size_t i = 0; i < 4 && k + i < channels; i++) bits |= unsigned(x[k + i] + bias[k + i] >= 0) << (4 + i);
        index[k / 4] = uint8_t(bits);
    }
}

// Index of one channel of four pixels, for every channel: groups over m.
template <class F>
BCNN_INLINE void index_panel(size_t k, const float* const x[kGroup], const float* bias, uint8_t* index) {
    typename Integers<F>::words bits{};
    for (size_t i = 0; i < kGroup; i++) {
        const F sum = load<F>(x[i] + k) + load<F>(bias + k);
        if constexpr (sizeof(F) == 4)
            bits |= (sum >= 0 ? 16 : 0) << i;
        else
            bits |= (sum >= 0) & (16 << i);
    }
    if constexpr (sizeof(F) == 4)
        index[k] = uint8_t(bits);
    else
        store(index + k, __builtin_convertvector(bits, typename Integers<F>::bytes));
}

BCNN_INLINE void index_pixels(const float* const x[kGroup], const float* bias, size_t channels, uint8_t* index) {
    BCNN_PANELS(channels, index_panel, x, bias, index);
}

// The product where weights are real and lanes are pixels: out[k][16] = sum over o of w[o][k] * v[o][16]. `packed` is w as
// [K / 6][O][6], or in twelves: twelve sums fit sixteen registers beside what they are made of, and hide how long one takes.
constexpr size_t kColumns = 12 * kVector / kRow;

static void real_sum(const float* v, const float* packed, size_t rows, size_t columns, float* out) {
    constexpr size_t parts = kRow / kVector;
    for (size_t j = 0; j < columns; j += kColumns) {
        fv sum[kColumns][parts] = {};
        const float* w = packed + j * rows;
        for (size_t o = 0; o < rows; o++, w += kColumns) {
            fv row[parts];
            for (size_t i = 0; i < parts; i++) row[i] = load<fv>(v + o * kLanes + i * kFloats);
            for (size_t n = 0; n < kColumns; n++)
                for (size_t i = 0; i < parts; i++) sum[n][i] += w[n] * row[i];
        }
        for (size_t n = 0; n < kColumns && j + n < columns; n++)
            for (size_t i = 0; i < parts; i++) store(out + (j + n) * kLanes + i * kFloats, sum[n][i]);
    }
}

BCNN_INLINE void transpose8(const float* from, size_t from_stride, float* to, size_t to_stride) {
    f8 r[8], t[8];
    for (int i = 0; i < 8; i++) r[i] = load<f8>(from + i * from_stride);
    for (int i = 0; i < 8; i += 2) {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = __builtin_shufflevector(t[i], t[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 1] = __builtin_shufflevector(t[i], t[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        r[i + 2] = __builtin_shufflevector(t[i + 1], t[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 3] = __builtin_shufflevector(t[i + 1], t[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int i = 0; i < 4; i++) {
        store(to + i * to_stride, __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11));
        store(to + (i + 4) * to_stride, __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15));
    }
}

#ifdef BCNN_TRAINING_AVX512
// Sixteen rows of eight, to eight of sixteen: row i and row i + 8 share a vector. Whole vectors are stored, since a vector that is
// read again as one cannot be forwarded from two stores.
BCNN_INLINE void transpose16(const float* from, size_t from_stride, float* to, size_t to_stride) {
    fv r[8], t[8];
    for (int i = 0; i < 8; i++) {
        const f8 a = load<f8>(from + i * from_stride), b = load<f8>(from + (i + 8) * from_stride);
        r[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    for (int i = 0; i < 8; i += 2) {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            const fv a = t[i + j], b = t[i + j + 2];
            r[i + 2 * j] = __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
            r[i + 2 * j + 1] =
                __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
        }
    for (int i = 0; i < 4; i++) {
        const fv a = r[i], b = r[i + 4];
        store(to + i * to_stride,
              __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27));
        store(to + (i + 4) * to_stride,
              __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31));
    }
}
#endif

// [rows][columns] -> [columns][rows]; both counts are multiples of 8.
static void transpose(const float* from, size_t from_stride, size_t rows, size_t columns, float* to, size_t to_stride) {
    for (size_t c = 0; c < columns; c += 8) {
        size_t r = 0;
#ifdef BCNN_TRAINING_AVX512
        for (; r + 16 <= rows; r += 16)
            transpose16(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
#endif
        for (; r < rows; r += 8) transpose8(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
}
