// The k x k convolution of signs, forward and backward. Part of kernels.inl.
//
// Forward, one dot over taps x channels: the signs of an image are made once, with its padding around them, so that what a filter row
// reads is one run of bytes. Padding 0 is no sign: it is taken for +1, and what that added to a pixel of the border (or to a
// gradient) is subtracted, which is exact in integers.
// Backward, `signs.inl` says by which tables:
//   weights   groups of four pixels of the result, columns (tap, channel), lanes o
//   x         groups of four o, columns channels, lanes images: a tap then is another pixel and needs no lane moved

// What follows from a convolution's shape.
struct TapShape {
    explicit TapShape(const TapConv& c)
        : padded_height(c.height + 2 * c.padding),
          padded_width(c.width + 2 * c.padding),
          out_height((padded_height - c.kernel_height) / c.stride + 1),
          out_width((padded_width - c.kernel_width) / c.stride + 1),
          taps(c.kernel_height * c.kernel_width),
          inputs(taps * c.channels_in),
          pixels(c.images * out_height * out_width) {}
    size_t padded_height, padded_width, out_height, out_width, taps, inputs, pixels;  // K = `inputs`, M = `pixels`
};

// A pixel of the result, and the next one.
struct Place {
    Place(const TapShape& s, size_t m)
        : shape(s), image(m / (s.out_height * s.out_width)), y(m / s.out_width % s.out_height), x(m % s.out_width) {}
    BCNN_MEMBER void next() {
        if (++x < shape.out_width) return;
        x = 0;
        if (++y < shape.out_height) return;
        y = 0;
        image++;
    }
    // Where its filter begins in padded images.
    BCNN_MEMBER size_t corner(const TapConv& conv) const {
        return (image * shape.padded_height + y * conv.stride) * shape.padded_width + x * conv.stride;
    }
    const TapShape& shape;
    size_t image, y, x;
};

// `visit(tap)` for every tap of a pixel that lies outside of the map.
template <class Visit>
BCNN_INLINE void outside(const TapConv& conv, const Place& at, const Visit& visit) {
    const size_t top = at.y * conv.stride, left = at.x * conv.stride, p = conv.padding;
    if (top >= p && left >= p && top + conv.kernel_height <= conv.height + p &&
        left + conv.kernel_width <= conv.width + p)
        return;
    for (size_t ty = 0; ty < conv.kernel_height; ty++)
        for (size_t tx = 0; tx < conv.kernel_width; tx++)  // unsigned: what is below 0 is large
            if (top + ty - p >= conv.height || left + tx - p >= conv.width) visit(ty * conv.kernel_width + tx);
}

// --- forward --------------------------------------------------------------------------------------------------------

// The signs of one padded image as numbers of table rows, [Hp][Wp][C / 4].
static void index_image(const TapConv& conv, const TapShape& shape, const float* x, uint8_t* index) {
    const size_t groups = conv.channels_in / kGroup, p = conv.padding;
    if (p) fill(index, shape.padded_height * shape.padded_width * groups, uint8_t(conv.pad < 0 ? 0 : 0xF0));
    for (size_t y = 0; y < conv.height; y++) {
        uint8_t* row = index + ((y + p) * shape.padded_width + p) * groups;
        for (size_t i = 0; i < conv.width; i++, x += conv.channels_in, row += groups)
            index_channels(x, conv.bias, conv.channels_in, row);
    }
}

// Torch's filter [C][taps] as the dot reads it, [taps][C].
static void lay_out(const TapConv& conv, const TapShape& shape, size_t o, float* filters) {
    const float* from = conv.weight + o * shape.inputs;
    float* __restrict to = filters + o * shape.inputs;
    for (size_t c = 0; c < conv.channels_in; c += 8)  // eight channels at a time, which lie in few cache lines
        for (size_t t = 0; t < shape.taps; t++)
            for (size_t i = c; i < c + 8; i++) to[t * conv.channels_in + i] = from[i * shape.taps + t];
}

