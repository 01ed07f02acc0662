// Ranks of true columns on the CPU: one thread per row, two counts in one pass over its scores.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>

#include "common/check.hpp"
#include "common/counting.hpp"
#include "ranking/functors.hpp"

using namespace nb::literals;

namespace dgbench {
namespace {

constexpr std::int64_t kSerialScores = 1 << 16;  // fewer are not worth starting threads

template <class T>
void rank_columns(Matrix<const T> scores, Array<const std::int64_t> column,
                  Maybe<const std::int64_t> skip_offsets, Maybe<const std::int64_t> skip,
                  Array<std::int64_t> above, Array<std::int64_t> equal, int threads) {
  const std::size_t rows = scores.shape(0);
  const auto width = static_cast<std::int64_t>(scores.shape(1));
  check_size(column, rows, "column");
  check_size(above, rows, "above");
  check_size(equal, rows, "equal");
  if (skip_offsets.has_value() != skip.has_value()) reject("skip needs skip_offsets");
  if (!ids_in_range(column.data(), rows, width)) reject("column holds ids outside [0, width)");
  if (skip) {
    check_size(*skip_offsets, rows + 1, "skip_offsets");
    check_offsets(skip_offsets->data(), skip_offsets->size(), skip->size(), "skip_offsets");
    if (!ids_in_range(skip->data(), skip->size(), width)) {
      reject("skip holds ids outside [0, width)");
    }
  }
  const RankRows<T> ranks{scores.data(),
                          column.data(),
                          pointer(skip_offsets),
                          pointer(skip),
                          static_cast<std::int64_t>(rows),
                          width,
                          above.data(),
                          equal.data()};
  nb::gil_scoped_release release;
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(static) \
    if (ranks.rows * width > kSerialScores)
  for (std::int64_t row = 0; row < ranks.rows; ++row) {
    const RankCounts found = ranks.count(row, 0, 1);
    ranks.above[row] = found.above;
    ranks.equal[row] = found.equal - 1;  // the true column equals itself
  }
}

template <class T>
void bind_of(nb::module_& m) {
  m.def("rank_columns", &rank_columns<T>, "scores"_a.noconvert(), "column"_a.noconvert(),
        "skip_offsets"_a.noconvert().none(), "skip"_a.noconvert().none(), "above"_a.noconvert(),
        "equal"_a.noconvert(), "threads"_a);
}

}  // namespace

void bind_ranking(nb::module_& m) {
  bind_of<float>(m);
  bind_of<double>(m);
}

}  // namespace dgbench
