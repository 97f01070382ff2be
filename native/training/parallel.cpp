#include "parallel.h"

#include <pthread.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <climits>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "../pool.h"

namespace bcnn::training {
namespace {

// From one kernel to the next is Python's time, a tenth of a millisecond or two: threads that slept through it would have to be
// woken for every kernel, which takes as long again. (The engine waits a fifth of that: its jobs are whole images.)
constexpr std::chrono::microseconds kPatience(1000);

// One pool for the process: a training step is a sequence of calls, each of which wants all threads.
struct Owner {
    std::mutex busy;
    std::unique_ptr<Pool> pool;
};

Owner*& owner() {
    static Owner* made = [] {
        // The child of a fork has none of these threads, and a lock that nobody will release.
        pthread_atfork(nullptr, nullptr, [] { owner() = new Owner; });
        return new Owner;  // never destroyed: a thread may still be training when static objects go
    }();
    return made;
}

}  // namespace

void run_stages(int threads, const int* pieces, int stages, Piece piece, const void* work) {
    Owner& own = *owner();
    std::unique_lock<std::mutex> lock(own.busy, std::defer_lock);
    if (threads == 1 || !lock.try_lock()) {  // another thread trains, too: its job has the pool
        for (int stage = 0; stage < stages; stage++)
            for (int i = 0; i < pieces[stage]; i++) piece(work, stage, i, 0);
        return;
    }
    if (!own.pool || own.pool->size() != threads) {
        own.pool.reset();
        own.pool = std::make_unique<Pool>(threads, Pool::Take::share, kPatience);
    }
    own.pool->run({pieces, pieces + stages}, [=](int stage, int i, int thread) { piece(work, stage, i, thread); });
}

void* allocate(size_t bytes) {
    void* memory = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!memory) throw std::bad_alloc();
    return memory;
}

void keep_memory() {
#if defined(__GLIBC__)
    mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest it takes
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_TOP_PAD, 64 << 20);
#endif
}

}  // namespace bcnn::training
