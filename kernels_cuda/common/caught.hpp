// What is thrown inside a parallel region, where an exception has nowhere to go: it may neither leave
// the region nor skip a barrier that the other threads wait at.
#pragma once

#include <atomic>
#include <exception>

namespace dgbench {

// Keeps the first exception of a region's threads for the code behind the region:
//
//   Caught caught;
//   #pragma omp parallel
//   {
//     std::vector<T> scratch;
//     caught.run([&] { scratch.resize(size); });
//   #pragma omp for
//     for (...) {
//       if (caught.any()) continue;  // this thread's memory may be missing
//       ...
//     }
//   }
//   caught.rethrow();
class Caught {
 public:
  // Calls body(), unless something was thrown already. Also needed inside `critical` and `single`,
  // which no exception may leave either.
  template <class Body>
  void run(const Body& body) noexcept {
    if (any()) return;
    try {
      body();
    } catch (...) {
      if (!any_.exchange(true)) first_ = std::current_exception();
    }
  }

  bool any() const { return any_.load(std::memory_order_relaxed); }

  // Behind the region, when all threads are done.
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::atomic<bool> any_{false};
  std::exception_ptr first_;
};

}  // namespace dgbench
