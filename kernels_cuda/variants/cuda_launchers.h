// The papers' own aggregation kernels as plain functions, in the manner of common/launchers.h.
#pragma once

#include <cstdint>

#include "variants/slice_coalescing.hpp"

namespace dgbench {

extern "C" {
// `vector` is the most floats a lane may load at once; where addresses are not aligned it takes
// fewer. `clocks` is null or int64[warps, 3]: begin, end, multiprocessor of every warp.
int64_t dgb_sliced_warp_count(const SliceWarp* warp, int vector);
int dgb_aggregate_sliced(const SliceWarp* warp, int vector, int64_t* clocks, void* stream);
int dgb_scatter_sliced(const SliceWarp* warp, int vector, void* stream);
int64_t dgb_gespmm_warp_count(int64_t rows, int features, int64_t entries);
int dgb_spmm_gespmm(const int64_t* indptr, const int32_t* indices, const float* values,
                    int64_t rows, int64_t entries, int features, const float* x, float* y,
                    int64_t* clocks, void* stream);
}

}  // namespace dgbench
