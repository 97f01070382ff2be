#include "plan.h"

#include <algorithm>
#include <climits>
#include <numeric>

#include "kernels.h"

namespace bcnn {
namespace {

constexpr size_t kWeightBudget = 272 << 10;  // bytes of weights that stay in an L2 of 512 kB beside the rows
constexpr size_t kSkew = 5 * kLine;          // between rings, so that they do not compete for the same sets of L1
constexpr int kBatchPixels = 28;             // as many as a binary convolution of many channels takes at a time
constexpr size_t kLargeWeights = 16 << 10;
constexpr double kL3 = 10;                   // bytes in a nanosecond
constexpr int kLongest = 64;                 // ops of a segment that is shared: with each, more rows are made twice

size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

struct Range {
    int begin = INT_MAX, end = INT_MIN;
    bool empty() const { return begin >= end; }
    void join(Range other) {
        if (other.empty()) return;
        begin = std::min(begin, other.begin);
        end = std::max(end, other.end);
    }
};

// Rows of its source that op needs for row y. Never empty; both ends grow with y.
Range rows_read(const Op& op, int source_height, int y) {
    int first = y, last = y;
    switch (op.kind) {
        case Kind::depthwise:
            first = y * op.stride - 1;
            last = y * op.stride + 1;
            break;
        case Kind::avg_pool:
            first = y * op.stride;
            last = first + op.stride - 1;
            break;
        case Kind::global_avg_pool:
            first = 0;
            last = source_height - 1;
            break;
        case Kind::binary_conv:
            for (const Branch& b : op.branches) {
                first = std::min(first, y + b.dy);
                last = std::max(last, y + b.dy);
            }
            break;
        default: break;
    }
    return {std::max(first, 0), std::min(last, source_height - 1) + 1};
}

Range rows_read(const Model& model, const Op& op, Range y) {
    if (y.empty()) return {};
    const int height = model[op.source].h;
    return {rows_read(op, height, y.begin).begin, rows_read(op, height, y.end - 1).end};
}

// Reads and writes pixel by pixel, so that rows which are neighbours in memory can be one long row.
bool pointwise(const Op& op) {
    return op.kind == Kind::binary_conv && !op.shifted();
}

// Ops whose work is split by channels and that take all rows in one step when they have a segment of their own.
bool whole(const Op& op) {
    return (op.kind == Kind::binary_conv && !op.shifted()) || op.kind == Kind::global_avg_pool || op.kind == Kind::linear;
}

class Planner {
public:
    Planner(const Model& model, const std::vector<Layout>& layouts, const std::vector<size_t>& weights, int shares)
        : model_(model), layouts_(layouts), weights_(weights), shares_(shares), readers_(model.size()) {
        for (int i = 0; i < int(model.size()); i++) {
            if (model[i].source >= 0) readers_[model[i].source].push_back(i);
            if (model[i].add >= 0) readers_[model[i].add].push_back(i);
        }
    }

    Plan make() {
        const int shares = shares_;
        const std::vector<int> cuts = cut();
        Plan plan;
        place_whole_maps(cuts);
        for (size_t s = 0; s + 1 < cuts.size(); s++) {
            plan.segments.push_back({});
            size_t end = in_use_[s];  // rings of one segment reuse the place of the last one's
            shares_ = shares;
            if (!separable(cuts[s], cuts[s + 1])) shares_ = 1;
            for (int i = 0; i < shares_; i++) {
                Share share = make_share(cuts[s], cuts[s + 1], i, end);
                if (!share.steps.empty()) plan.segments.back().shares.push_back(std::move(share));
            }
            plan.floats = std::max(plan.floats, end);
        }
        return plan;
    }

private:
    int last_reader(int op) const { return readers_[op].empty() ? op : readers_[op].back(); }
    size_t map_floats(int op) const { return layouts_[op].floats(model_[op].h); }

