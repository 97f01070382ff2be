// What an engine needs of an operating system, where there is none: a page has one thread, and never forks.
#pragma once
#include <functional>
#include <vector>

namespace bcnn {

struct Turn {  // a lock that nobody else wants
    void lock() {}
    void unlock() {}
};

class Pool {  // of the caller alone
public:
    using Work = std::function<void(int stage, int piece, int thread)>;

    explicit Pool(int) {}
    void run(const std::vector<int>& pieces, const Work& work) {
        for (int stage = 0; stage < int(pieces.size()); stage++)
            for (int piece = 0; piece < pieces[size_t(stage)]; piece++) work(stage, piece, 0);
    }
};

class AtFork {
public:
    explicit AtFork(const std::function<void()>&) {}
};

}  // namespace bcnn
