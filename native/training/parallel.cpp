#include "parallel.h"

#include <pthread.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace bcnn::training {
namespace {

// From one kernel to the next is Python's time, a tenth of a millisecond or two: threads that slept through it would have to be
// woken for every kernel, which takes as long again. (The engine's pool waits a fifth of that: its jobs are whole images.)
constexpr std::chrono::microseconds kPatience(1000);
constexpr int kPauses = 64;  // a few microseconds, between two looks at the clock

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// A thread's share of a stage. It is the same of every stage, so the maps a thread reads are mostly in its own caches: between
// cores of one machine a line may take as long as from memory. Only when its share is done does a thread take pieces of others.
struct alignas(64) Share {
    std::atomic<int> next{0};
    int end = 0;
};

struct alignas(64) Stage {
    std::atomic<int> done{0};
    int pieces = 0;
};

// Threads that wait for work, as in ../pool.h, but with shares.
class Team {
public:
    explicit Team(int threads) : size(threads) {
        for (int i = 1; i < threads; i++) threads_.emplace_back([this, i] { wait_for_jobs(i); });
    }
    ~Team() {
        stop_ = true;
        wake_sleepers();
        for (std::thread& thread : threads_) thread.join();
    }

    void run(const int* pieces, int stages, Piece piece, const void* work) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stages_ = std::vector<Stage>(stages);
            shares_ = std::vector<Share>(size_t(stages) * size);
            for (int s = 0; s < stages; s++) {
                stages_[s].pieces = pieces[s];
                for (int t = 0; t < size; t++) {
                    Share& share = shares_[size_t(s) * size + t];
                    share.next = int(int64_t(pieces[s]) * t / size);
                    share.end = int(int64_t(pieces[s]) * (t + 1) / size);
                }
            }
            piece_ = piece;
            work_ = work;
            open_ = true;
            job_++;
        }
        wake_sleepers();
        take_part(0);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            open_ = false;
        }
        wait([this] { return inside_ == 0; });
    }

    const int size;

private:
    void wait_for_jobs(int thread) {
        unsigned seen = 0;
        while (true) {
            wait([&] { return job_ != seen || stop_; });
            if (stop_) return;
            {
                std::lock_guard<std::mutex> lock(mutex_);
                seen = job_;
                if (!open_) continue;
                inside_++;
            }
            take_part(thread);
            inside_--;
            wake_sleepers();
        }
    }

    void take_part(int thread) {
        for (int s = 0; s < int(stages_.size()); s++) {
            Stage& stage = stages_[s];
            int done = 0;
            for (int t = 0; t < size; t++) {
                Share& share = shares_[size_t(s) * size + (thread + t) % size];
                for (int i; share.next < share.end && (i = share.next++) < share.end; done++)
                    piece_(work_, s, i, thread);
            }
            if (done && (stage.done += done) == stage.pieces) wake_sleepers();
            wait([&] { return stage.done == stage.pieces; });
        }
    }

    template <class Ready>
    void wait(const Ready& ready) {
        const auto begin = std::chrono::steady_clock::now();
        do {
            for (int i = 0; i < kPauses; i++) {
                if (ready()) return;
                pause();
            }
        } while (std::chrono::steady_clock::now() - begin < kPatience);
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_++;
        changed_.wait(lock, ready);
        sleepers_--;
    }

    // After a change of what `ready` reads: one of the two sees the other, see ../pool.cpp.
    void wake_sleepers() {
        if (sleepers_ == 0) return;
        {
            std::lock_guard<std::mutex> lock(mutex_);
        }
        changed_.notify_all();
    }

    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::atomic<int> sleepers_{0};
    std::atomic<bool> stop_{false};
    std::atomic<unsigned> job_{0};
    bool open_ = false;           // threads may still join the job
    std::atomic<int> inside_{0};  // those that have
    std::vector<Stage> stages_;
    std::vector<Share> shares_;
    Piece piece_ = nullptr;
    const void* work_ = nullptr;
};

// One team for the process: a training step is a sequence of calls, each of which wants all threads.
struct Owner {
    std::mutex busy;
    std::unique_ptr<Team> team;
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
    if (threads == 1 || !lock.try_lock()) {  // another thread trains, too: its job has the team
        for (int stage = 0; stage < stages; stage++)
            for (int i = 0; i < pieces[stage]; i++) piece(work, stage, i, 0);
        return;
    }
    if (!own.team || own.team->size != threads) {
        own.team.reset();
        own.team = std::make_unique<Team>(threads);
    }
    own.team->run(pieces, stages, piece, work);
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