// What each tap adds where all its inputs are +1, [taps][O]: of one o.
template <class Y>
static void tap_sums(const TapConv& conv, const TapShape& shape, size_t o, const float* filters, Y* sums) {
    const float* w = filters + o * shape.inputs;
    for (size_t t = 0; t < shape.taps; t++) {
        Y sum = 0;
        for (size_t c = 0; c < conv.channels_in; c++, w++) {
            if constexpr (sizeof(Y) == sizeof(float))
                sum += *w;
            else
                sum = Y(sum + (*w >= 0 ? 1 : -1));
        }
        sums[t * conv.channels + o] = sum;
    }
}

// Pixels m ... m+n: the rows of signs that their filters read, [n][K / 4].
static void gather(const TapConv& conv, const TapShape& shape, const uint8_t* signs, size_t m, size_t n,
                   uint8_t* index) {
    const size_t groups = conv.channels_in / kGroup, run = conv.kernel_width * groups;
    Place at(shape, m);
    for (size_t i = 0; i < n; i++, at.next()) {
        const uint8_t* from = signs + at.corner(conv) * groups;
        for (size_t ty = 0; ty < conv.kernel_height; ty++, from += shape.padded_width * groups, index += run) {
            size_t b = 0;
            for (; b + 16 <= run; b += 16) __builtin_memcpy(index + b, from + b, 16);
            for (; b < run; b++) index[b] = from[b];
        }
    }
}

// Without the padding that was taken for +1, and times the scale: dots [n][O] of channels k ... end become the result.
template <class Y>
static void finish(const TapConv& conv, const TapShape& shape, const Y* sums, size_t m, size_t n, size_t k, size_t end,
                   Y* y, float* out) {
    Place at(shape, m);
    for (size_t i = 0; i < n; i++, at.next(), y += conv.channels) {
        Y* __restrict row = y;
        if (conv.pad == 0)
            outside(conv, at, [&](size_t tap) {
                const Y* sum = sums + tap * conv.channels;
                for (size_t o = k; o < end; o++) row[o] = Y(row[o] - sum[o]);
            });
        float* __restrict to = out + (m + i) * conv.channels;
        for (size_t o = k; o < end; o++) to[o] = float(row[o]) * conv.scale[o];
    }
}

template <class V, class T, class Y>
static void forward(const TapConv& conv, float* out) {
    constexpr size_t lanes = kRow / sizeof(T);
    const TapShape shape(conv);
    BinaryConv flat{};  // one pixel, K channels: what the dot is of
    flat.inputs = shape.inputs;
    flat.channels = conv.channels;
    const size_t groups = shape.inputs / kGroup, panels = units(conv.channels, lanes),
                 blocks = units(shape.pixels, kForwardPixels), threads = size_t(conv.threads);
    const size_t cuts = threads == 1 ? 1 : least(panels, units(4 * threads, blocks));  // where blocks are too few
    const size_t image = shape.padded_height * shape.padded_width * conv.channels_in / kGroup,
                 read = conv.height * conv.width * conv.channels_in;
    Buffer<char> table(panels * groups * kTable);
    Buffer<uint8_t> signs(conv.images * image), index(threads * kForwardPixels * groups);
    Buffer<T> partial(threads * kForwardPixels * lanes);
    Buffer<float> filters(conv.channels * shape.inputs);
    Buffer<Y> sums(shape.taps * conv.channels), dots(threads * kForwardPixels * conv.channels);
    const int pieces[] = {int(panels + conv.images), int(blocks * cuts)};
    parallel(conv.threads, pieces, 2, [&](int stage, size_t piece, size_t thread) {
        if (stage == 0 && piece < panels) {
            for (size_t o = piece * lanes; o < least((piece + 1) * lanes, conv.channels); o++) {
                lay_out(conv, shape, o, filters);
                tap_sums<Y>(conv, shape, o, filters, sums);
            }
            weight_table<V, T>(flat, filters, piece, table + piece * groups * kTable);
        } else if (stage == 0) {
            const size_t n = piece - panels;
            index_image(conv, shape, conv.x + n * read, signs + n * image);
        } else {
            const size_t m = piece / cuts * kForwardPixels, n = least(kForwardPixels, shape.pixels - m);
            const Range cut(panels, piece % cuts, cuts);
            uint8_t* own = index + thread * kForwardPixels * groups;
            Y* y = dots + thread * kForwardPixels * conv.channels;
            gather(conv, shape, signs, m, n, own);
            convolve<V, T, Y>(flat, own, table, n, cut, partial + thread * kForwardPixels * lanes, y);
            finish<Y>(conv, shape, sums, m, n, cut.begin * lanes, least(cut.end * lanes, conv.channels), y, out);
        }
    });
}

