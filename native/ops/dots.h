// What binary convolutions share, whatever follows their dots. 1x1 reads a map of values and makes the bits it needs a
// block at a time; anything else reads a bit map (ops/bits.cpp) and gathers the taps of an output pixel, so that it is
// one dot over taps x channels.
#pragma once
#include <algorithm>

#include "ops/op.h"
#include "ops/window.h"
#include "plan/cost.h"

namespace bcnn {

// Which taps of which output pixels are on the map. They depend on the row and the column: few classes of both. Class 0
// of a side has all of them.
struct TapClasses {
    std::vector<Range> rows{{0, 1}}, columns{{0, 1}};
    std::vector<uint16_t> row_class, column_class;  // empty if no tap is ever missing

    TapClasses(const Window& window, const Shape& read, const Shape& made);
    bool some() const { return !row_class.empty(); }
    size_t count() const { return rows.size() * columns.size(); }
    size_t bytes() const { return (row_class.size() + column_class.size()) * sizeof(uint16_t); }
    // sum(o, class) of K / G - 2 popcount(w_tap) over the missing taps of every class, for weights [O, T, words].
    template <class Each>
    void missing(const Window& window, const uint32_t* weight, int o, int inner, int words, const Each& each) const;
};

struct TapBranch {
    Window window;                    // shifted
    std::vector<uint32_t> pad;        // a pixel outside the map, [groups][words], and slack
    std::vector<TapClasses> classes;  // one, or none: pads are bits
    bool some() const { return !classes.empty() && classes[0].some(); }
    size_t bytes() const { return pad.size() * 4 + (classes.empty() ? 0 : classes[0].bytes()); }
};

// `Data` is BinaryConvData or FixedBinaryConvData.
template <class Data, class EndingList>
class Dots : public Op {
public:
    Dots(const Record& r, const Build& build)
        : kernels_(build.kernels),
          window_(r.part("window")),
          endings_(r, build),
          reads_(r.number("reads")),
          groups_(r.number("groups")),
          records_(r.list_of("branches")) {
        shape = build.shape();
        map_ = build.shape(r.number("source"));
        pointwise_ = window_.is(1, 1, 0) && groups_ == 1;
        for (const Record& branch : records_)
            pointwise_ &= branch.number("shift", 0) == 0 && branch.number("shift", 1) == 0;
        inner_ = reads_ / groups_;
        words_ = (inner_ + 31) / 32;
        dot_ = window_.taps() * words_;
        bits_ = window_.taps() * inner_;
        d_.o = shape.c;
        d_.branches = int(records_.size());
        d_.gather = {1, 1, 1, 1, 1, 1, 0, 1};
    }
    Range rows(int slot, int y) const override {
        if (slot >= sources()) return endings_.rows(slot - sources(), y);
        return pointwise_ ? Range{y, y + 1} : taps_[slot].window.rows(y, map_.h);
    }
    int channels(int slot) const override {
        return slot >= sources() ? endings_.channels(slot - sources()) : pointwise_ ? reads_ : 0;
    }
    bool splits_channels() const override { return pointwise_ || whole_; }
    const std::vector<int>* bound() const override { return endings_.bound(); }
    size_t weight_bytes() const override { return weight_.bytes(); }
    size_t parameter_bytes() const override {
        size_t bytes = weight_.bytes() + endings_.parameter_bytes();
        for (const TapBranch& b : taps_) bytes += b.bytes();
        return bytes;
    }
    size_t scratch_bytes() const override {
        return kernel_scratch() + size_t(d_.branches) * sizeof(BitRows) + rows_ * sizeof(uint32_t*);
    }

protected:
    // Slots of what is read. `limit(branch)`: what values are compared with to make bits, of k channels.
    template <class Limit>
    void read_sources(const Record& r, Build& build, const Limit& limit) {
        const int source = r.number("source");
        if (pointwise_) read(source, build);
        for (const Record& branch : records_) {
            if (pointwise_) break;
            reads.push_back(build.bits_of(source, reads_, groups_, limit(branch)));
            from.push_back(map_);
            taps_.push_back(tap_branch(branch));
        }
        for (const int map : endings_.maps) read(map, build);
    }
    int sources() const { return pointwise_ ? 1 : d_.branches; }

