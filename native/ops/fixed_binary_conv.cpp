// FixedBinaryConv on int16 maps; see ops/dots.h and kernels/fixed_binary.inl.
#include <algorithm>
#include <cstdlib>

#include "ops/dots.h"
#include "ops/endings.h"
#include "ops/ranks.h"

namespace bcnn {
namespace {

class FixedBinaryConv : public Dots<FixedBinaryConvData, FixedEndings> {
public:
    FixedBinaryConv(const Record& r, Build& build) : Dots(r, build) {
        const size_t k = size_t(reads_), o = size_t(shape.c);
        for (const Record& branch : records_) {
            scale_.push_back(padded_shorts(branch.shorts("scale", o), o));
            offset_.push_back(padded_shorts(branch.shorts("offset", o), o));
            if (pointwise_) above_.push_back(padded_shorts(branch.shorts("above", k), k, 32767));
        }
        fused_ = endings_.fuse(d_.branches);
        d_.end = fused_.end;
        read_sources(r, build, [&](const Record& branch) { return branch.shorts("above", k); });
        const FixedKernels& fixed = kernels_.fixed;
        const bool narrow = bits_ <= kernels_.narrow_limit;
        if (pointwise_)
            set_sizes(fixed.weight_bytes(words_), fixed.bits_bytes(words_), narrow);
        else
            set_sizes(kernels_.weight_bytes(32 * dot_), kernels_.bits_bytes(32 * dot_), narrow);
        d_.sure = d_.by_byte = true;
        for (size_t b = 0; b < records_.size(); b++) {
            if (pointwise_)
                fixed.pack_weight(words_of(b), shape.c, words_, weight_of(b));
            else if (d_.plain)
                copy_plain(b);
            else
                fixed.pack_taps(words_of(b), shape.c, dot_, weight_of(b));
            const int up = records_[b].number("up");
            constant_.push_back(constant(b, up));
            branches_.push_back({pointwise_ ? above_[b].data() : nullptr, weight_of(b), scale_[b].data(),
                                 offset_[b].data(), constant_[b].data(), up, nullptr});
            d_.by_byte &= up == 7;
            for (size_t c = 0; c < o; c++) {
                const int most = (std::abs(int(scale_[b].data()[c])) * (bits_ << up) + (1 << 14)) >> 15;
                d_.sure &= most + std::abs(int(offset_[b].data()[c])) <= 32767;
            }
        }
        const std::vector<int>* const bound = pointwise_ ? build.ops[size_t(reads[0])]->bound() : nullptr;
        if (bound && map_.c == 4 && d_.narrow)
            for (size_t b = 0; b < records_.size(); b++) tables_.push_back(rank_table(b, *bound));
        for (size_t b = 0; b < tables_.size(); b++) branches_[b].table = tables_[b] ? &tables_[b]->table : nullptr;
        d_.branch = branches_.data();
        records_.clear();
    }
    size_t parameter_bytes() const override {
        size_t bytes = Dots::parameter_bytes();
        for (const auto& one : tables_)
            if (one) bytes += one->rows.bytes() + one->offsets.size() * sizeof(uint16_t);
        for (const auto* arrays : {&above_, &scale_, &offset_, &constant_})
            for (const Aligned<int16_t>& one : *arrays) bytes += one.bytes();
        return bytes;
    }
    double row_time() const override {
        return double(shape.w) * shape.c * (d_.branches * kFixedFinishNs + dots_time());
    }
    void run(const Task& task) const override {
        const auto s = step<int16_t, FixedBinaryConvStep>(task, fused_.slot, 3);
        (pointwise_ ? kernels_.fixed.binary_conv : kernels_.fixed.bit_conv)(d_, s);
        endings_.run(task, task.in + sources(), shape, kernels_);
    }

private:
    // (N - sum over missing taps of K / G - 2 popcount(w_tap)) << up, by class and channel. It may wrap around: what is
    // taken off it does, too.
    Aligned<int16_t> constant(size_t b, int up) const {
        const size_t stride = padded(size_t(shape.c));
        const bool some = !pointwise_ && taps_[b].some();
        Aligned<int16_t> made(stride * (some ? taps_[b].classes[0].count() : 1));
        std::fill(made.data(), made.data() + stride, int16_t(bits_ << up));
        if (some)
            taps_[b].classes[0].missing(
                taps_[b].window, words_of(b), shape.c, inner_, words_, [&](int c, size_t which, int twice) {
                    made.data()[which * stride + size_t(c)] = int16_t(uint32_t(bits_ - twice) << up);
                });
        return made;
    }

    struct OwnTable {
        FixedRankTable table;
        std::vector<uint16_t> offsets;
        Aligned<uint8_t> rows;
    };
    // None where it would be large.
    std::unique_ptr<OwnTable> rank_table(size_t b, const std::vector<int>& bound) const {
        const RankShape ranks{map_.c, reads_, shape.c};
        const int most = *std::max_element(bound.begin(), bound.end());
        if (!ranks.fits() || most > kMostValues) return nullptr;
        const int16_t* const above = above_[b].data();
        auto made = std::make_unique<OwnTable>();
        const size_t values = size_t(2 * most + 1);
        made->offsets.resize(4 * values);
        for (int c = 0; c < 4; c++) {
            uint16_t* const zero = made->offsets.data() + size_t(c) * values + size_t(most);
            for (int x = -most; x <= most; x++) {
                int rank = 0;
                for (int k = c; k < reads_; k += 4) rank += x > above[k];
                zero[x] = uint16_t(rank * ranks.step(c));
            }
            made->table.offset[c] = zero;
        }
        made->rows = rank_rows(ranks, above, words_of(b), kernels_.fixed.count_place);
        for (int i = 0; i < 2; i++) made->table.rows[i] = made->rows.data() + size_t(i) * ranks.table();
        return made;
    }
    static constexpr int kMostValues = 1 << 13;  // of a map, for ranks that are looked up

    FixedEndings::Fused fused_;
    std::vector<Aligned<int16_t>> above_, scale_, offset_, constant_;
    std::vector<FixedBranchData> branches_;
    std::vector<std::unique_ptr<OwnTable>> tables_;  // by branch, or none at all
};

const Register fixed_binary_conv("FixedBinaryConv", [](const Record& r, Build& b) {
    auto op = std::make_unique<FixedBinaryConv>(r, b);
    b.add(std::move(op));
});

}  // namespace
}  // namespace bcnn