static void forward(const TapConv& conv, float* out) {
    if (conv.binary_weights)
        forward<i8v, int8_t, int16_t>(conv, out);
    else
        forward<fv, float, float>(conv, out);
}

// --- the gradient of the weights --------------------------------------------------------------------------------------

// The signs of one padded image, a byte each, 16 for +1: [Hp][Wp][C].
static void sign_image(const TapConv& conv, const TapShape& shape, const float* x, uint8_t* signs) {
    const size_t channels = conv.channels_in, p = conv.padding;
    if (p) fill(signs, shape.padded_height * shape.padded_width * channels, uint8_t(conv.pad < 0 ? 0 : 16));
    for (size_t y = 0; y < conv.height; y++)
        for (size_t i = 0; i < conv.width; i++, x += channels) {
            uint8_t* to = signs + ((y + p) * shape.padded_width + i + p) * channels;
            for (size_t c = 0; c < channels; c += 8) {
                const auto positive = load<f8>(x + c) + load<f8>(conv.bias + c) >= 0;
                store(to + c, __builtin_convertvector(positive & 16, u8x8));
            }
        }
}

// The signs that pixels m ... m+n read, four pixels to a number: [n / 4][K]. Past the end the last pixel again: its gradient is 0.
static void index_taps(const TapConv& conv, const TapShape& shape, const uint8_t* signs, size_t m, size_t n,
                       uint8_t* index) {
    const size_t run = conv.kernel_width * conv.channels_in;
    Place at(shape, m);
    for (size_t i = 0; i < n; i += kGroup) {
        const uint8_t* from[kGroup];
        for (size_t j = 0; j < kGroup; j++) {
            from[j] = i + j < n ? signs + at.corner(conv) * conv.channels_in : from[j - 1];
            at.next();
        }
        for (size_t ty = 0; ty < conv.kernel_height; ty++, index += run) {
            const size_t row = ty * shape.padded_width * conv.channels_in;
            const uint8_t *a = from[0] + row, *b = from[1] + row, *c = from[2] + row, *d = from[3] + row;
            uint8_t* __restrict to = index;
            for (size_t k = 0; k < run; k += 8) {  // a + 2 b + 4 c + 8 d: bytes below 32 never carry into the next
                const uint64_t cd = load<uint64_t>(c + k) + 2 * load<uint64_t>(d + k);
                store(to + k, load<uint64_t>(a + k) + 2 * load<uint64_t>(b + k) + 4 * cd);
            }
        }
    }
}