    // Nanoseconds that a row of op takes, roughly, as measured on Zen 3: only to be compared with each other.
    double row_time(const Op& op) const {
        const double values = double(op.w) * op.c;
        if (op.kind == Kind::binary_conv) return values * double(op.branches.size()) * (0.2 + op.k / 800.0);
        return values * (op.kind == Kind::depthwise ? 0.4 : 0.25);
    }

    // Thread time that is lost if [begin, end) is one segment: rows near the cuts are made twice, and shares are not equal.
    double lost_time(int begin, int end) {
        if (shares_ == 1 || by_channels(begin, end)) return 0;
        double longest = 0, all = 0;
        for (int i = begin; i < end; i++) {
            whole_[i] = readers_[i].empty() || last_reader(i) >= end;
            all += row_time(model_[i]) * model_[i].h;
        }
        for (int index : {0, shares_ / 2, shares_ - 1}) {  // the others are like the one in the middle
            find_needs(begin, end, index);
            double time = 0;
            for (int i = begin; i < end; i++) {
                if (overlaps(i, index)) return all * (shares_ - 1);
                if (!need_[i].empty()) time += row_time(model_[i]) * (need_[i].end - need_[i].begin);
            }
            longest = std::max(longest, time);
        }
        return longest * shares_ - all;
    }

    // Where segments begin and end. Cost in bytes moved through L3, estimated: a whole map is written and read; weights of
    // a segment that fit L2 are streamed from there for each row, at a fraction of the cost, and from L3 if they do not fit;
    // L3 moves some 10 bytes in a nanosecond that threads lose.
    std::vector<int> cut() {
        const int n = int(model_.size());
        std::vector<double> crossing(n + 1, 0);  // of maps that a cut before op i makes whole
        for (int i = 0; i < n; i++)
            for (int at = i + 1; at <= last_reader(i); at++) crossing[at] += 2.0 * 4 * double(map_floats(i));
        std::vector<double> best(n + 1, 1e300);
        std::vector<int> from(n + 1, 0);
        best[0] = 0;
        whole_.assign(n, false);
        for (int end = 1; end <= n; end++) {
            double once = 0, by_row = 0;
            for (int begin = end - 1; begin >= 0; begin--) {
                once += double(weights_[begin]);
                by_row += double(weights_[begin]) * model_[begin].h;
                const bool alone = end - begin == 1;
                const Kind kind = model_[begin].kind;
                if (shares_ > 1 && end - begin > kLongest) break;
                const double weights = alone ? once : once <= double(kWeightBudget) ? by_row / 8 : by_row;
                const double cost = weights + kL3 * lost_time(begin, end);
                if (best[begin] + cost + crossing[begin] < best[end]) {
                    best[end] = best[begin] + cost + crossing[begin];
                    from[end] = begin;
                }
                if (kind == Kind::global_avg_pool || kind == Kind::linear || model_[end - 1].kind == Kind::global_avg_pool ||
                    model_[end - 1].kind == Kind::linear)
                    break;  // the decoder's ops have segments of their own
            }
        }
        std::vector<int> cuts{n};
        while (cuts.back()) cuts.push_back(from[cuts.back()]);
        std::reverse(cuts.begin(), cuts.end());
        return cuts;
    }

    // Maps read in a later segment than they are made in, and those that nobody reads: first fit by lifetime.
    void place_whole_maps(const std::vector<int>& cuts) {
        const int n = int(model_.size());
        std::vector<int> segment(n);
        for (size_t s = 0; s + 1 < cuts.size(); s++)
            for (int i = cuts[s]; i < cuts[s + 1]; i++) segment[i] = int(s);
        whole_.assign(n, false);
        offset_.assign(n, 0);
        in_use_.assign(cuts.size() - 1, 0);
        for (int i = 0; i < n; i++) {
            whole_[i] = readers_[i].empty() || segment[last_reader(i)] > segment[i];
            if (!whole_[i]) continue;
            const size_t size = round_up(map_floats(i), kLine);
            std::vector<std::pair<size_t, size_t>> taken;
            for (int j = 0; j < i; j++)
                if (whole_[j] && segment[last_reader(j)] >= segment[i])
                    taken.push_back({offset_[j], offset_[j] + round_up(map_floats(j), kLine)});
            std::sort(taken.begin(), taken.end());
            size_t at = 0;
            for (const auto& [begin, stop] : taken) {
                if (at + size <= begin) break;
                at = std::max(at, stop);
            }
            offset_[i] = at;
            for (int s = segment[i]; s <= segment[last_reader(i)]; s++) in_use_[s] = std::max(in_use_[s], at + size);
        }
    }

