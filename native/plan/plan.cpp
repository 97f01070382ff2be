#include "plan/plan.h"

#include <algorithm>
#include <numeric>

#include "plan/cost.h"

namespace bcnn {

// An odd number of lines: with an even one, blocks of the same pixel would compete for few sets of L1.
size_t Layout::block(int rows) const {
    const size_t bytes = row * size_t(rows);
    return blocks == 1 || bytes / kLineBytes % 2 ? bytes : bytes + kLineBytes;
}
size_t Layout::bytes(int rows) const { return size_t(blocks) * block(rows); }

std::vector<Layout> layouts(const Ops& ops, const Kernels& kernels) {
    std::vector<int> most(ops.size(), 0);  // channels that some reader takes in whole registers
    for (const auto& op : ops)
        for (size_t slot = 0; slot < op->reads.size(); slot++)
            most[op->reads[slot]] = std::max(most[op->reads[slot]], op->channels(int(slot)));
    std::vector<Layout> out;
    for (size_t i = 0; i < ops.size(); i++) {
        const Shape& shape = ops[i]->shape;
        const int lanes = ops[i]->value_bytes == 4 ? kernels.lanes : kernels.fixed.lanes;
        const int line = int(kLineBytes / ops[i]->value_bytes);  // values of one
        Layout layout;
        if (ops[i]->words) {
            layout = {1, false,
                      (size_t(shape.w) * size_t(ops[i]->words) * 4 + kLineBytes - 1) / kLineBytes * kLineBytes, 1};
        } else {
            layout.extend = most[i] > shape.c && shape.c % lanes;
            layout.period = layout.extend ? std::lcm(shape.c, lanes) : (shape.c + lanes - 1) / lanes * lanes;
            layout.row = kLineBytes * size_t(shape.w);
            layout.blocks = (layout.period + line - 1) / line;
        }
        out.push_back(layout);
    }
    return out;
}

Network::Network(const Ops& ops_in, const std::vector<Layout>& layouts_in, int shares_in, Goal goal)
    : ops(ops_in), layouts(layouts_in), shares(shares_in), readers(ops_in.size()) {
    int64_t rows = 0;
    for (const auto& op : ops) rows += op->shape.h;
    const int least = int(std::min<int64_t>(1 + rows / kManyRows, kBatchPixels));  // scratch is for no more
    for (int i = 0; i < int(ops.size()); i++) {
        for (const int map : ops[i]->reads)
            if (readers[map].empty() || readers[map].back() != i) readers[map].push_back(i);
        // Rows of narrow maps are made together, so that weights which outgrow L1 are not read anew for every few
        // pixels, and steps are not many. The same for all maps of one width: a batch of what is read is a batch of
        // what is made.
        batch.push_back(goal == Goal::memory ? least : std::max(least, kBatchPixels / ops[i]->shape.w));
    }
}

Range Network::own_rows(int op, int share) const {
    const int h = ops[op]->shape.h;
    return {h * share / shares, h * (share + 1) / shares};
}

namespace {

Plan plan_of(const Network& network, const std::vector<int>& cuts) {
    std::vector<size_t> in_use;
    Plan plan;
    plan.whole = place_whole(network, cuts, in_use);
    for (size_t s = 0; s + 1 < cuts.size(); s++) {
        size_t end = in_use[s];  // rings of one segment reuse the place of the last one's
        plan.segments.push_back(schedule(network, cuts[s], cuts[s + 1], end));
        plan.bytes = std::max(plan.bytes, end);
    }
    plan.bytes += kLineBytes;  // registers are read past the end of bits
    return plan;
}

}  // namespace

Plan make_plan(const Ops& ops, const std::vector<Layout>& layouts, int shares, Goal goal) {
    const Network network(ops, layouts, shares, goal);
    if (goal == Goal::time) return plan_of(network, cut(network));
    Plan least = plan_of(network, cut(network));
    for (const std::vector<int>& cuts : memory_cuts(network)) {
        Plan plan = plan_of(network, cuts);
        if (plan.bytes < least.bytes) least = std::move(plan);
    }
    return least;
}

}  // namespace bcnn