// Adds pixels m ... m+n to the gradient of one panel of sixteen o: `sums` [K][16], and `border` [taps][16] for what padding 0 is not.
static void add_pixels(const TapConv& conv, const TapShape& shape, const float* gradient, size_t panel,
                       const uint8_t* index, size_t m, size_t n, char* table, float* sums, float* border) {
    alignas(64) float rows[kBackwardPixels * kLanes];
    const size_t width = least(kLanes, conv.channels - panel * kLanes);
    Place at(shape, m);
    for (size_t first = 0; first < n; first += kBackwardPixels) {
        const size_t count = least(kBackwardPixels, n - first), groups = units(count, kGroup);
        for (size_t i = 0; i < round_up(count, kGroup); i++) {
            float* row = rows + i * kLanes;
            if (i >= count || width < kLanes) fill(row, kLanes, 0.0f);
            const float* from = gradient + (m + first + i) * conv.channels + panel * kLanes;
            for (size_t o = 0; i < count && o < width; o += 8)
                store(row + o, f8(load<f8>(from + o) * load<f8>(conv.scale + panel * kLanes + o)));
        }
        sums_of_groups(rows, kLanes, groups, table);
        select_sum<fv>(table, index + first / kGroup * shape.inputs, 1, shape.inputs, groups, shape.inputs, (char*)sums,
                       true);
        if (conv.pad == 0)
            for (size_t i = 0; i < count; i++, at.next())
                outside(conv, at, [&](size_t tap) {
                    for (size_t o = 0; o < kLanes; o++) border[tap * kLanes + o] += rows[i * kLanes + o];
                });
    }
}

// The finished sums of a panel, [K][16] and [taps][16], as rows of the gradient: times the slope of the weights' sign. `rows` is [16][K].
static void write_panel(const TapConv& conv, const TapShape& shape, size_t panel, const float* sums,
                        const float* border, float* rows, const TapConvGradient& gradient) {
    for (size_t k = 0; k < shape.inputs; k += 8) {
        alignas(64) float some[8 * kLanes];
        const float* correction = border + k / conv.channels_in * kLanes;  // eight channels never cross a tap
        for (size_t i = 0; i < 8 * kLanes; i++) some[i] = sums[k * kLanes + i] - correction[i % kLanes];
        for (size_t o = 0; o < kLanes; o += 8) transpose8(some + o, kLanes, rows + o * shape.inputs + k, shape.inputs);
    }
    for (size_t o = panel * kLanes; o < least((panel + 1) * kLanes, conv.channels); o++) {
        const float *from = rows + o % kLanes * shape.inputs, *latent = conv.weight + o * shape.inputs;
        float* __restrict to = gradient.weight + o * shape.inputs;
        const float inside = gradient.inside[o], outside = gradient.outside[o], limit = gradient.limit;
        for (size_t c = 0; c < conv.channels_in; c += 8)
            for (size_t t = 0; t < shape.taps; t++)
                for (size_t i = c; i < c + 8; i++) to[i * shape.taps + t] = from[t * conv.channels_in + i];
        to = gradient.weight + o * shape.inputs;
        for (size_t k = 0; k < shape.inputs; k++) to[k] *= __builtin_fabsf(latent[k]) <= limit ? inside : outside;
    }
}

// --- the gradient of x ------------------------------------------------------------------------------------------------

// Four columns of real weights: out[k][16] += sum over o of w[o][k] * v[o][16]; `packed` is w as [C / 4][O][4].
static void add_real_columns(const float* v, const float* packed, size_t rows, size_t columns, float* out) {
    for (size_t j = 0; j < columns; j += kGroup, out += kGroup * kLanes) {
        f8 sum[kGroup][2];
        for (size_t n = 0; n < kGroup; n++)
            sum[n][0] = load<f8>(out + n * kLanes), sum[n][1] = load<f8>(out + n * kLanes + 8);
        const float* w = packed + j * rows;
        for (size_t o = 0; o < rows; o++, w += kGroup) {
            const f8 low = load<f8>(v + o * kLanes), high = load<f8>(v + o * kLanes + 8);
            for (size_t n = 0; n < kGroup; n++) {
                sum[n][0] += w[n] * low;
                sum[n][1] += w[n] * high;
            }
        }
        for (size_t n = 0; n < kGroup; n++) {
            store(out + n * kLanes, sum[n][0]);
            store(out + n * kLanes + 8, sum[n][1]);
        }
    }
}

