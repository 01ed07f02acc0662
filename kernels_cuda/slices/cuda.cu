// Slicing on the device: the functors of the CPU, one thread per index.
#include "common/launch.cuh"
#include "slices/cuda_launchers.h"
#include "slices/functors.hpp"

namespace dgbench {

extern "C" {

int dgb_count_slices(const int64_t* indptr, int64_t rows, int64_t cap, int64_t* counts,
                     void* stream) {
  return for_each(rows, CountSlices{indptr, cap, counts}, stream);
}

int dgb_fill_slices(const int64_t* indptr, const int64_t* first, int64_t rows, int64_t cap,
                    int64_t slices, int32_t* row_indices, int64_t* slice_offsets, void* stream) {
  return for_each(slices, FillSlice{indptr, first, rows, cap, row_indices, slice_offsets}, stream);
}

}  // extern "C"

}  // namespace dgbench
