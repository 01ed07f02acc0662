// How long each of several equal shares of a list of work items takes: the sparse product with a
// fixed division of its rows (or slices) over workers, played through one share after another on
// one thread, so that the answer does not depend on how many cores the machine has.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
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

  void run(int64_t first, int64_t last, float* sum) const {
    for (int64_t item = first; item < last; ++item) {
      std::fill(sum, sum + d, 0.0f);
      for (int64_t e = offsets[item]; e < offsets[item + 1]; ++e) {
        const float* from = x + static_cast<int64_t>(indices[e]) * d;
        for (int64_t c = 0; c < d; ++c) sum[c] += from[c];
      }
      float* to = y + static_cast<int64_t>(targets[item]) * d;
      for (int64_t c = 0; c < d; ++c) to[c] += sum[c];
    }
  }
};

void require_range(const char* name, const int32_t* ids, int64_t count, int64_t limit) {
  for (int64_t i = 0; i < count; ++i) {
    require(ids[i] >= 0 && ids[i] < limit,
            std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(ids[i]) +
                ", allowed are 0 to " + std::to_string(limit - 1));
  }
}

void time_shares(VectorOn<const int64_t, Cpu> offsets, VectorOn<const int32_t, Cpu> targets,
                 VectorOn<const int32_t, Cpu> indices, MatrixOn<const float, Cpu> x,
                 MatrixOn<float, Cpu> y, MatrixOn<double, Cpu> seconds) {
  const auto items = static_cast<int64_t>(targets.size());
  const auto nnz = static_cast<int64_t>(indices.size());
  const auto d = static_cast<int64_t>(x.shape(1));
  const auto repeats = static_cast<int64_t>(seconds.shape(0));
  const auto shares = static_cast<int64_t>(seconds.shape(1));
  require_length("offsets", static_cast<int64_t>(offsets.size()), items + 1);
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
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    std::fill(y.data(), y.data() + y.size(), 0.0f);
    for (int64_t share = 0; share < shares; ++share) {
      const int64_t first = share * items / shares;
      const int64_t last = (share + 1) * items / shares;
      const auto begin = std::chrono::steady_clock::now();
      work.run(first, last, sum.data());
      const auto end = std::chrono::steady_clock::now();
      seconds(repeat, share) = std::chrono::duration<double>(end - begin).count();
    }
  }
}

}  // namespace

void bind_work_shares(nb::module_& m) {
  m.def("time_shares", &time_shares, "offsets"_a.noconvert(), "targets"_a.noconvert(),
        "indices"_a.noconvert(), "x"_a.noconvert(), "y"_a.noconvert(), "seconds"_a.noconvert());
}

}  // namespace dgbench