// What the filters are packed to: four o to a number, [O / 4][K], or real, [K / 4][O][4].
struct TapWeights {
    const uint8_t* index;
    const float* packed;
};

static void pack_taps(const TapConv& conv, const TapShape& shape, size_t group, const float* zeros, float* filters,
                      uint8_t* index, float* packed) {
    const size_t first = group * kGroup;
    for (size_t o = first; o < first + kGroup; o++) lay_out(conv, shape, o, filters);
    if (conv.binary_weights) {
        const float* rows[kGroup];
        for (size_t i = 0; i < kGroup; i++) rows[i] = filters + (first + i) * shape.inputs;
        index_pixels(rows, zeros, shape.inputs, index + group * shape.inputs);
        return;
    }
    for (size_t o = first; o < first + kGroup; o++)
        for (size_t k = 0; k < shape.inputs; k++)
            packed[(k / kGroup * conv.channels + o) * kGroup + k % kGroup] = filters[o * shape.inputs + k];
}

// Sixteen images, channels [begin, end) of x: the gradient of the signs in a ring of rows [k][W][channels][16], and from there to x.
struct ImageLanes {
    const TapConv& conv;
    const TapShape& shape;
    const TapConvGradient& gradient;
    size_t first, count;  // images
    size_t begin, end;    // channels
    float* ring;          // [kernel_height][W][end - begin][16]
    float* dy;            // [O][16]
    float* rows;  // [16][C or O]: images lie so far apart that their lines push each other out of the cache, so each is
                  // read or written in one go
    char* table;

    size_t row_size() const { return conv.width * (end - begin) * kLanes; }
    float* slot(size_t row) const { return ring + row % conv.kernel_height * row_size(); }

    // The gradient at one pixel of the result, of all images, times the scale.
    void load_pixel(size_t y, size_t x) const {
        const size_t image = shape.out_height * shape.out_width * conv.channels;
        const float* from = gradient.out + first * image + (y * shape.out_width + x) * conv.channels;
        for (size_t n = 0; n < kLanes; n++)
            for (size_t o = 0; o < conv.channels; o += 8)
                store(rows + n * conv.channels + o,
                      n < count ? f8(load<f8>(from + n * image + o) * load<f8>(conv.scale + o)) : f8{});
        transpose(rows, conv.channels, kLanes, conv.channels, dy, kLanes);
    }

    // To every pixel of x that the filter at y, x reads.
    template <class Add>
    BCNN_MEMBER void scatter(size_t y, size_t x, const Add& add) const {
        for (size_t ty = 0; ty < conv.kernel_height; ty++) {
            const size_t row = y * conv.stride + ty - conv.padding;  // unsigned: what is below 0 is large
            if (row >= conv.height) continue;
            for (size_t tx = 0; tx < conv.kernel_width; tx++) {
                const size_t column = x * conv.stride + tx - conv.padding;
                if (column < conv.width) add(ty * conv.kernel_width + tx, slot(row) + column * (end - begin) * kLanes);
            }
        }
    }

    void add_pixel(size_t y, size_t x, const TapWeights& weights) const {
        const size_t groups = conv.channels / kGroup;
        if (!conv.binary_weights)
            return scatter(y, x, [&](size_t tap, float* to) {
                add_real_columns(dy, weights.packed + (tap * conv.channels_in + begin) * conv.channels, conv.channels,
                                 end - begin, to);
            });
        for (size_t chunk = 0; chunk < groups; chunk += kChunk) {
            const size_t some = least(kChunk, groups - chunk);
            sums_of_groups(dy + chunk * kGroup * kLanes, kLanes, some, table);
            const uint8_t* index = weights.index + chunk * shape.inputs + begin;
            scatter(y, x, [&](size_t tap, float* to) {
                select_sum<fv>(table, index + tap * conv.channels_in, 1, shape.inputs, some, end - begin, (char*)to,
                               true);
            });
        }
    }

