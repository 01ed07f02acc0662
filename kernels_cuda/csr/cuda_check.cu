// The check of a matrix on the device: the functor of the CPU, one thread per row.
#include "common/launch.cuh"
#include "csr/check_functors.hpp"
#include "csr/cuda_launchers.h"

namespace dgbench {

extern "C" {

int dgb_check_csr(const int64_t* indptr, const int32_t* indices, int64_t rows, int64_t nnz,
                  int64_t num_cols, int64_t* found, void* stream) {
  return for_each(rows, CheckRow{indptr, indices, nnz, num_cols, found}, stream);
}

}  // extern "C"

}  // namespace dgbench
