// Binding of the check of a matrix (csr/check_functors.hpp).
#include <nanobind/nanobind.h>

#include "common/for_each.hpp"
#include "common/partition_arguments.hpp"
#include "csr/check_functors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using Cpu = nb::device::cpu;

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

void bind_csr_check(nb::module_& m) {
  m.def("check_csr", &check_csr, "indptr"_a.noconvert(), "indices"_a.noconvert(), "num_cols"_a,
        "found"_a.noconvert());
}

}  // namespace dgbench