    // An op that has its segment to itself and is split by channels. Not one whose channels are repeated: that takes all of them.
    bool by_channels(int begin, int end) const {
        return end - begin == 1 && whole(model_[begin]) && !layouts_[begin].extend;
    }

    Range own_rows(int i, int index) const { return {model_[i].h * index / shares_, model_[i].h * (index + 1) / shares_}; }

    // Which rows of each op share `index` makes.
    void find_needs(int begin, int end, int index) {
        need_.assign(model_.size(), {});
        for (int i = end - 1; i >= begin; i--) {
            const Op& op = model_[i];
            if (whole_[i]) need_[i].join(own_rows(i, index));
            // Rows that nobody reads (a stride may step over them) are made too: every map is complete.
            if (index == 0) need_[i].join({0, 1});
            if (index + 1 == shares_) need_[i].join({op.h - 1, op.h});
            if (op.source >= begin) need_[op.source].join(rows_read(model_, op, need_[i]));
            if (op.add >= begin) need_[op.add].join(need_[i]);
        }
    }

    // Two shares must not make the same rows of a whole map: they would write them at the same time.
    bool overlaps(int i, int index) const {
        const Range own = own_rows(i, index);
        return whole_[i] && (need_[i].begin < own.begin || need_[i].end > own.end);
    }
    bool separable(int begin, int end) {
        if (by_channels(begin, end)) return true;
        for (int index = 0; index < shares_; index++) {
            find_needs(begin, end, index);
            for (int i = begin; i < end; i++)
                if (overlaps(i, index)) return false;
        }
        return true;
    }

    // Share `index` of the ops [begin, end); `floats` is the arena's end so far, moved past the share's rings.
    Share make_share(int begin, int end, int index, size_t& floats) {
        Share share;
        share.maps.resize(model_.size());
        for (size_t i = 0; i < model_.size(); i++)
            if (whole_[i]) share.maps[i] = {offset_[i], model_[i].h, layouts_[i].block(model_[i].h)};
        if (by_channels(begin, end)) {
            const Op& op = model_[begin];
            const int units = (op.c + 63) / 64;
            const int c0 = units * index / shares_ * 64, c1 = std::min(units * (index + 1) / shares_ * 64, op.c);
            if (c0 < c1) share.steps.push_back({begin, 0, op.h, c0, c1});
            return share;
        }
        begin_ = begin;
        find_needs(begin, end, index);
        rings_.assign(model_.size(), 0);
        steps_.clear();
        made_.resize(model_.size());
        for (int i = begin; i < end; i++) made_[i] = need_[i].begin;
        // Whole maps grow side by side: a map that two of them are made from is then read by both while it is a few rows.
        int most = 0;
        for (int i = begin; i < end; i++)
            if (whole_[i] && !need_[i].empty()) most = std::max(most, need_[i].end - need_[i].begin);
        for (int part = 1; part <= most; part++)
            for (int i = end - 1; i >= begin; i--)
                if (whole_[i] && !need_[i].empty())
                    pull(i, need_[i].begin + (need_[i].end - need_[i].begin) * part / most - 1);
        for (int i = end - 1; i >= begin; i--)  // rows that nobody reads
            if (!need_[i].empty()) pull(i, need_[i].end - 1);
        for (int i = begin; i < end; i++)
            if (!whole_[i] && rings_[i]) {
                const int batches = (rings_[i] + batch(model_[i]) - 1) / batch(model_[i]) + (need_[i].begin % batch(model_[i]) != 0);
                const int rows = std::min(batches * batch(model_[i]), model_[i].h);
                share.maps[i] = {floats, rows, layouts_[i].block(rows)};
                floats += round_up(layouts_[i].floats(rows), kLine) + kSkew;
            }
        share.steps = std::move(steps_);
        return share;
    }

