// BinaryConv on float maps; see ops/dots.h.
//
// Zero padding. A tap outside the map contributes nothing to the dot, half a mismatch for each of its K / G channels:
//   1. n = mismatches on the map + missing K / (2 G).
//   2. The kernel reads 0 bits outside, and counts there popcount(w_tap) for each missing tap.
//   3. So n = counted + correction, correction = sum over missing taps of K / (2 G) - popcount(w_tap).
// All numbers are multiples of 1/2 below 2^17, exact in float32.
#include <cmath>
#include <limits>

#include "ops/dots.h"
#include "ops/endings.h"
#include "ops/ranks.h"

namespace bcnn {
namespace {

class BinaryConv : public Dots<BinaryConvData, Endings> {
public:
    BinaryConv(const Record& r, Build& build) : Dots(r, build) {
        bool negative_zero = false;
        const size_t k = size_t(reads_), o = size_t(shape.c);
        for (const Record& branch : records_) {
            const float* const offset = branch.floats("offset", o);
            for (int c = 0; c < shape.c; c++) negative_zero |= offset[c] == 0 && std::signbit(offset[c]);
            scale_.push_back(padded_floats(branch.floats("scale", o), o));
            offset_.push_back(padded_floats(offset, o));
            if (pointwise_)
                threshold_.push_back(
                    padded_floats(branch.floats("threshold", k), k, std::numeric_limits<float>::quiet_NaN()));
        }
        fused_ = endings_.fuse(negative_zero);
        d_.end = fused_.end;
        for (int i = 0; i < 2; i++)
            d_.slope[i] = fused_.slope[i] ? fused_.slope[i] : scale_[0].data();  // any, if not read
        read_sources(r, build, [&](const Record& branch) { return branch.floats("threshold", k); });
        const int wide = pointwise_ ? reads_ : 32 * dot_;
        set_sizes(kernels_.weight_bytes(wide), kernels_.bits_bytes(wide), bits_ <= kernels_.narrow_limit);
        for (size_t b = 0; b < records_.size(); b++) {
            if (pointwise_)
                kernels_.pack_weight(words_of(b), shape.c, reads_, weight_of(b));
            else if (d_.plain)
                copy_plain(b);
            else
                kernels_.pack_taps(words_of(b), shape.c, dot_, d_.narrow, weight_of(b));
            correction_.push_back(correction(b));
            tables_.push_back(rank_table(b));
            branches_.push_back({pointwise_ ? threshold_[b].data() : nullptr, weight_of(b), scale_[b].data(),
                                 offset_[b].data(), correction_[b].data(), tables_[b] ? &tables_[b]->table : nullptr});
        }
        d_.branch = branches_.data();
        records_.clear();
    }
    size_t parameter_bytes() const override {
        size_t bytes = Dots::parameter_bytes();
        for (const auto* arrays : {&threshold_, &scale_, &offset_, &correction_})
            for (const Aligned<float>& one : *arrays) bytes += one.bytes();
        for (const auto& one : tables_)
            if (one) bytes += one->rows.bytes() + one->threshold.bytes();
        return bytes;
    }
    double row_time() const override { return double(shape.w) * shape.c * (d_.branches * kFinishNs + dots_time()); }
    void run(const Task& task) const override {
        const auto s = step<float, BinaryConvStep>(task, fused_.slot, 2);
        (pointwise_ ? kernels_.binary_conv : kernels_.bit_conv)(d_, s);
        endings_.run(task, task.in + sources(), shape, kernels_);
    }

private:
    Aligned<float> correction(size_t b) const {
        if (pointwise_ || !taps_[b].some()) return Aligned<float>();
        const TapClasses& classes = taps_[b].classes[0];
        const size_t stride = padded(size_t(shape.c));
        Aligned<float> made(classes.count() * stride);
        classes.missing(taps_[b].window, words_of(b), shape.c, inner_, words_, [&](int c, size_t which, int twice) {
            made.data()[which * stride + size_t(c)] = 0.5f * float(twice);
        });
        return made;
    }

    struct OwnTable {
        FloatRankTable table;
        Aligned<float> threshold;
        Aligned<uint8_t> rows;
    };
    // None where the kernels have no use for it or it would be large.
    std::unique_ptr<OwnTable> rank_table(size_t b) const {
        const RankShape ranks{map_.c, reads_, shape.c};
        if (!pointwise_ || !d_.narrow || !ranks.fits() || ranks.replicas() > kernels_.rank_replicas) return nullptr;
        const int registers = ranks.replicas() > 8 ? 8 : 4;
        auto made = std::make_unique<OwnTable>();
        made->threshold = Aligned<float>(size_t(registers) * 8);
        std::fill(made->threshold.data(), made->threshold.data() + made->threshold.size(),
                  std::numeric_limits<float>::quiet_NaN());
        for (int k = 0; k < reads_; k++) made->threshold.data()[k / map_.c * 4 + k % map_.c] = threshold_[b].data()[k];
        made->rows = rank_rows(ranks, threshold_[b].data(), words_of(b), [](int o) { return o; });
        const uint8_t* const rows = made->rows.data();
        made->table = {
            {{rows, rows + ranks.table()}}, made->threshold.data(), registers, {ranks.step(0), ranks.step(1)}};
        return made;
    }

    Endings::Fused fused_;
    std::vector<Aligned<float>> threshold_, scale_, offset_, correction_;
    std::vector<BranchData> branches_;
    std::vector<std::unique_ptr<OwnTable>> tables_;  // by branch, or none
};

const Register binary_conv("BinaryConv", [](const Record& r, Build& b) {
    auto op = std::make_unique<BinaryConv>(r, b);  // adds the ops of its bits first
    b.add(std::move(op));
});

}  // namespace
}  // namespace bcnn
