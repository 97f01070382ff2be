// BinaryConv: 1x1 reads a float map and makes the bits it needs a block at a time; anything else reads a bit map
// (ops/bits.cpp) and gathers the taps of an output pixel, so that it is one dot over taps x channels.
//
// Zero padding. A tap outside the map contributes nothing to the dot, half a mismatch for each of its K / G channels:
//   1. n = mismatches on the map + missing K / (2 G).
//   2. The kernel reads 0 bits outside, and counts there popcount(w_tap) for each missing tap.
//   3. So n = counted + correction, correction = sum over missing taps of K / (2 G) - popcount(w_tap).
// Which taps are missing depends on the row and the column: few classes of both, and a correction for each pair and
// channel. All numbers are multiples of 1/2 below 2^17, exact in float32.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/endings.h"
#include "ops/window.h"
#include "plan/cost.h"

namespace bcnn {
namespace {

class BinaryConv : public Op {
public:
    BinaryConv(const Record& r, const Build& build)
        : kernels_(build.kernels), endings_(r, build), reads_(r.number("reads")), records_(r.list_of("branches")) {
        shape = build.shape();
        bool negative_zero = false;
        for (const Record& branch : records_) {
            const float* const offset = branch.floats("offset", size_t(shape.c));
            for (int c = 0; c < shape.c; c++) negative_zero |= offset[c] == 0 && std::signbit(offset[c]);
            scale_.push_back(padded_floats(branch.floats("scale", size_t(shape.c)), size_t(shape.c)));
            offset_.push_back(padded_floats(offset, size_t(shape.c)));
        }
        fused_ = endings_.fuse(negative_zero);
        d_.o = shape.c;
        d_.branches = int(records_.size());
        d_.end = fused_.end;
        d_.gather = {1, 1, 1, 1, 1, 1, 0, 1};
        for (int i = 0; i < 2; i++)
            d_.slope[i] = fused_.slope[i] ? fused_.slope[i] : scale_[0].data();  // any, if not read
    }
    bool splits_channels() const override { return true; }
    size_t weight_bytes() const override { return weight_.bytes(); }
    size_t parameter_bytes() const override {
        size_t bytes = weight_.bytes() + endings_.parameter_bytes();
        for (const auto* arrays : {&threshold_, &scale_, &offset_})
            for (const Aligned<float>& one : *arrays) bytes += one.bytes();
        return bytes;
    }
    size_t scratch_bytes() const override { return kernels_.scratch_bytes(d_); }
    double row_time() const override {
        return double(shape.w) * shape.c * (d_.branches * (kFinishNs + bits_ * kBinaryMacNs) + endings_.row_time());
    }

protected:
    // The weights of all branches, `bytes` each, and what the kernels want to know of a branch.
    void set_weights(size_t bytes, bool narrow) {
        d_.narrow = narrow;
        weight_ = Aligned<uint8_t>(bytes * records_.size());
        for (size_t b = 0; b < records_.size(); b++)
            branches_.push_back({b < threshold_.size() ? threshold_[b].data() : nullptr, weight_.data() + b * bytes,
                                 scale_[b].data(), offset_[b].data()});
        d_.branch = branches_.data();
    }
    BinaryConvStep step(const Task& task, const Map* added) const {
        BinaryConvStep s{};
        s.out = task.out.floats(task.y0);
        s.out_view = task.out.view;
        for (int i = 0; i < 2; i++) {
            const bool adds = fused_.slot[i] >= 0;
            s.add[i] = adds ? added[fused_.slot[i]].floats(task.y0) : s.out;
            s.add_view[i] = adds ? added[fused_.slot[i]].view : s.out_view;
        }
        s.pixels = (task.y1 - task.y0) * shape.w;
        s.channel_begin = task.c0;
        s.channel_end = task.c1;
        s.scratch = task.scratch;
        return s;
    }