    // Rows of narrow maps that are made together, so that weights which outgrow L1 are not read anew for every few pixels.
    // The same for all maps of one width: a batch of what is read is a batch of what is made.
    int batch(const Op& op) const {
        for (size_t i = 0; i < model_.size(); i++)
            if (model_[i].w == op.w && weights_[i] >= kLargeWeights) return std::max(1, kBatchPixels / op.w);
        return 1;
    }

    // Make rows of op up to y, and before them the rows they read.
    void pull(int i, int y) {
        const Op& op = model_[i];
        while (made_[i] <= y) {
            const int first = made_[i], rows = batch(op);
            const int end = std::min(need_[i].end, (first / rows + 1) * rows);  // aligned: a batch never wraps around its ring
            if (op.source >= begin_) pull(op.source, rows_read(op, model_[op.source].h, end - 1).end - 1);
            if (op.add >= begin_) pull(op.add, end - 1);
            rings_[i] = std::max(rings_[i], end - oldest_needed(i));
            if (pointwise(op) || op.kind == Kind::depthwise)
                steps_.push_back({i, first, end, 0, op.c});
            else
                for (int row = first; row < end; row++) steps_.push_back({i, row, row + 1, 0, op.c});
            made_[i] = end;
        }
    }

    // The first row of a map that some reader in this segment has yet to read.
    int oldest_needed(int i) const {
        int row = made_[i];
        for (int r : readers_[i]) {
            if (need_.size() <= size_t(r) || need_[r].empty() || made_[r] >= need_[r].end) continue;
            const Op& op = model_[r];
            if (op.source == i) row = std::min(row, rows_read(op, model_[i].h, made_[r]).begin);
            if (op.add == i) row = std::min(row, made_[r]);
        }
        return row;
    }

    const Model& model_;
    const std::vector<Layout>& layouts_;
    const std::vector<size_t>& weights_;
    int shares_;
    std::vector<std::vector<int>> readers_;
    std::vector<bool> whole_;
    std::vector<size_t> offset_;
    std::vector<size_t> in_use_;  // by segment: where the whole maps end that it makes, reads or must keep
    // of the share being made
    int begin_ = 0;
    std::vector<Range> need_;
    std::vector<int> made_, rings_;
    std::vector<Step> steps_;
};

}  // namespace

// An odd number of lines: with an even one, blocks of the same pixel would compete for few sets of L1.
size_t Layout::block(int rows) const {
    return row * size_t(rows) / kLine % 2 ? row * size_t(rows) : row * size_t(rows) + kLine;
}
size_t Layout::floats(int rows) const { return size_t((period + kLine - 1) / kLine) * block(rows); }

std::vector<Layout> layouts(const Model& model, int lanes) {
    std::vector<Layout> out;
    for (size_t i = 0; i < model.size(); i++) {
        const int c = model[i].c;
        bool replicated = false;
        for (const Op& reader : model)
            replicated |= (reader.source == int(i) && reader.k > c) || (reader.add == int(i) && reader.c > c);
        Layout layout;
        layout.extend = replicated && c % lanes;
        layout.period = layout.extend ? std::lcm(c, lanes) : int(round_up(c, lanes));
        layout.row = size_t(kLine) * model[i].w;
        out.push_back(layout);
    }
    return out;
}

Plan make_plan(const Model& model, const std::vector<Layout>& layouts, const std::vector<size_t>& weights, int shares) {
    return Planner(model, layouts, weights, shares).make();
}

}  // namespace bcnn