    // Room for the weights of all branches, `group` bytes for the kernels' group of channels, and sizes of blocks.
    void set_sizes(size_t group, size_t bits, bool narrow) {
        d_.narrow = narrow;
        d_.k = pointwise_ ? reads_ : 32 * dot_;
        d_.plain = !pointwise_ && groups_ > 1 && shape.c / groups_ % kPad != 0;
        d_.counted = std::min(kernels_.most_counted, (shape.c + kShortLine - 1) / kShortLine * kShortLine);
        d_.weight_group = group;
        d_.bits = d_.plain ? size_t(dot_) * 4 : bits;
        // Bits of a block, weights of a tile and tables stay in L1; the counts have room for more pixels of few channels.
        d_.block = bits_ >= 512 ? kBlock / 2 : pointwise_ ? kBlock * (kernels_.most_counted / d_.counted) : kBlock;
        if (!pointwise_) {
            d_.gather = {window_.kernel[0],
                         window_.kernel[1],
                         window_.stride[1],
                         window_.dilation[1],
                         map_.w,
                         shape.w,
                         words_,
                         groups_};
            // As many pixels as keep the bits of a block in L1, all groups of it, but at least a tile.
            const size_t pair = d_.bits * size_t(groups_) * (d_.plain ? 2 : size_t(2 / kernels_.together));
            d_.block = int(std::clamp<size_t>(kBitsBudget / pair * 2, d_.plain ? 1 : 8, size_t(d_.block)));
            const size_t rows = size_t(d_.branches) * size_t(window_.kernel[0]);
            whole_ = rows * size_t(shape.h) <= kMostRows;
            rows_ = rows * size_t(whole_ ? shape.h : std::min(shape.h, kBatchPixels));
        }
        const size_t lines = size_t((shape.c + kShortLine - 1) / kShortLine);  // kernels may take a whole one
        const size_t groups = lines * size_t(kShortLine / kernels_.group);
        const size_t bytes = d_.plain ? size_t(shape.c) * size_t(dot_) * 4 : groups * group;
        branch_bytes_ = (bytes + 63) / 64 * 64;
        weight_ = Aligned<uint8_t>(branch_bytes_ * records_.size());
    }
    const uint32_t* words_of(size_t b) const { return records_[b].words("weight", size_t(shape.c) * size_t(dot_)); }
    uint8_t* weight_of(size_t b) { return weight_.data() + b * branch_bytes_; }
    void copy_plain(size_t b) {
        std::copy(words_of(b), words_of(b) + size_t(shape.c) * size_t(dot_), reinterpret_cast<uint32_t*>(weight_of(b)));
    }

    // What a step has whatever its numbers: `Value` of maps.
    template <class Value, class Step>
    Step step(const Task& task, const int* slot, int adds) const {
        Step s;
        s.out = task.out.values<Value>(task.y0);
        s.out_view = task.out.view;
        for (int i = 0; i < adds; i++) {
            const Map* const added = slot[i] >= 0 ? &task.in[sources() + slot[i]] : nullptr;
            s.add[i] = added ? added->values<Value>(task.y0) : s.out;
            s.add_view[i] = added ? added->view : s.out_view;
        }
        s.pixels = (task.y1 - task.y0) * shape.w;
        s.channel_begin = task.c0;
        s.channel_end = task.c1;
        s.scratch = task.scratch;
        s.x = pointwise_ ? task.in[0].values<Value>(task.y0) : nullptr;
        s.x_view = task.in[0].view;
        s.taps = pointwise_ ? nullptr : bit_rows(task);
        return s;
    }
    double dots_time() const { return d_.branches * (bits_ * kBinaryMacNs) + endings_.row_time(); }

    const Kernels& kernels_;
    const Window window_;
    EndingList endings_;
    const int reads_, groups_;
    bool pointwise_;
    int inner_, words_, dot_, bits_;  // channels and words of a group, words and bits of a dot
    Shape map_;                       // that is read
    std::vector<Record> records_;     // read only while the op is made
    std::vector<TapBranch> taps_;
    Aligned<uint8_t> weight_;
    Data d_{};

private:
    static constexpr size_t kMostRows = 1 << 16;  // pointers to rows that a step may need: half a megabyte
    size_t kernel_scratch() const { return (kernels_.scratch_bytes(d_) + 63) / 64 * 64; }

