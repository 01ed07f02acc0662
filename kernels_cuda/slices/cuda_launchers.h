// Sliced CSR and the formats of transfer as plain functions, in the manner of common/launchers.h.
#pragma once

#include <cstdint>

#include "slices/unpack_functors.hpp"

namespace dgbench {

extern "C" {
int dgb_count_slices(const int64_t* indptr, int64_t rows, int64_t cap, int64_t* counts,
                     void* stream);
int dgb_fill_slices(const int64_t* indptr, const int64_t* first, int64_t rows, int64_t cap,
                    int64_t slices, int32_t* row_indices, int64_t* slice_offsets, void* stream);

// What arrives over the link is put together on the device.
int dgb_unpack_offsets(const UnpackOffsets* functor, void* stream);
int dgb_merge_exclusive(const MergeExclusive* functor, void* stream);
}

}  // namespace dgbench
