// Which pixels a filter reads, as bcnn/program/ops/window.py says: tap k of row y is row y S + k D - top.
#pragma once
#include <algorithm>

#include "ops/op.h"

namespace bcnn {

struct Window {
    int kernel[2], stride[2], padding[4], dilation[2];  // height, width; top, left, bottom, right

    explicit Window(const Record& r) {
        for (int i = 0; i < 2; i++) {
            kernel[i] = r.number("kernel", i);
            stride[i] = r.number("stride", i);
            dilation[i] = r.number("dilation", i);
        }
        for (int i = 0; i < 4; i++) padding[i] = r.number("padding", i);
    }
    int taps() const { return kernel[0] * kernel[1]; }
    bool is(int k, int s, int p) const {  // square, the same on all sides, no dilation
        return kernel[0] == k && kernel[1] == k && stride[0] == s && stride[1] == s && dilation[0] == 1 &&
               dilation[1] == 1 && std::all_of(padding, padding + 4, [p](int side) { return side == p; });
    }
    int tap(int y, int ky) const { return y * stride[0] + ky * dilation[0] - padding[0]; }
    // Rows of a map of `height` that row y reads; where all taps are outside, the row nearest to them.
    Range rows(int y, int height) const {
        const int first = tap(y, 0), last = tap(y, kernel[0] - 1);
        return {std::clamp(first, 0, height - 1), std::clamp(last, 0, height - 1) + 1};
    }
    // The rows that make row y, none where they are outside.
    template <class Value>
    void rows_of(int y, const Map& map, int height, const Value** to) const {
        for (int ky = 0; ky < kernel[0]; ky++) to[ky] = on_map(y, ky, height) ? map.values<Value>(tap(y, ky)) : nullptr;
    }
    bool on_map(int y, int ky, int height) const { return 0 <= tap(y, ky) && tap(y, ky) < height; }

    // Of a convolution that reads `reads` channels of a map; columns are laid for blocks of about as many pixels.
    TapsData taps_of(const Shape& from, const Shape& made, int reads, int groups) const {
        const int blocks = (made.w + kBlock - 1) / kBlock, block = (made.w + blocks - 1) / blocks;
        const int step = dilation[1] == 1 ? std::min(stride[1], kernel[1]) : kernel[1];
        return {kernel[0], kernel[1], stride[1], dilation[1], padding[1], from.c, from.w,
                made.w,    reads,     made.c,    groups,      block,      step,   (block - 1) * step + kernel[1]};
    }
    static size_t column_values(const TapsData& d) {
        return size_t(d.kernel_height) * size_t(d.columns) * size_t(d.k / d.groups);
    }
};

}  // namespace bcnn
