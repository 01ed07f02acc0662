// How long each work item (a row, or a slice of one) of a sparse product takes on one thread, and when
// the last of several workers would be done that take the next item whenever they are free, as the
// multiprocessors of a device do. So the answer does not depend on how many cores the machine has.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

#include "common/partition_arguments.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using Cpu = nb::device::cpu;

struct WorkList {
  const int64_t* offsets;  // [items + 1] into indices
  const int32_t* targets;  // [items] row of y that an item adds to
  const int32_t* indices;  // columns
  const float* x;          // [columns, d]
  float* y;                // [rows, d]
  int64_t d;

  void run(int64_t item, float* sum) const {
    std::fill(sum, sum + d, 0.0f);
    for (int64_t e = offsets[item]; e < offsets[item + 1]; ++e) {
      const float* from = x + static_cast<int64_t>(indices[e]) * d;
      for (int64_t c = 0; c < d; ++c) sum[c] += from[c];
    }
    float* to = y + static_cast<int64_t>(targets[item]) * d;
    for (int64_t c = 0; c < d; ++c) to[c] += sum[c];
  }
};

void require_range(const char* name, const int32_t* ids, int64_t count, int64_t limit) {
  for (int64_t i = 0; i < count; ++i) {
    require(ids[i] >= 0 && ids[i] < limit,
            std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(ids[i]) +
                ", allowed are 0 to " + std::to_string(limit - 1));
  }
}

// Keeps the shortest of `repeats` passes of each item: what disturbs a pass only makes it longer.
void time_items(VectorOn<const int64_t, Cpu> offsets, VectorOn<const int32_t, Cpu> targets,
                VectorOn<const int32_t, Cpu> indices, MatrixOn<const float, Cpu> x,
                MatrixOn<float, Cpu> y, VectorOn<double, Cpu> seconds, int64_t repeats) {
  const auto items = static_cast<int64_t>(targets.size());
  const auto nnz = static_cast<int64_t>(indices.size());
  const auto d = static_cast<int64_t>(x.shape(1));
  require_length("offsets", static_cast<int64_t>(offsets.size()), items + 1);
  require_length("seconds", static_cast<int64_t>(seconds.size()), items);
  require_length("y columns", static_cast<int64_t>(y.shape(1)), d);
  require(offsets(0) == 0 && offsets(items) == nnz, "offsets must run from 0 to nnz");
  for (int64_t i = 0; i < items; ++i) {
    require(offsets(i) <= offsets(i + 1), "offsets decrease at item " + std::to_string(i));
  }
  require_range("targets", targets.data(), items, static_cast<int64_t>(y.shape(0)));
  require_range("indices", indices.data(), nnz, static_cast<int64_t>(x.shape(0)));
  const WorkList work{offsets.data(), targets.data(), indices.data(), x.data(), y.data(), d};
  std::vector<float> sum(static_cast<size_t>(d));
  nb::gil_scoped_release release;
  std::fill(seconds.data(), seconds.data() + items, std::numeric_limits<double>::infinity());
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    std::fill(y.data(), y.data() + y.size(), 0.0f);
    auto before = std::chrono::steady_clock::now();
    for (int64_t item = 0; item < items; ++item) {
      work.run(item, sum.data());
      const auto now = std::chrono::steady_clock::now();
      const double taken = std::chrono::duration<double>(now - before).count();
      seconds(item) = std::min(seconds(item), taken);
      before = now;
    }
  }
}

// Seconds until the last of `workers` is done, items taken in order by whoever is free first.
double hand_out(VectorOn<const double, Cpu> seconds, int64_t workers) {
  require(workers >= 1, "workers is " + std::to_string(workers) + ", allowed are values from 1");
  nb::gil_scoped_release release;
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  // More workers than items are never needed.
  workers = std::min(workers, std::max<int64_t>(1, static_cast<int64_t>(seconds.size())));
  for (int64_t i = 0; i < workers; ++i) free_at.push(0.0);
  double last = 0.0;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const double end = free_at.top() + seconds(i);
    free_at.pop();
    free_at.push(end);
    last = std::max(last, end);
  }
  return last;
}

}  // namespace

void bind_work_items(nb::module_& m) {
  m.def("time_items", &time_items, "offsets"_a.noconvert(), "targets"_a.noconvert(),
        "indices"_a.noconvert(), "x"_a.noconvert(), "y"_a.noconvert(), "seconds"_a.noconvert(),
        "repeats"_a);
  m.def("hand_out", &hand_out, "seconds"_a.noconvert(), "workers"_a);
}

}  // namespace dgbench
