// Faults on purpose, in checked builds only: scripts/sanitize.py commits one of each kind first, so
// that a sanitizer that sees nothing is not taken for operators that do nothing wrong.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <omp.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/sanitizers.hpp"

namespace nb = nanobind;

namespace dgbench {

#if defined(DGBENCH_ASAN) || defined(DGBENCH_TSAN)
namespace {

// `one` is not known to the compiler, which would otherwise see the fault and compile something else.
std::int64_t commit(const std::string& kind, int one) {
  if (kind == "overflow") {
    const std::unique_ptr<int[]> few(new int[4]());
    return few[3 + one];
  }
  if (kind == "freed") {
    std::unique_ptr<int> gone(new int(1));
    const int* seen = gone.get();
    gone.reset();
    return *seen + one;
  }
  if (kind == "undefined") return std::numeric_limits<int>::max() + one;
  if (kind == "cast") return static_cast<std::int32_t>(1e18 * one);
  if (kind == "vector") {
    std::vector<int> few(4);
    few.reserve(8);
    return few[3 + one];
  }
  if (kind == "race") {
    volatile std::int64_t sum = 0;
#pragma omp parallel num_threads(2)
    for (int i = 0; i < 1000; ++i) sum = sum + one;
    return sum;
  }
  // The same sums one after the other: no race, which a sanitizer blind to OpenMP's locks reports.
  if (kind == "none") {
    std::int64_t sum = 0;
#pragma omp parallel num_threads(2)
    {
      std::int64_t mine = 0;
#pragma omp for schedule(dynamic, 8)
      for (int i = 0; i < 1000; ++i) mine += one;
#pragma omp critical(dgbench_planted)
      sum += mine;
#pragma omp barrier
#pragma omp single
      sum += one;
    }
    return sum;
  }
  throw std::invalid_argument("no such fault: " + kind);
}

}  // namespace

void bind_planted_faults(nb::module_& m) { m.def("_commit_fault", &commit); }
#else
void bind_planted_faults(nb::module_&) {}
#endif

}  // namespace dgbench
