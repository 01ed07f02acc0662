// Binding of the check of a matrix; the arguments are those of the CPU module with the stream at the
// end.
#include "common/operator_definition.hpp"
#include "csr/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

void check_csr(VectorOn<const int64_t, Device> indptr, VectorOn<const int32_t, Device> indices,
               int64_t num_cols, VectorOn<int64_t, Device> found, std::uintptr_t stream) {
  require(indptr.size() >= 1, "indptr is empty, expected rows + 1 offsets");
  require_length("found", static_cast<int64_t>(found.size()), 3);
  check_launch(dgb_check_csr(indptr.data(), indices.data(),
                             static_cast<int64_t>(indptr.size()) - 1,
                             static_cast<int64_t>(indices.size()), num_cols, found.data(),
                             stream_of(stream)),
               "check_csr");
}

}  // namespace

void bind_csr_check(nb::module_& m) {
  add_operator(m, "check_csr", &check_csr, "indptr"_a.noconvert(), "indices"_a.noconvert(), "num_cols"_a,
        "found"_a.noconvert(), "stream"_a);
}

}  // namespace dgbench
