// The check of a CSR matrix as plain functions, in the manner of common/launchers.h.
#pragma once

#include <cstdint>

namespace dgbench {

extern "C" {
int dgb_check_csr(const int64_t* indptr, const int32_t* indices, int64_t rows, int64_t nnz,
                  int64_t num_cols, int64_t* found, void* stream);
}

}  // namespace dgbench
