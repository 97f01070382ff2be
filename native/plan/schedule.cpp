// The steps of a segment, share by share, and the rings between its ops.
#include <algorithm>

#include "plan/plan.h"

namespace bcnn {
namespace {

constexpr size_t kSkew = 5 * kLineBytes;  // between rings, so that they do not compete for the same sets of L1

// Which rows of each op every share makes, [share][op of the segment].
using Needs = std::vector<std::vector<Range>>;

Needs find_needs(const Network& net, int begin, int end, int shares) {
    Needs needs(shares, std::vector<Range>(end - begin));
    for (int i = end - 1; i >= begin; i--) {
        const Op& op = *net.ops[i];
        const int h = op.shape.h;
        for (int s = 0; s < shares; s++)
            if (net.whole(i, end)) needs[s][i - begin].join({h * s / shares, h * (s + 1) / shares});
        // Every map is complete: rows that nobody reads (a stride may step over them) are made by the share before
        // them.
        int next = h;
        for (int s = shares - 1; s >= 0; s--) {
            Range& need = needs[s][i - begin];
            if (!need.empty()) need.end = std::max(need.end, next);
            if (!need.empty()) next = std::min(next, need.begin);
        }
        for (int s = 0; s < shares && next > 0; s++)  // and by the first one that makes any
            if (s + 1 == shares || !needs[s][i - begin].empty()) {
                needs[s][i - begin].join({0, next});
                next = 0;
            }
        for (int s = 0; s < shares; s++) {
            const Range need = needs[s][i - begin];
            if (need.empty()) continue;
            for (size_t slot = 0; slot < op.reads.size(); slot++)
                if (op.reads[slot] >= begin)
                    needs[s][op.reads[slot] - begin].join(
                        {op.rows(int(slot), need.begin).begin, op.rows(int(slot), need.end - 1).end});
        }
    }
    return needs;
}

// Two shares must not make the same rows of a whole map: they would write them at the same time.
bool separable(const Network& net, int begin, int end, const Needs& needs) {
    for (int i = begin; i < end; i++)
        for (size_t s = 0; s < needs.size(); s++) {
            const Range own = net.own_rows(i, int(s)), need = needs[s][i - begin];
            if (net.whole(i, end) && !need.empty() && (need.begin < own.begin || need.end > own.end)) return false;
        }
    return true;
}

class Puller {
public:
    Puller(const Network& net, int begin, int end, const std::vector<Range>& need)
        : net_(net), begin_(begin), end_(end), need_(need), made_(need.size()), rings_(need.size(), 0) {
        for (size_t i = 0; i < need.size(); i++) made_[i] = need[i].begin;
    }

    Share share(size_t& bytes) {
        // Whole maps grow side by side: a map that two of them are made from is then read by both while it is a few
        // rows.
        int most = 0;
        std::vector<int> whole;
        for (int i = end_ - 1; i >= begin_; i--)
            if (net_.whole(i, end_) && !need(i).empty()) whole.push_back(i), most = std::max(most, need(i).size());
        for (int part = 1; part <= most; part++)
            for (const int i : whole) pull(i, need(i).begin + int(int64_t(need(i).size()) * part / most) - 1);
        for (int i = end_ - 1; i >= begin_; i--)  // rows that nobody reads
            if (!need(i).empty()) pull(i, need(i).end - 1);
        Share share;
        share.rings.resize(need_.size());
        for (int i = begin_; i < end_; i++) {
            const int ring = rings_[i - begin_], batch = net_.batch[i];
            if (net_.whole(i, end_) || !ring) continue;
            const int batches = (ring + batch - 1) / batch + (need(i).begin % batch != 0);
            const int rows = std::min(batches * batch, net_.ops[i]->shape.h);
            share.rings[i - begin_] = {bytes, rows, net_.layouts[i].block(rows)};
            bytes += (net_.layouts[i].bytes(rows) + kLineBytes - 1) / kLineBytes * kLineBytes + kSkew;
        }
        steps_.shrink_to_fit();
        share.steps = std::move(steps_);
        return share;
    }

private:
    const Range& need(int op) const { return need_[op - begin_]; }
    int& made(int op) { return made_[op - begin_]; }

    // Makes rows of an op up to y, and before them the rows they read.
    void pull(int op, int y) {
        waiting_.push_back({op, y});
        while (!waiting_.empty()) {
            const auto [i, last] = waiting_.back();
            if (made(i) > last) {
                waiting_.pop_back();
                continue;
            }
            const Op& one = *net_.ops[i];
            const int first = made(i), batch = net_.batch[i];
            const int end =
                std::min(need(i).end, (first / batch + 1) * batch);  // aligned: a batch never wraps around its ring
            if (wait_for(one, end)) continue;
            rings_[i - begin_] = std::max(rings_[i - begin_], end - oldest_needed(i));
            steps_.push_back({i, uint16_t(first), uint16_t(end)});
            made(i) = end;
        }
    }

    // Puts a map on the stack that has to be made further before rows up to `end` can be.
    bool wait_for(const Op& op, int end) {
        for (size_t slot = 0; slot < op.reads.size(); slot++) {
            if (op.reads[slot] < begin_) continue;
            const int row = op.rows(int(slot), end - 1).end - 1;
            if (made(op.reads[slot]) > row) continue;
            waiting_.push_back({op.reads[slot], row});
            return true;
        }
        return false;
    }

    // The first row of a map that some reader in this segment has yet to read.
    int oldest_needed(int i) {
        int row = made(i);
        for (const int r : net_.readers[i]) {
            if (r >= end_) break;
            if (need(r).empty() || made(r) >= need(r).end) continue;
            const Op& op = *net_.ops[r];
            for (size_t slot = 0; slot < op.reads.size(); slot++)
                if (op.reads[slot] == i) row = std::min(row, op.rows(int(slot), made(r)).begin);
        }
        return row;
    }

    const Network& net_;
    const int begin_, end_;
    const std::vector<Range>& need_;
    std::vector<int> made_, rings_;
    std::vector<Step> steps_;
    std::vector<std::pair<int, int>>
        waiting_;  // instead of recursion: a program may have more ops than a stack has room
};

}  // namespace

Segment schedule(const Network& net, int begin, int end, size_t& bytes) {
    Segment segment{begin, end, {}};
    if (net.by_channels(begin, end)) {
        const Op& op = *net.ops[begin];
        const int units = (op.shape.c + kPad - 1) / kPad;
        for (int i = 0; i < net.shares; i++) {
            Share share;
            share.c0 = units * i / net.shares * kPad;
            share.c1 = std::min(units * (i + 1) / net.shares * kPad, op.shape.c);
            share.steps.push_back({begin, 0, uint16_t(op.shape.h)});
            if (share.c0 < share.c1) segment.shares.push_back(std::move(share));
        }
        return segment;
    }
    Needs needs = find_needs(net, begin, end, net.shares);
    if (net.shares > 1 && !separable(net, begin, end, needs)) needs = find_needs(net, begin, end, 1);
    for (const auto& need : needs) {
        Share share = Puller(net, begin, end, need).share(bytes);
        if (!share.steps.empty()) segment.shares.push_back(std::move(share));
    }
    return segment;
}

}  // namespace bcnn