    const Kernels& kernels_;
    Endings endings_;
    Endings::Fused fused_;
    const int reads_;
    int bits_ = 0;                 // of a dot
    std::vector<Record> records_;  // read only while the op is made
    std::vector<Aligned<float>> threshold_, scale_, offset_;
    Aligned<uint8_t> weight_;
    std::vector<BranchData> branches_;
    BinaryConvData d_{};
};

class Pointwise : public BinaryConv {  // 1x1
public:
    Pointwise(const Record& r, const Build& build) : BinaryConv(r, build) {
        read(r.number("source"), build);
        for (const int map : endings_.maps) read(map, build);
        const size_t k = size_t(reads_), words = (k + 31) / 32;
        for (const Record& branch : records_)
            threshold_.push_back(
                padded_floats(branch.floats("threshold", k), k, std::numeric_limits<float>::quiet_NaN()));
        bits_ = d_.k = reads_;
        d_.block = reads_ >= 512 ? kBlock / 2
                                 : kBlock;  // bits of a block, weights of 64 channels and tables are to stay in L1
        d_.weight_group = kernels_.weight_bytes(reads_);
        d_.bits = kernels_.bits_bytes(reads_);
        const size_t bytes = size_t((shape.c + kernels_.group - 1) / kernels_.group) * d_.weight_group;
        set_weights(bytes, reads_ <= kernels_.narrow_limit);
        for (size_t b = 0; b < records_.size(); b++)
            kernels_.pack_weight(records_[b].words("weight", size_t(shape.c) * words), shape.c, reads_,
                                 weight_.data() + b * bytes);
        records_.clear();
    }
    Range rows(int slot, int y) const override { return slot ? endings_.rows(slot - 1, y) : Range{y, y + 1}; }
    int channels(int slot) const override { return slot ? endings_.channels(slot - 1) : reads_; }
    void run(const Task& task) const override {
        BinaryConvStep s = step(task, task.in + 1);
        s.x = task.in[0].floats(task.y0);
        s.x_view = task.in[0].view;
        kernels_.binary_conv(d_, s);
        endings_.run(task, task.in + 1, shape, kernels_);
    }
};

class Taps : public BinaryConv {
public:
    Taps(const Record& r, Build& build) : BinaryConv(r, build), window_(r.part("window")) {
        const int source = r.number("source"), groups = r.number("groups"), inner = reads_ / groups;
        map_ = build.shape(source);
        const int words = (inner + 31) / 32, dot = window_.taps() * words, made = shape.c / groups;
        for (const Record& branch : records_) {  // a slot for the bits of each branch
            reads.push_back(build.bits_of(source, reads_, groups, branch.floats("threshold", size_t(reads_))));
            from.push_back(map_);
            Branch own(window_);
            const int dy = branch.number("shift", 0), dx = branch.number("shift", 1);
            own.window.padding[0] -= dy;
            own.window.padding[1] -= dx;
            shifted_.push_back(std::move(own));
        }
        for (const int map : endings_.maps) read(map, build);
        bits_ = window_.taps() * inner;
        d_.k = 32 * dot;
        d_.plain = groups > 1 && made % kPad != 0;
        d_.gather = {window_.kernel[0],
                     window_.kernel[1],
                     window_.stride[1],
                     window_.dilation[1],
                     map_.w,
                     shape.w,
                     words,
                     groups};
        d_.weight_group = kernels_.weight_bytes(d_.k);
        d_.bits = d_.plain ? size_t(dot) * 4 : kernels_.bits_bytes(d_.k);
        // As many pixels as keep the bits of a block in L1, all groups of it, but at least a tile.
        const size_t pair = d_.bits * size_t(groups) * (d_.plain ? 2 : size_t(2 / kernels_.together));
        d_.block =
            int(std::clamp<size_t>(kBitsBudget / pair * 2, d_.plain ? 1 : 8, bits_ >= 512 ? kBlock / 2 : kBlock));
        const size_t bytes = d_.plain ? size_t(shape.c) * size_t(dot) * 4
                                      : size_t((shape.c + kernels_.group - 1) / kernels_.group) * d_.weight_group;
        set_weights((bytes + 63) / 64 * 64, bits_ <= kernels_.narrow_limit);
        for (size_t b = 0; b < records_.size(); b++) {
            const uint32_t* const weight = records_[b].words("weight", size_t(shape.c) * size_t(dot));
            uint8_t* const to = weight_.data() + b * (weight_.size() / records_.size());
            if (d_.plain)
                std::copy(weight, weight + size_t(shape.c) * size_t(dot), reinterpret_cast<uint32_t*>(to));
            else
                kernels_.pack_taps(weight, shape.c, dot, d_.narrow, to);
            set_padding(records_[b], weight, inner, words, groups, shifted_[b]);
        }
        records_.clear();
        const size_t rows = size_t(d_.branches) * size_t(window_.kernel[0]);
        whole_ = rows * size_t(shape.h) <= kMostRows;
        rows_ = rows * size_t(whole_ ? shape.h : std::min(shape.h, kBatchPixels));
    }
    bool splits_channels() const override { return whole_; }
    size_t scratch_bytes() const override {
        return kernel_scratch() + size_t(d_.branches) * sizeof(BitRows) + rows_ * sizeof(uint32_t*);
    }
    Range rows(int slot, int y) const override {
        return slot < d_.branches ? shifted_[slot].window.rows(y, map_.h) : endings_.rows(slot - d_.branches, y);
    }
    int channels(int slot) const override { return slot < d_.branches ? 0 : endings_.channels(slot - d_.branches); }
    size_t parameter_bytes() const override {
        size_t bytes = BinaryConv::parameter_bytes();
        for (const Branch& b : shifted_)
            bytes += b.correction.bytes() + b.pad.size() * 4 + (b.row_class.size() + b.column_class.size()) * 2;
        return bytes;
    }
    void run(const Task& task) const override {
        BinaryConvStep s = step(task, task.in + d_.branches);
        const size_t height = size_t(task.y1 - task.y0), kernel = size_t(window_.kernel[0]);
        const auto taps = reinterpret_cast<BitRows*>(task.scratch + kernel_scratch());
        const auto rows = reinterpret_cast<const uint32_t**>(taps + d_.branches);
        for (int b = 0; b < d_.branches; b++) {
            const Branch& own = shifted_[b];
            const uint32_t** const to = rows + size_t(b) * height * kernel;
            for (int y = task.y0; y < task.y1; y++)
                for (int ky = 0; ky < window_.kernel[0]; ky++)
                    to[size_t(y - task.y0) * kernel + size_t(ky)] =
                        own.window.on_map(y, ky, map_.h) ? task.in[b].words(own.window.tap(y, ky)) : nullptr;
            taps[b] = {to,
                       own.pad.data(),
                       own.window.padding[1],
                       own.correction.data(),
                       own.row_class.data() + (own.row_class.empty() ? 0 : task.y0),
                       own.column_class.data(),
                       own.column_classes,
                       padded(size_t(shape.c))};
        }
        s.taps = taps;
        kernels_.bit_conv(d_, s);
        endings_.run(task, task.in + d_.branches, shape, kernels_);
    }

private:
    static constexpr size_t kMostRows = 1 << 16;  // pointers to rows that a step may need: half a megabyte
    size_t kernel_scratch() const { return (kernels_.scratch_bytes(d_) + 63) / 64 * 64; }

