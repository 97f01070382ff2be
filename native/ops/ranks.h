// The rows of a RankTable (kernels/kernels.h), shared by floats and integers, and where they are.
#pragma once
#include <algorithm>
#include <vector>

#include "kernels/kernels.h"
#include "memory.h"

namespace bcnn {

// Of a map of `channels` channels, read as `reads`, and `made` counts.
struct RankShape {
    static constexpr int kLargestTable = 1 << 13;  // bytes of one of two that are to stay in L1

    int channels, reads, made;

    int replicas() const { return (reads + channels - 1) / channels; }
    int ranks() const { return replicas() + 1; }  // from none of the limits to all of them
    int row() const { return (made + kShortLine - 1) / kShortLine * kShortLine; }
    // Bytes from the row of a channel's rank to that of the next one.
    int step(int channel) const { return channel % 2 ? row() : ranks() * row(); }
    size_t table() const { return size_t(ranks()) * size_t(ranks()) * size_t(row()); }
    bool fits() const { return channels <= 4 && table() <= kLargestTable; }
};

// Both tables, one behind the other. A bit is 1 for the limits that a value has reached; weights [O, words]; `place(o)`: of
// a count in its line.
template <class Value, class Place>
Aligned<uint8_t> rank_rows(const RankShape& s, const Value* limit, const uint32_t* weight, const Place& place) {
    const size_t words = size_t(s.reads + 31) / 32;
    Aligned<uint8_t> rows(2 * s.table());
    for (int c = 0; c < s.channels; c++) {
        std::vector<int> order;  // channels read that are replicas of this one, by their limits
        for (int k = c; k < s.reads; k += s.channels) order.push_back(k);
        std::stable_sort(order.begin(), order.end(), [&](int i, int j) { return limit[i] < limit[j]; });
        for (int rank = 0; rank < s.ranks(); rank++)
            for (int o = 0; o < s.made; o++) {
                int differ = 0;  // bits of the `rank` smallest limits are 1
                for (int i = 0; i < int(order.size()); i++) {
                    const int k = order[size_t(i)];
                    const bool bit = weight[size_t(o) * words + size_t(k / 32)] >> (k % 32) & 1;
                    differ += bit != (i < rank);
                }
                const int to = rank * s.step(c) + o / kShortLine * kShortLine + place(o % kShortLine);
                for (int with = 0; with < s.ranks(); with++)
                    rows.data()[size_t(c / 2) * s.table() + size_t(to + with * s.step(c + 1))] += uint8_t(differ);
            }
    }
    return rows;
}

}  // namespace bcnn
