#include "parallel.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>
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

struct alignas(64) Queue {  // a thread's share of a stage
    std::atomic<int> next{0};
    int end = 0;
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
    // A thread has the same share of every stage, so the maps it reads are mostly in its own caches: between cores of one machine a
    // line may take as long as from memory. Only when its share is done does it take pieces of others.
    std::vector<Queue> queues(size_t(stages) * threads);
    for (int stage = 0; stage < stages; stage++)
        for (int t = 0; t < threads; t++) {
            Queue& queue = queues[size_t(stage) * threads + t];
            queue.next = int(int64_t(pieces[stage]) * t / threads);
            queue.end = int(int64_t(pieces[stage]) * (t + 1) / threads);
        }
    own.pool->run(std::vector<int>(stages, threads), [&](int stage, int, int thread) {
        for (int t = 0; t < threads; t++) {
            Queue& queue = queues[size_t(stage) * threads + (thread + t) % threads];
            for (int i; (i = queue.next++) < queue.end;) piece(work, stage, i, thread);
        }
    });
}

void* allocate(size_t bytes) {
    void* memory = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!memory) throw std::bad_alloc();
    return memory;
}

}  // namespace bcnn::training