    struct Branch {
        explicit Branch(const Window& of) : window(of) {}
        Window window;  // shifted
        std::vector<uint32_t> pad;
        Aligned<float> correction;
        std::vector<uint16_t> row_class, column_class;
        int column_classes = 1;
    };

    // The classes of one side: for each position which taps are on the map, the class of all of them being 0.
    static std::vector<Range> classes(int made, int kernel, int stride, int dilation, int before, int size,
                                      std::vector<uint16_t>& of) {
        std::vector<Range> found{{0, kernel}};
        for (int i = 0; i < made; i++) {
            const int first =
                i * stride -
                before;  // where tap 0 is; taps are on the map from ceil(-first / D) to (size - 1 - first) / D
            Range on{first >= 0 ? 0 : (-first + dilation - 1) / dilation,
                     first >= size ? 0 : (size - 1 - first) / dilation + 1};
            on.end = std::min(on.end, kernel);
            if (on.empty()) on = {0, 0};
            const auto same = [&](const Range& other) { return other.begin == on.begin && other.end == on.end; };
            // The class of the position before, or all taps, or a new one: ranges never come back.
            const size_t which = same(found[0])                           ? 0
                                 : found.size() > 1 && same(found.back()) ? found.size() - 1
                                                                          : found.size();
            if (which == found.size()) found.push_back(on);
            of.push_back(uint16_t(which));
        }
        return found;
    }