    TapBranch tap_branch(const Record& branch) const {
        TapBranch own{window_, {}, {}};
        own.window.padding[0] -= branch.number("shift", 0);
        own.window.padding[1] -= branch.number("shift", 1);
        own.pad.assign(size_t(groups_) * size_t(words_) + kSlack / 4, 0);
        if (const uint32_t* const pad = branch.words("pad", size_t(reads_ + 31) / 32)) {
            for (int k = 0; k < reads_; k++)
                own.pad[size_t(k / inner_ * words_ + k % inner_ / 32)] |= (pad[k / 32] >> (k % 32) & 1)
                                                                          << (k % inner_ % 32);
        } else {
            own.classes.emplace_back(own.window, map_, shape);
        }
        return own;
    }

    const BitRows* bit_rows(const Task& task) const {
        const size_t height = size_t(task.y1 - task.y0), kernel = size_t(window_.kernel[0]);
        const auto taps = reinterpret_cast<BitRows*>(task.scratch + kernel_scratch());
        const auto rows = reinterpret_cast<const uint32_t**>(taps + d_.branches);
        for (int b = 0; b < d_.branches; b++) {
            const TapBranch& own = taps_[b];
            const uint32_t** const to = rows + size_t(b) * height * kernel;
            for (int y = task.y0; y < task.y1; y++)
                for (int ky = 0; ky < window_.kernel[0]; ky++)
                    to[size_t(y - task.y0) * kernel + size_t(ky)] =
                        own.window.on_map(y, ky, map_.h) ? task.in[b].words(own.window.tap(y, ky)) : nullptr;
            taps[b] = {to,
                       own.pad.data(),
                       own.window.padding[1],
                       own.some() ? own.classes[0].row_class.data() + task.y0 : nullptr,
                       own.some() ? own.classes[0].column_class.data() : nullptr,
                       own.some() ? int(own.classes[0].columns.size()) : 1};
        }
        return taps;
    }

    size_t branch_bytes_ = 0;
    bool whole_ = false;  // all rows in one step
    size_t rows_ = 0;     // pointers to rows of a step
};

// --- missing taps ----------------------------------------------------------------------------------------------------

namespace taps {

// The classes of one side: for each position which taps are on the map, the class of all of them being 0.
inline std::vector<Range> classes(int made, int kernel, int stride, int dilation, int before, int size,
                                  std::vector<uint16_t>& of) {
    std::vector<Range> found{{0, kernel}};
    for (int i = 0; i < made; i++) {
        // Where tap 0 is; taps are on the map from ceil(-first / D) to (size - 1 - first) / D.
        const int first = i * stride - before;
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

}  // namespace taps

inline TapClasses::TapClasses(const Window& w, const Shape& read, const Shape& made) {
    rows = taps::classes(made.h, w.kernel[0], w.stride[0], w.dilation[0], w.padding[0], read.h, row_class);
    columns = taps::classes(made.w, w.kernel[1], w.stride[1], w.dilation[1], w.padding[1], read.w, column_class);
    if (rows.size() > 1 || columns.size() > 1) return;
    row_class.clear();
    column_class.clear();
}

template <class Each>
void TapClasses::missing(const Window& window, const uint32_t* weight, int o, int inner, int words,
                         const Each& each) const {
    // Sums over the taps left of and above (ky, kx): any rectangle is four of them.
    const int height = window.kernel[0], width = window.kernel[1];
    std::vector<int> sums(size_t(height + 1) * size_t(width + 1), 0);
    const auto at = [&](int ky, int kx) -> int& { return sums[size_t(ky) * size_t(width + 1) + size_t(kx)]; };
    for (int c = 0; c < o; c++) {
        for (int ky = 0; ky < height; ky++)
            for (int kx = 0; kx < width; kx++) {
                const uint32_t* const tap =
                    weight + (size_t(c) * size_t(height * width) + size_t(ky * width + kx)) * size_t(words);
                int twice = inner;
                for (int i = 0; i < words; i++) twice -= 2 * __builtin_popcount(tap[i]);
                at(ky + 1, kx + 1) = twice + at(ky, kx + 1) + at(ky + 1, kx) - at(ky, kx);
            }
        for (size_t i = 0; i < rows.size(); i++)
            for (size_t j = 0; j < columns.size(); j++) {
                const Range y = rows[i], x = columns[j];
                const int on_map = at(y.end, x.end) - at(y.begin, x.end) - at(y.end, x.begin) + at(y.begin, x.begin);
                each(c, i * columns.size() + j, at(height, width) - on_map);
            }
    }
}

}  // namespace bcnn
