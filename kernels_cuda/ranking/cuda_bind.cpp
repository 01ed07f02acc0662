// Binding of the ranks of true columns; the arguments are those of the CPU module, with the stream at
// the end.
#include "common/operator_definition.hpp"
#include "ranking/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

int launch(const RankRows<float>& ranks, void* stream) {
  return dgb_rank_columns_float(&ranks, stream);
}
int launch(const RankRows<double>& ranks, void* stream) {
  return dgb_rank_columns_double(&ranks, stream);
}

// What stands in `column`, `skip_offsets` and `skip` is not looked at here.
template <class T>
void rank_columns(MatrixOn<const T, Device> scores, DeviceArray<const int64_t> column,
                  MaybeDevice<const int64_t> skip_offsets, MaybeDevice<const int64_t> skip,
                  DeviceArray<int64_t> above, DeviceArray<int64_t> equal, std::uintptr_t stream) {
  const std::size_t rows = scores.shape(0);
  check_size(column, rows, "column");
  check_size(above, rows, "above");
  check_size(equal, rows, "equal");
  if (skip_offsets.has_value() != skip.has_value()) reject("skip needs skip_offsets");
  check_optional(skip_offsets, rows + 1, "skip_offsets");
  const RankRows<T> ranks{scores.data(),
                          column.data(),
                          address(skip_offsets),
                          address(skip),
                          static_cast<int64_t>(rows),
                          static_cast<int64_t>(scores.shape(1)),
                          above.data(),
                          equal.data()};
  check_launch(launch(ranks, stream_of(stream)), "rank_columns");
}

template <class T>
void bind_of(nb::module_& m) {
  add_operator(m, "rank_columns", &rank_columns<T>, "scores"_a.noconvert(), "column"_a.noconvert(),
        "skip_offsets"_a.noconvert().none(), "skip"_a.noconvert().none(), "above"_a.noconvert(),
        "equal"_a.noconvert(), "stream"_a);
}

}  // namespace

void bind_ranking(nb::module_& m) {
  bind_of<float>(m);
  bind_of<double>(m);
}

}  // namespace dgbench