    // A finished row: the slope of the sign turns it into the gradient of x, whose sums are the bias's [C]. The slot is empty again.
    void emit(size_t row, float* bias_sums) const {
        float* from = slot(row);
        const float limit = conv.limit;
        for (size_t c = begin; c < end; c++) bias_sums[c] = 0;
        const f8 zero = f8{}, one = zero + 1.0f;
        for (size_t i = 0; i < conv.width; i++, from += (end - begin) * kLanes) {
            transpose(from, kLanes, end - begin, kLanes, rows, end - begin);
            for (size_t n = 0; n < count; n++) {
                const size_t at = (((first + n) * conv.height + row) * conv.width + i) * conv.channels_in;
                const float* ds = rows + n * (end - begin);
                for (size_t c = begin; c < end; c += 8, ds += 8) {
                    const f8 z = load<f8>(conv.x + at + c) + load<f8>(conv.bias + c), size = z > 0 ? z : -z;
                    const f8 falling = 2.0f - 2.0f * size;
                    const f8 slope = conv.triangle ? (falling > 0 ? falling : zero) : (size <= limit ? one : zero);
                    const f8 dx = load<f8>(ds) * slope;
                    store(gradient.x + at + c, dx);
                    store(bias_sums + c, f8(load<f8>(bias_sums + c) + dx));
                }
            }
        }
        fill(slot(row), row_size(), 0.0f);
    }

    void run(const TapWeights& weights, float* bias_sums) const {
        fill(ring, conv.kernel_height * row_size(), 0.0f);
        size_t done = 0;
        for (size_t y = 0; y < shape.out_height; y++) {
            for (; done + conv.padding < y * conv.stride && done < conv.height; done++)
                emit(done, bias_sums + done * conv.channels_in);
            for (size_t x = 0; x < shape.out_width; x++) {
                load_pixel(y, x);
                add_pixel(y, x, weights);
            }
        }
        for (; done < conv.height; done++) emit(done, bias_sums + done * conv.channels_in);
    }
};

// --- both -------------------------------------------------------------------------------------------------------------

// Lanes of pixels have sums of their own, which are added in the end. How many is a matter of the shape alone, or bits would depend on
// threads. Where the sums are large there is one, and threads share it by panels.
static size_t tap_lanes(const TapConv& conv, const TapShape& shape) {
    constexpr size_t most = 8, most_floats = 300 << 10;
    return conv.channels * shape.inputs > most_floats ? 1 : least(most, units(shape.pixels, 4 * kForwardPixels));
}

