// A thread that copies bytes, as a device's copy engine does beside its compute.
//
// It never takes the interpreter's lock. A thread of Python's would need it between any two copies;
// where all cores are busy it is then put aside while it holds the lock, and training with it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#ifdef __linux__
#include <pthread.h>
#endif

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/lists.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using Clock = std::chrono::steady_clock;
// Addresses of target and source, bytes.
using Run = std::tuple<uintptr_t, uintptr_t, uint64_t>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class CopyThread {
 public:
  CopyThread() = default;
  CopyThread(const CopyThread&) = delete;
  CopyThread& operator=(const CopyThread&) = delete;
  ~CopyThread() { close(); }

  // Queue a job behind the others; returns its number, from 1. The memory must stay until it is done.
  int64_t submit(std::vector<Run> runs) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (closing_) throw std::runtime_error("the copy thread is closed");
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    // Room to note that any of the jobs failed: the thread that notes it has nobody to tell of memory.
    failed_.reserve(failed_.size() + static_cast<std::size_t>(submitted_ - done_) + 1);
    jobs_.push_back(std::move(runs));
    const int64_t job = ++submitted_;
    lock.unlock();
    changed_.notify_all();
    return job;
  }

  // Wait until a job is done; returns the seconds that took, 0 where it was done already.
  double wait(int64_t job) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (job < 1 || job > submitted_) {
      throw std::out_of_range("there is no job " + std::to_string(job) + " of " +
                              std::to_string(submitted_));
    }
    double waited = 0;
    if (done_ < job) {
      const auto start = Clock::now();
      changed_.wait(lock, [&] { return done_ >= job; });
      waited = seconds_since(start);
    }
    if (std::find(failed_.begin(), failed_.end(), job) != failed_.end()) {
      throw std::runtime_error("job " + std::to_string(job) + " copies from or to address 0");
    }
    return waited;
  }

  // Jobs done so far (they are done in order), the bytes they copied and the seconds they took.
  std::tuple<int64_t, uint64_t, double> progress() {
    std::lock_guard<std::mutex> lock(mutex_);
    return {done_, bytes_, busy_};
  }

  // Let no further job begin until `go`: tests make copies late with it.
  void hold() {
    std::lock_guard<std::mutex> lock(mutex_);
    held_ = true;
  }

  void go() {
    std::lock_guard<std::mutex> lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }

  // Do what is queued, held or not, and end the thread.
  void close() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  bool running() { return thread_.joinable(); }

 private:
  void work() {
#ifdef __linux__
    pthread_setname_np(pthread_self(), "dgbench-copy");  // as profilers and /proc show it
#endif
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closing_ || (!held_ && !jobs_.empty()); });
      if (jobs_.empty()) return;  // closing
      const std::vector<Run> runs = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      const auto start = Clock::now();
      uint64_t bytes = 0;
      const bool copied = copy(runs, bytes);
      const double seconds = seconds_since(start);
      lock.lock();
      busy_ += seconds;
      bytes_ += bytes;
      ++done_;
      if (!copied) failed_.push_back(done_);
      changed_.notify_all();
    }
  }

  static bool copy(const std::vector<Run>& runs, uint64_t& copied) {
    for (const auto& [target, source, bytes] : runs) {
      if (bytes == 0) continue;
      if (target == 0 || source == 0) return false;
      std::memcpy(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), bytes);
      copied += bytes;
    }
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<Run>> jobs_;
  std::vector<int64_t> failed_;
  int64_t submitted_ = 0;
  int64_t done_ = 0;
  uint64_t bytes_ = 0;
  double busy_ = 0;
  bool held_ = false;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace

void bind_copy_thread(nb::module_& m) {
  using Free = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<CopyThread>(m, "CopyThread", "Copies bytes in a thread of its own, job after job.")
      .def(nb::init<>())
      .def("submit", &CopyThread::submit, "runs"_a)
      .def("wait", &CopyThread::wait, "job"_a, Free())
      .def("progress", &CopyThread::progress)
      .def("hold", &CopyThread::hold)
      .def("go", &CopyThread::go)
      .def("close", &CopyThread::close, Free())
      .def_prop_ro("running", &CopyThread::running);
}

}  // namespace dgbench
