#include "fork.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace bcnn {
namespace {

std::mutex& mutex() {
    static std::mutex* one = new std::mutex;  // never destroyed: engines may outlive static objects
    return *one;
}
std::vector<AtFork*>& all() {
    static auto* one = new std::vector<AtFork*>;
    return *one;
}

}  // namespace

AtFork::AtFork(std::function<void()> child) : child_(std::move(child)) {
    static const bool once = [] {
        pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); },
                       [] {
                           for (AtFork* one : all()) one->child_();
                           mutex().unlock();
                       });
        return true;
    }();
    (void)once;
    std::lock_guard<std::mutex> lock(mutex());
    all().push_back(this);
}

AtFork::~AtFork() {
    std::lock_guard<std::mutex> lock(mutex());
    all().erase(std::find(all().begin(), all().end(), this));
}

}  // namespace bcnn
