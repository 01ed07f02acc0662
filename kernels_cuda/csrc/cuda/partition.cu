// Slicing and union on the device: the functors of common/, one thread per index.
#include "common/csr_check_functors.hpp"
#include "common/slices_functors.hpp"
#include "cuda/launch.cuh"
#include "cuda/launchers.h"

namespace dgbench {

extern "C" {

int dgb_check_csr(const int64_t* indptr, const int32_t* indices, int64_t rows, int64_t nnz,
                  int64_t num_cols, int64_t* found, void* stream) {
  return for_each(rows, CheckRow{indptr, indices, nnz, num_cols, found}, stream);
}

int dgb_count_slices(const int64_t* indptr, int64_t rows, int64_t cap, int64_t* counts,
                     void* stream) {
  return for_each(rows, CountSlices{indptr, cap, counts}, stream);
}

int dgb_fill_slices(const int64_t* indptr, const int64_t* first, int64_t rows, int64_t cap,
                    int64_t slices, int32_t* row_indices, int64_t* slice_offsets, void* stream) {
  return for_each(slices, FillSlice{indptr, first, rows, cap, row_indices, slice_offsets}, stream);
}

int dgb_count_union(const CountUnion* functor, int64_t rows, void* stream) {
  return for_each(rows, *functor, stream);
}

int dgb_unite(const FillUnion* functor, int64_t rows, void* stream) {
  return for_each(rows, *functor, stream);
}

}  // extern "C"

}  // namespace dgbench
