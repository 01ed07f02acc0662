// Bindings of the row slicing and of the matrix check (common/slices_functors.hpp).
#include <nanobind/nanobind.h>

#include "common/csr_check_functors.hpp"
#include "common/for_each.hpp"
#include "common/partition_arguments.hpp"
#include "common/slices_functors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using Cpu = nb::device::cpu;

void count_slices(VectorOn<const int64_t, Cpu> indptr, int64_t cap, VectorOn<int64_t, Cpu> counts) {
  require(cap >= 1, "cap is " + std::to_string(cap) + ", allowed are values from 1");
  const auto rows = static_cast<int64_t>(counts.size());
  require_length("indptr", static_cast<int64_t>(indptr.size()), rows + 1);
  const CountSlices functor{indptr.data(), cap, counts.data()};
  nb::gil_scoped_release release;
  for_each(rows, functor);
}

void fill_slices(VectorOn<const int64_t, Cpu> indptr, VectorOn<const int64_t, Cpu> first, int64_t cap,
                 VectorOn<int32_t, Cpu> row_indices, VectorOn<int64_t, Cpu> slice_offsets) {
  require(cap >= 1, "cap is " + std::to_string(cap) + ", allowed are values from 1");
  const auto rows = static_cast<int64_t>(indptr.size()) - 1;
  const auto slices = static_cast<int64_t>(row_indices.size());
  require_length("first", static_cast<int64_t>(first.size()), rows + 1);
  require_length("slice_offsets", static_cast<int64_t>(slice_offsets.size()), slices + 1);
  const FillSlice functor{indptr.data(), first.data(),       rows,
                          cap,           row_indices.data(), slice_offsets.data()};
  nb::gil_scoped_release release;
  for_each(slices, functor);
}

void check_csr(VectorOn<const int64_t, Cpu> indptr, VectorOn<const int32_t, Cpu> indices,
               int64_t num_cols, VectorOn<int64_t, Cpu> found) {
  require_length("found", static_cast<int64_t>(found.size()), 3);
  require(indptr.size() >= 1, "indptr is empty, expected rows + 1 offsets");
  const CheckRow functor{indptr.data(), indices.data(), static_cast<int64_t>(indices.size()),
                         num_cols, found.data()};
  const auto rows = static_cast<int64_t>(indptr.size()) - 1;
  nb::gil_scoped_release release;
  for_each(rows, functor);
}

}  // namespace

void bind_slices(nb::module_& m) {
  m.def("count_slices", &count_slices, "indptr"_a.noconvert(), "cap"_a, "counts"_a.noconvert());
  m.def("fill_slices", &fill_slices, "indptr"_a.noconvert(), "first"_a.noconvert(), "cap"_a,
        "row_indices"_a.noconvert(), "slice_offsets"_a.noconvert());
  m.def("check_csr", &check_csr, "indptr"_a.noconvert(), "indices"_a.noconvert(), "num_cols"_a,
        "found"_a.noconvert());
}

}  // namespace dgbench
