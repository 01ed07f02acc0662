// Bindings of row slicing; the arguments are those of the CPU module with the stream at the end.
#include "common/operator_definition.hpp"
#include "slices/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

void count_slices(VectorOn<const int64_t, Device> indptr, int64_t cap,
                  VectorOn<int64_t, Device> counts, std::uintptr_t stream) {
  require(cap >= 1, "cap is " + std::to_string(cap) + ", allowed are values from 1");
  const auto rows = static_cast<int64_t>(counts.size());
  require_length("indptr", static_cast<int64_t>(indptr.size()), rows + 1);
  check_launch(dgb_count_slices(indptr.data(), rows, cap, counts.data(), stream_of(stream)),
               "count_slices");
}

void fill_slices(VectorOn<const int64_t, Device> indptr, VectorOn<const int64_t, Device> first,
                 int64_t cap, VectorOn<int32_t, Device> row_indices,
                 VectorOn<int64_t, Device> slice_offsets, std::uintptr_t stream) {
  require(cap >= 1, "cap is " + std::to_string(cap) + ", allowed are values from 1");
  const auto rows = static_cast<int64_t>(indptr.size()) - 1;
  const auto slices = static_cast<int64_t>(row_indices.size());
  require_length("first", static_cast<int64_t>(first.size()), rows + 1);
  require_length("slice_offsets", static_cast<int64_t>(slice_offsets.size()), slices + 1);
  check_launch(dgb_fill_slices(indptr.data(), first.data(), rows, cap, slices,
                               row_indices.data(), slice_offsets.data(), stream_of(stream)),
               "fill_slices");
}

}  // namespace

void bind_slices(nb::module_& m) {
  add_operator(m, "count_slices", &count_slices, "indptr"_a.noconvert(), "cap"_a, "counts"_a.noconvert(),
        "stream"_a);
  add_operator(m, "fill_slices", &fill_slices, "indptr"_a.noconvert(), "first"_a.noconvert(), "cap"_a,
        "row_indices"_a.noconvert(), "slice_offsets"_a.noconvert(), "stream"_a);
}

}  // namespace dgbench
