// Where the ops are cut into segments: the least sum of what segments cost, in bytes moved through L3.
#include <algorithm>
#include <limits>

#include "plan/cost.h"
#include "plan/plan.h"

namespace bcnn {
namespace {

// The thread time that is lost if [begin, end) is one segment: rows near the cuts are made twice, and shares are not
// equal. Of all shares, the first, one in the middle and the last are looked at. `end` stays, `begin` goes down op by
// op: which rows of an op are needed depends only on the ops behind it.
class Lost {
public:
    explicit Lost(const Network& network) : net_(network), index_{0, network.shares / 2, network.shares - 1} {
        for (auto& need : need_) need.resize(network.ops.size());
        seen_.assign(network.ops.size(), -1);
    }
    void start(int end) {
        end_ = end;
        all_ = 0;
        for (double& time : time_) time = 0;
        inseparable_ = false;
    }
    double nanoseconds(int begin) {  // called for end - 1, end - 2, ...
        const Op& op = *net_.ops[begin];
        const bool whole = net_.whole(begin, end_);
        all_ += op.row_time() * op.shape.h;
        touch(begin);
        for (int i = 0; i < 3; i++) {
            Range& need = need_[i][begin];
            const Range own = net_.own_rows(begin, index_[i]);
            if (whole) need.join(own);
            if (index_[i] == 0) need.join({0, 1});
            if (index_[i] + 1 == net_.shares) need.join({op.shape.h - 1, op.shape.h});
            inseparable_ |= whole && (need.begin < own.begin || need.end > own.end);
            time_[i] += op.row_time() * need.size();
            if (need.empty()) continue;
            for (size_t slot = 0; slot < op.reads.size(); slot++) {
                const int map = op.reads[slot];
                if (map < end_ - kLongest) continue;
                touch(map);
                need_[i][map].join({op.rows(int(slot), need.begin).begin, op.rows(int(slot), need.end - 1).end});
            }
        }
        if (net_.by_channels(begin, end_)) return 0;
        if (inseparable_) return all_ * (net_.shares - 1);
        return *std::max_element(time_, time_ + 3) * net_.shares - all_;
    }

private:
    void touch(int op) {  // what is left from another `end` is forgotten
        if (seen_[op] == end_) return;
        seen_[op] = end_;
        for (auto& need : need_) need[op] = {};
    }
    const Network& net_;
    const int index_[3];
    std::vector<Range> need_[3];
    std::vector<int> seen_;
    int end_ = 0;
    double all_ = 0, time_[3] = {};
    bool inseparable_ = false;
};

// Bytes of maps that a cut before op i makes whole.
std::vector<double> crossing_bytes(const Network& net) {
    const int n = int(net.ops.size());
    std::vector<double> crossing(n + 1, 0);
    for (int i = 0; i < n; i++) {
        if (net.last_reader(i) == i) continue;
        const double bytes = double(net.layouts[i].bytes(net.ops[i]->shape.h));
        crossing[i + 1] += bytes;
        crossing[net.last_reader(i) + 1] -= bytes;  // at most n: a reader is an op
    }
    for (int i = 1; i <= n; i++) crossing[i] += crossing[i - 1];
    return crossing;
}

}  // namespace

// A whole map is written and read; weights of a segment that fit L2 are streamed from there for each row, and from L3
// if they do not.
std::vector<int> cut(const Network& net) {
    const int n = int(net.ops.size());
    const std::vector<double> crossing = crossing_bytes(net);
    std::vector<double> best(n + 1, std::numeric_limits<double>::infinity());
    std::vector<int> from(n + 1, 0);
    best[0] = 0;
    Lost lost(net);
    for (int end = 1; end <= n; end++) {
        double once = 0, by_row = 0;
        lost.start(end);
        for (int begin = end - 1; begin >= 0 && end - begin <= kLongest; begin--) {
            const Op& op = *net.ops[begin];
            const bool single = end - begin == 1;
            if (!single && (op.alone() || net.ops[end - 1]->alone())) break;
            once += double(op.weight_bytes());
            by_row += double(op.weight_bytes()) * op.shape.h;
            const double weights = single ? once : once <= double(kWeightBudget) ? by_row * kL2Part : by_row;
            const double cost = weights + (net.shares > 1 ? kL3BytesPerNs * lost.nanoseconds(begin) : 0);
            const double all = best[begin] + cost + 2 * crossing[begin];  // written and read
            if (all < best[end]) {
                best[end] = all;
                from[end] = begin;
            }
        }
    }
    std::vector<int> cuts{n};
    while (cuts.back()) cuts.push_back(from[cuts.back()]);
    std::reverse(cuts.begin(), cuts.end());
    return cuts;
}

std::vector<std::vector<int>> memory_cuts(const Network& net) {
    const int n = int(net.ops.size());
    const std::vector<double> crossing = crossing_bytes(net);
    const double most = *std::max_element(crossing.begin(), crossing.end());
    std::vector<std::vector<int>> found{{0, n}};
    for (double limit = most; limit >= most / 256; limit /= 2) {  // fewer cuts each time, the same as before at times
        std::vector<int> cuts{0};
        for (int i = 1; i < n; i++)
            if (crossing[i] <= limit) cuts.push_back(i);
        cuts.push_back(n);
        if (cuts != found.back()) found.push_back(std::move(cuts));
        if (most == 0) break;
    }
    return found;
}

}  // namespace bcnn
