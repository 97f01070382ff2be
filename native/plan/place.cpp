// Where maps live that are kept whole.
#include <algorithm>
#include <map>

#include "plan/plan.h"

namespace bcnn {

std::vector<Place> place_whole(const Network& net, const std::vector<int>& cuts, std::vector<size_t>& in_use) {
    const int n = int(net.ops.size()), segments = int(cuts.size()) - 1;
    std::vector<int> segment(n);
    for (int s = 0; s < segments; s++) std::fill(segment.begin() + cuts[s], segment.begin() + cuts[s + 1], s);
    std::vector<Place> places(n);
    std::map<size_t, size_t> taken;                       // where the maps that are alive begin and end
    std::vector<std::vector<size_t>> dead(segments + 1);  // by segment: maps that nobody reads any more
    in_use.assign(segments, 0);
    for (int s = 0; s < segments; s++) {
        for (const size_t offset : dead[s]) taken.erase(offset);
        for (int i = cuts[s]; i < cuts[s + 1]; i++) {
            if (!net.whole(i, cuts[s + 1])) continue;
            const int height = net.ops[i]->shape.h;
            const size_t size = (net.layouts[i].bytes(height) + kLineBytes - 1) / kLineBytes * kLineBytes;
            size_t at = 0;
            for (const auto& [begin, end] : taken) {
                if (at + size <= begin) break;
                at = end;
            }
            places[i] = {at, height, net.layouts[i].block(height)};
            taken[at] = at + size;
            const bool last = i + 1 == n;  // the logits, read when all is done
            dead[last ? segments : segment[net.last_reader(i)] + 1].push_back(at);
        }
        if (!taken.empty()) in_use[s] = taken.rbegin()->second;
    }
    return places;
}

}  // namespace bcnn
