// FixedConv: real convolution with sums of 32 bits, and fully connected layers, which are ones on a map of one pixel.
#include <algorithm>
#include <type_traits>

#include "ops/filter.h"
#include "plan/cost.h"

namespace bcnn {
namespace {

class FixedConv : public FilterOp<FixedEndings> {
public:
    FixedConv(const Record& r, const Build& build) : FilterOp(r, build) {
        const int groups = r.number("groups");
        const size_t o = size_t(shape.c), taps = size_t(window_.taps()), inner = size_t(reads_ / groups);
        const size_t height = size_t(window_.kernel[0]), lanes = size_t(kernels_.fixed.lanes);
        const int16_t* const weight = r.shorts("weight", taps * inner * o);
        const int16_t* const down = r.shorts("down", o);
        const int32_t* const offset = r.indices("offset", o);
        sums_ = Aligned<int32_t>(2 * padded(o));
        int32_t* const shift = sums_.data() + padded(o);
        for (size_t c = 0; c < o; c++) {
            sums_.data()[c] = offset[c] + ((1 << down[c]) >> 1);
            shift[c] = down[c];
        }
        const size_t made = o / size_t(groups), joined = joined_groups(groups, made, lanes);
        kind_ = joined <= kMostJoined ? FixedConvKind::dense : FixedConvKind::scattered;
        if (kind_ == FixedConvKind::dense) {
            const size_t width = taps / height, run = width * inner * joined, pairs = (run + 1) / 2;
            const size_t size = height * pairs * 2 * padded(o);
            const auto place = [&](auto* to) {
                for (size_t y = 0; y < height; y++)
                    for (size_t x = 0; x < width; x++)
                        for (size_t k = 0; k < inner; k++)
                            for (size_t c = 0; c < o; c++) {
                                const size_t i = (x * joined + c / made % joined) * inner + k;
                                to[(((c / lanes * height + y) * pairs + i / 2) * lanes + c % lanes) * 2 + i % 2] =
                                    std::remove_reference_t<decltype(*to)>(
                                        weight[((y * width + x) * inner + k) * o + c]);
                            }
            };
            const auto fits = [](int16_t w) { return w == int8_t(w); };
            if (alone() && std::all_of(weight, weight + taps * inner * o, fits)) {  // what memory brings is the time
                bytes_ = Aligned<int8_t>(size);
                place(bytes_.data());
            } else {
                weight_ = Aligned<int16_t>(size);
                place(weight_.data());
            }
        } else {
            weight_ = Aligned<int16_t>(taps * inner * o);
            std::copy(weight, weight + taps * inner * o, weight_.data());
        }
        // The last of the groups made together may be fewer: what is read in place of others meets weights of 0.
        const bool dense = kind_ == FixedConvKind::dense;
        const int apart = dense ? (groups + int(joined) - 1) / int(joined) : groups;
        d_ = {window_.taps_of(from[0], shape, dense ? apart * int(joined * inner) : reads_, apart),
              weight_.data(),
              bytes_.data(),
              nullptr,
              sums_.data(),
              shift};
        if (dense) d_.o = apart * int(joined * made);
    }
    int channels(int slot) const override { return slot ? endings_.channels(slot - 1) : 0; }
    bool splits_channels() const override { return shape.h == 1; }
    bool alone() const override { return from[0].h == 1 && from[0].w == 1; }
    size_t weight_bytes() const override { return alone() ? 0 : weight_.bytes(); }
    size_t parameter_bytes() const override {
        return weight_.bytes() + bytes_.bytes() + sums_.bytes() + endings_.parameter_bytes();
    }
    size_t scratch_bytes() const override {
        const size_t columns = kind_ == FixedConvKind::dense ? Window::column_values(d_) * sizeof(int16_t) + kSlack : 0;
        return columns_at() + columns;
    }
    double row_time() const override {
        const double sums = double(window_.taps()) * (reads_ / d_.groups) * kFixedRealMacNs;
        return double(shape.w) * shape.c * (sums + endings_.row_time());
    }
    void run(const Task& task) const override {
        const auto rows = reinterpret_cast<const int16_t**>(task.scratch);
        const auto columns = reinterpret_cast<int16_t*>(task.scratch + columns_at());
        for (int y = task.y0; y < task.y1; y++) {
            window_.rows_of(y, task.in[0], from[0].h, rows);
            kernels_.fixed.conv(kind_, d_, rows, task.in[0].view, columns, task.out.shorts(y), task.out.view, task.c0,
                                task.c1);
        }
        finish(task);
    }

private:
    // How many groups are made as one, with weights of 0 between them, so that whole registers of channels read the same
    // values. That many times the products, but a register of them at a time.
    static size_t joined_groups(int groups, size_t made, size_t lanes) {
        size_t joined = 1;
        while (joined < size_t(groups) && joined * made % lanes) joined++;
        return joined;
    }
    static constexpr size_t kMostJoined = 8;  // a register has 8 to 32 channels, and one by one they take longer still

    size_t columns_at() const { return (size_t(window_.kernel[0]) * sizeof(int16_t*) + 63) / 64 * 64; }

    FixedConvKind kind_;
    Aligned<int16_t> weight_;
    Aligned<int8_t> bytes_;
    Aligned<int32_t> sums_;
    FixedConvData d_{};
};

const Register fixed_conv("FixedConv", [](const Record& r, Build& b) { b.add(std::make_unique<FixedConv>(r, b)); });

}  // namespace
}  // namespace bcnn
