// FixedDepthwise: one filter a channel. 3 x 3 over a map padded with one pixel has a kernel of its own, which does a
// PReLU as well.
//
// Sums saturate, tap by tap. Where none can leave 16 bits, kernels add without saturating, with the same result: with
// |x| <= bound, a rounded product is at most (|w| bound + 2^14) >> 15.
#include <algorithm>
#include <cstdlib>

#include "ops/filter.h"
#include "plan/cost.h"

namespace bcnn {
namespace {

class FixedDepthwise : public FilterOp<FixedEndings> {
public:
    FixedDepthwise(const Record& r, const Build& build) : FilterOp(r, build) {
        const size_t o = size_t(shape.c), taps = size_t(window_.taps()), lanes = size_t(kernels_.fixed.lanes);
        const int16_t* const weight = r.shorts("weight", taps * o);
        offset_ = padded_shorts(r.shorts("offset", o), o);
        weight_ = Aligned<int16_t>(taps * padded(o));
        for (size_t t = 0; t < taps; t++)
            for (size_t c = 0; c < o; c++)
                weight_.data()[(c / lanes * taps + t) * lanes + c % lanes] = weight[t * o + c];
        small_ = window_.stride[0] <= 4 && window_.is(3, window_.stride[0], 1);
        if (small_) {
            FixedEndings::Bend bend = endings_.fuse_prelu();
            if (!bend.bend) {  // without PReLU, a bend of 0
                bend_ = Aligned<int16_t>(padded(o));
                bend.bend = bend_.data();
            }
            small_data_ = {reads_,
                           from[0].w,
                           window_.stride[0],
                           weight_.data(),
                           offset_.data(),
                           bend.bend,
                           bend.up,
                           sure(weight, taps, build),
                           std::all_of(bend.bend, bend.bend + o, [](int16_t b) { return b <= 0; })};
        } else {
            d_ = {window_.taps_of(from[0], shape, reads_, shape.c),
                  weight_.data(),
                  nullptr,
                  offset_.data(),
                  nullptr,
                  nullptr};
        }
    }
    int channels(int slot) const override { return slot ? endings_.channels(slot - 1) : reads_; }
    size_t parameter_bytes() const override {
        return weight_.bytes() + offset_.bytes() + bend_.bytes() + endings_.parameter_bytes();
    }
    size_t scratch_bytes() const override {  // kernel rows of every row of a step
        return (size_t(window_.kernel[0]) + size_t(window_.stride[0]) * size_t(std::min(shape.h, kBatchPixels))) *
               sizeof(int16_t*);
    }
    double row_time() const override {
        const double sums = small_ ? kFixedDepthwiseNs : window_.taps() * kFixedRealMacNs;
        return double(shape.w) * shape.c * (sums + endings_.row_time());
    }
    void run(const Task& task) const override {
        const auto rows = reinterpret_cast<const int16_t**>(task.scratch);
        if (small_) {
            const int first = window_.tap(task.y0, 0), last = window_.tap(task.y1 - 1, 2);
            for (int y = first; y <= last; y++)
                rows[y - first] = 0 <= y && y < from[0].h ? task.in[0].shorts(y) : nullptr;
            kernels_.fixed.depthwise3x3(small_data_, rows, task.in[0].view, task.out.shorts(task.y0), task.out.view,
                                        shape.w, task.y1 - task.y0);
        } else {
            for (int y = task.y0; y < task.y1; y++) {
                window_.rows_of(y, task.in[0], from[0].h, rows);
                kernels_.fixed.conv(FixedConvKind::depthwise, d_, rows, task.in[0].view, nullptr, task.out.shorts(y),
                                    task.out.view, task.c0, task.c1);
            }
        }
        finish(task);
    }

private:
    bool sure(const int16_t* weight, size_t taps, const Build& build) const {
        const std::vector<int>* const bound = build.ops[size_t(reads[0])]->bound();
        for (size_t c = 0; c < size_t(shape.c); c++) {
            const int64_t most = bound ? (*bound)[c % size_t(from[0].c)] : 32768;
            int64_t sum = std::abs(int(offset_.data()[c]));
            for (size_t t = 0; t < taps; t++)
                sum += (std::abs(int(weight[t * size_t(shape.c) + c])) * most + (1 << 14)) >> 15;
            if (sum > 32767) return false;
        }
        return true;
    }

    bool small_;
    Aligned<int16_t> weight_, offset_, bend_;
    FixedConvData d_{};
    FixedDepthwiseData small_data_{};
};

const Register fixed_depthwise("FixedDepthwise",
                               [](const Record& r, Build& b) { b.add(std::make_unique<FixedDepthwise>(r, b)); });

}  // namespace
}  // namespace bcnn