    void set_padding(const Record& branch, const uint32_t* weight, int inner, int words, int groups,
                     Branch& own) const {
        own.pad.assign(size_t(groups) * size_t(words) + kSlack / 4, 0);
        if (const uint32_t* const pad = branch.words("pad", size_t(reads_ + 31) / 32)) {
            for (int k = 0; k < reads_; k++)
                own.pad[size_t(k / inner * words + k % inner / 32)] |= (pad[k / 32] >> (k % 32) & 1)
                                                                       << (k % inner % 32);
            return;
        }
        const Window& w = own.window;
        const auto rows =
            classes(shape.h, w.kernel[0], w.stride[0], w.dilation[0], w.padding[0], map_.h, own.row_class);
        const auto columns =
            classes(shape.w, w.kernel[1], w.stride[1], w.dilation[1], w.padding[1], map_.w, own.column_class);
        own.column_classes = int(columns.size());
        if (rows.size() == 1 && columns.size() == 1) {
            own.row_class.clear();
            own.column_class.clear();
            return;
        }
        own.correction = Aligned<float>(rows.size() * columns.size() * padded(size_t(shape.c)));
        // Sums over the taps left of and above (ky, kx) of inner / 2 - popcount, doubled: any rectangle is four of
        // them.
        const int height = w.kernel[0], width = w.kernel[1];
        std::vector<int> sums(size_t(height + 1) * size_t(width + 1), 0);
        for (int o = 0; o < shape.c; o++) {
            const auto at = [&](int ky, int kx) -> int& { return sums[size_t(ky) * size_t(width + 1) + size_t(kx)]; };
            for (int ky = 0; ky < height; ky++)
                for (int kx = 0; kx < width; kx++) {
                    const uint32_t* const tap =
                        weight + (size_t(o) * size_t(height * width) + size_t(ky * width + kx)) * size_t(words);
                    int twice = inner;
                    for (int i = 0; i < words; i++) twice -= 2 * __builtin_popcount(tap[i]);
                    at(ky + 1, kx + 1) = twice + at(ky, kx + 1) + at(ky + 1, kx) - at(ky, kx);
                }
            for (size_t i = 0; i < rows.size(); i++)
                for (size_t j = 0; j < columns.size(); j++) {
                    const Range y = rows[i], x = columns[j];
                    const int on_map =
                        at(y.end, x.end) - at(y.begin, x.end) - at(y.end, x.begin) + at(y.begin, x.begin);
                    own.correction.data()[(i * columns.size() + j) * padded(size_t(shape.c)) + size_t(o)] =
                        0.5f * float(at(height, width) - on_map);
                }
        }
    }

    const Window window_;
    Shape map_;  // that is read
    std::vector<Branch> shifted_;
    bool whole_;   // all rows in one step
    size_t rows_;  // pointers to rows of a step
};

void make(const Record& r, Build& build) {
    bool plain = Window(r.part("window")).is(1, 1, 0) && r.number("groups") == 1;
    for (const Record& branch : r.list_of("branches"))
        plain &= branch.number("shift", 0) == 0 && branch.number("shift", 1) == 0;
    if (plain)
        build.add(std::make_unique<Pointwise>(r, build));
    else {
        auto op = std::make_unique<Taps>(r, build);  // adds the op of its bits first
        build.add(std::move(op));
    }
}

const Register binary_conv("BinaryConv", make);

}  // namespace
}  // namespace bcnn
