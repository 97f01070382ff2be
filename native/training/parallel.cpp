#include "parallel.h"

#include <pthread.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "../pool.h"

namespace bcnn::training {
namespace {

// One pool for the process: a training step is a sequence of calls, each of which wants all threads.
struct Team {
    std::mutex busy;
    std::unique_ptr<Pool> pool;
    int threads = 0;
};

Team*& team() {
    static Team* made = [] {
        // The child of a fork has none of these threads, and a lock that nobody will release.
        pthread_atfork(nullptr, nullptr, [] { team() = new Team; });
        return new Team;  // never destroyed: a thread may still be training when static objects go
    }();
    return made;
}

}  // namespace

void run_stages(int threads, const int* pieces, int stages, Piece piece, const void* work) {
    Team& own = *team();
    std::unique_lock<std::mutex> lock(own.busy, std::defer_lock);
    if (threads == 1 || !lock.try_lock()) {  // another thread trains, too: its job has the pool
        for (int stage = 0; stage < stages; stage++)
            for (int i = 0; i < pieces[stage]; i++) piece(work, stage, i, 0);
        return;
    }
    if (own.threads != threads) {
        own.pool.reset();
        own.pool = std::make_unique<Pool>(threads);
        own.threads = threads;
    }
    own.pool->run(std::vector<int>(pieces, pieces + stages),
                  [&](int stage, int i, int thread) { piece(work, stage, i, thread); });
}

void* allocate(size_t bytes) {
    void* memory = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!memory) throw std::bad_alloc();
    return memory;
}

}  // namespace bcnn::training
