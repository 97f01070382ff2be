#include "pool.h"

#include <cstdint>
#include <system_error>

namespace bcnn {
namespace {

constexpr int kPauses = 200;  // a few microseconds; then other threads of this core get their turn, then sleep

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

NoThread::NoThread(int number, int threads, const std::string& reason)
    : what_("cannot start thread " + std::to_string(number) + " of " + std::to_string(threads) + ": " + reason +
            "; ask for fewer threads") {}

Pool::Pool(int threads, Take take, std::chrono::microseconds patience) : take_(take), patience_(patience) {
    threads_.reserve(size_t(threads));
    for (int i = 1; i < threads; i++) {
        try {
            threads_.emplace_back([this, i] { wait_for_jobs(i); });
        } catch (const std::system_error& error) {
            end();  // a thread that is destroyed before it was joined would end the process
            throw NoThread(i + 1, threads, error.code().message());
        } catch (...) {
            end();
            throw;
        }
    }
}

Pool::~Pool() { end(); }

void Pool::end() {
    stop_ = true;
    wake_sleepers();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

template <class Ready>
void Pool::wait(const Ready& ready) {
    for (int i = 0; i < kPauses; i++) {
        if (ready()) return;
        pause();
    }
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < patience_) {
        if (ready()) return;
        std::this_thread::yield();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    sleepers_++;
    changed_.wait(lock, ready);
    sleepers_--;
}

// After a change of what `ready` reads. The change and this load are sequentially consistent, and so are a sleeper's counting
// itself and its look at `ready`: one of the two sees the other.
void Pool::wake_sleepers() {
    if (sleepers_ == 0) return;
    {
        std::lock_guard<std::mutex> lock(mutex_);
    }
    changed_.notify_all();
}

void Pool::run(const std::vector<int>& pieces, const Work& work) {
    if (threads_.empty()) {
        for (int stage = 0; stage < int(pieces.size()); stage++)
            for (int piece = 0; piece < pieces[stage]; piece++) work(stage, piece, 0);
        return;
    }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stage_count_ = int(pieces.size());
        stages_ = std::make_unique<Stage[]>(pieces.size());
        const int shares = shares_of_stage_ = take_ == Take::share ? size() : 1;
        shares_ = std::make_unique<Share[]>(pieces.size() * size_t(shares));
        for (int i = 0; i < stage_count_; i++) {
            stages_[i].pieces = pieces[i];
            for (int s = 0; s < shares; s++) {
                Share& share = shares_[size_t(i) * shares + s];
                share.next = int(int64_t(pieces[i]) * s / shares);
                share.end = int(int64_t(pieces[i]) * (s + 1) / shares);
            }
        }
        work_ = &work;
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

void Pool::wait_for_jobs(int thread) {
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

void Pool::take_part(int thread) {
    for (int i = 0; i < stage_count_; i++) {
        Stage& stage = stages_[i];
        int done = 0;
        for (int s = 0; s < shares_of_stage_; s++) {  // its own first, then what others have left
            Share& share = shares_[size_t(i) * shares_of_stage_ + (thread + s) % shares_of_stage_];
            for (int piece; share.next < share.end && (piece = share.next++) < share.end; done++)
                (*work_)(i, piece, thread);
        }
        if (done && (stage.done += done) == stage.pieces) wake_sleepers();
        wait([&] { return stage.done == stage.pieces; });
    }
}

}  // namespace bcnn