static void backward(const TapConv& conv, const TapConvGradient& gradient) {
    const TapShape shape(conv);
    const size_t threads = size_t(conv.threads), read = conv.height * conv.width * conv.channels_in;
    const size_t inputs = shape.inputs, panels = units(conv.channels, kLanes), groups = conv.channels / kGroup;
    const size_t blocks = units(shape.pixels, kForwardPixels), lanes = tap_lanes(conv, shape);
    const bool by_panels = lanes == 1 && threads > 1;  // all indices first: the same sums
    const size_t image = shape.padded_height * shape.padded_width * conv.channels_in;
    const size_t index_size = kForwardPixels / kGroup * inputs, panel_size = (inputs + shape.taps) * kLanes;
    const size_t rows_size = (inputs > conv.channels ? inputs : conv.channels) * kLanes;
    const size_t teams = gradient.x ? units(conv.images, kLanes) : 0, eights = conv.channels_in / 8;
    const size_t cuts = threads == 1 || !teams ? 1 : least(eights, units(4 * threads, teams));
    const size_t ring = conv.kernel_height * conv.width * round_up(units(eights, cuts) * 8, 8) * kLanes;
    Buffer<uint8_t> signs(conv.images * image), index((by_panels ? blocks : threads) * index_size),
        weight_index(conv.binary_weights ? groups * inputs : 0);
    Buffer<float> packed(conv.binary_weights ? 0 : inputs * conv.channels), zeros(inputs),
        sums(lanes * panels * panel_size), rings(teams ? threads * ring : 0), dy(threads * conv.channels * kLanes),
        bias_sums(teams * conv.height * conv.channels_in), filters(teams ? conv.channels * inputs : 0),
        rows(threads * rows_size);
    Buffer<char> tables(threads * kChunk * kTable);
    fill<float>(zeros, inputs, 0.0f);
    const TapWeights weights{weight_index, packed};
    const auto clear = [&](float* of) { fill(of, panel_size, 0.0f); };
    const auto add_block = [&](size_t block, size_t panel, const uint8_t* at, float* to, size_t thread) {
        const size_t m = block * kForwardPixels, n = least(kForwardPixels, shape.pixels - m);
        add_pixels(conv, shape, gradient.out, panel, at, m, n, tables + thread * kChunk * kTable, to,
                   to + inputs * kLanes);
    };
    const auto index_block = [&](size_t block, uint8_t* to) {
        const size_t m = block * kForwardPixels;
        index_taps(conv, shape, signs, m, least(kForwardPixels, shape.pixels - m), to);
    };
    const size_t weight_pieces = by_panels ? panels : lanes;
    const int pieces[] = {int(conv.images + (teams ? groups : 0)), int(by_panels ? blocks : 0),
                          int(weight_pieces + teams * cuts), int(panels + 1)};
    parallel(conv.threads, pieces, 4, [&](int stage, size_t piece, size_t thread) {
        if (stage == 0 && piece < conv.images) {
            sign_image(conv, shape, conv.x + piece * read, signs + piece * image);
        } else if (stage == 0) {
            pack_taps(conv, shape, piece - conv.images, zeros, filters, weight_index, packed);
        } else if (stage == 1) {
            index_block(piece, index + piece * index_size);
        } else if (stage == 2 && piece >= weight_pieces) {
            const size_t team = (piece - weight_pieces) / cuts;
            const Range cut(eights, (piece - weight_pieces) % cuts, cuts);
            const size_t first = team * kLanes;
            const ImageLanes work{conv,
                                  shape,
                                  gradient,
                                  first,
                                  least(kLanes, conv.images - first),
                                  8 * cut.begin,
                                  8 * cut.end,
                                  rings + thread * ring,
                                  dy + thread * conv.channels * kLanes,
                                  rows + thread * rows_size,
                                  tables + thread * kChunk * kTable};
            work.run(weights, bias_sums + team * conv.height * conv.channels_in);
        } else if (stage == 2 && by_panels) {
            float* own = sums + piece * panel_size;
            clear(own);
            for (size_t block = 0; block < blocks; block++)
                add_block(block, piece, index + block * index_size, own, thread);
        } else if (stage == 2) {
            float* own = sums + piece * panels * panel_size;
            for (size_t panel = 0; panel < panels; panel++) clear(own + panel * panel_size);
            const Range range(blocks, piece, lanes);
            for (size_t block = range.begin; block < range.end; block++) {
                index_block(block, index + thread * index_size);
                for (size_t panel = 0; panel < panels; panel++)
                    add_block(block, panel, index + thread * index_size, own + panel * panel_size, thread);
            }
        } else if (piece < panels) {
            float* __restrict own = sums + piece * panel_size;
            for (size_t lane = 1; lane < lanes; lane++)
                for (size_t i = 0; i < panel_size; i++) own[i] += own[lane * panels * panel_size + i];
            write_panel(conv, shape, piece, own, own + inputs * kLanes, rows + thread * rows_size, gradient);
        } else if (gradient.bias) {
            for (size_t c = 0; c < conv.channels_in; c++) {
                double sum = 0;
                for (size_t row = 0; row < teams * conv.height; row++) sum += bias_sums[row * conv.channels_in + c];
                gradient.bias[c] = float(sum);
            }
        }
    });
}
