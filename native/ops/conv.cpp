// Conv: real convolution. Depth wise 3 x 3 over a map padded with one pixel has a kernel of its own, which does a PReLU
// as well.
#include <algorithm>

#include "ops/filter.h"
#include "plan/cost.h"

namespace bcnn {
namespace {

class Conv : public FilterOp<Endings> {
public:
    Conv(const Record& r, const Build& build) : FilterOp(r, build) {
        const int groups = r.number("groups"), inner = reads_ / groups, made = shape.c / groups, lanes = kernels_.lanes;
        const size_t o = size_t(shape.c), taps = size_t(window_.taps());
        const float* const weight = r.floats("weight", taps * size_t(inner) * o);
        offset_ = padded_floats(r.floats("offset", o), o);
        kind_ = inner == 1 && made == 1      ? ConvKind::depthwise
                : groups == 1                ? ConvKind::dense
                : made % kernels_.lanes == 0 ? ConvKind::grouped
                                             : ConvKind::scattered;
        small_ = kind_ == ConvKind::depthwise && window_.stride[0] <= 4 && window_.is(3, window_.stride[0], 1);
        const int wide = kind_ == ConvKind::scattered ? 0
                         : kind_ == ConvKind::dense   ? lanes * kernels_.conv_registers
                                                      : lanes;
        weight_ = Aligned<float>(wide ? taps * size_t(inner) * padded(o) : taps * size_t(inner) * o);
        for (size_t i = 0; i < taps * size_t(inner); i++)  // [tap, channel] of all outputs
            for (size_t c = 0; c < o; c++) {
                const size_t block = wide ? c / size_t(wide) : 0, in_block = wide ? c % size_t(wide) : 0;
                const size_t to = wide ? (block * taps * size_t(inner) + i) * size_t(wide) + in_block : i * o + c;
                weight_.data()[to] = weight[i * o + c];
            }
        d_ = {window_.taps_of(from[0], shape, reads_, groups), weight_.data(), offset_.data()};
        if (small_) {
            const float* slope = endings_.fuse_prelu();
            if (!slope) {
                const std::vector<float> ones(o, 1.0f);  // without PReLU, a slope of 1
                slope_ = padded_floats(ones.data(), o, 1);
                slope = slope_.data();
            }
            depthwise_ = {reads_, from[0].w, window_.stride[0], weight_.data(), offset_.data(), slope};
        }
    }
    int channels(int slot) const override {
        return slot ? endings_.channels(slot - 1) : kind_ == ConvKind::depthwise ? reads_ : 0;
    }
    size_t weight_bytes() const override { return kind_ == ConvKind::depthwise ? 0 : weight_.bytes(); }
    size_t parameter_bytes() const override {
        return weight_.bytes() + offset_.bytes() + slope_.bytes() + endings_.parameter_bytes();
    }
    size_t scratch_bytes() const override {
        const bool dense = kind_ == ConvKind::dense || kind_ == ConvKind::grouped;
        return columns_at() + (dense ? Window::column_values(d_) * sizeof(float) + kSlack : 0);
    }
    double row_time() const override {
        const double values = double(shape.w) * shape.c;
        const double sums = small_ ? kDepthwiseNs : double(window_.taps()) * (reads_ / d_.groups) * kRealMacNs;
        return values * (sums + endings_.row_time());
    }
    void run(const Task& task) const override {
        const auto rows = reinterpret_cast<const float**>(task.scratch);
        if (small_) {
            const int first = window_.tap(task.y0, 0), last = window_.tap(task.y1 - 1, 2);
            for (int y = first; y <= last; y++)
                rows[y - first] = 0 <= y && y < from[0].h ? task.in[0].floats(y) : nullptr;
            kernels_.depthwise3x3(depthwise_, rows, task.in[0].view, task.out.floats(task.y0), task.out.view, shape.w,
                                  task.y1 - task.y0);
        } else {
            const auto columns = reinterpret_cast<float*>(task.scratch + columns_at());
            for (int y = task.y0; y < task.y1; y++) {
                window_.rows_of(y, task.in[0], from[0].h, rows);
                kernels_.conv(kind_, d_, rows, task.in[0].view, columns, task.out.floats(y), task.out.view, task.c0,
                              task.c1);
            }
        }
        finish(task);
    }

private:
    size_t columns_at() const {  // behind kernel rows of every row of a step
        const int height = small_ ? window_.stride[0] * std::min(shape.h, kBatchPixels) : 0;
        return (size_t(window_.kernel[0] + height) * sizeof(float*) + 63) / 64 * 64;
    }

    ConvKind kind_;
    bool small_;
    Aligned<float> weight_, offset_, slope_;
    ConvData d_;
    DepthwiseData depthwise_{};
};

const Register conv("Conv", [](const Record& r, Build& b) { b.add(std::make_unique<Conv>(r, b)); });

}  // namespace
}  // namespace bcnn
