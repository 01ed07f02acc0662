// Cutting the rows of a CSR matrix into slices of at most `cap` entries (PiPAD, PPoPP 2023, 4.1).
//
// Two passes over plain indices: how many slices each row gives, a prefix sum by the caller, then
// one index per *slice*. A row with ten million entries is so written by as many threads as it has
// slices, not by one.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"
#include "common/search.hpp"

namespace dgbench {

// counts[row] = ceil(length of the row / cap); empty rows give no slice.
struct CountSlices {
  const int64_t* indptr;  // int64[rows + 1]
  int64_t cap;
  int64_t* counts;  // int64[rows]

  DGB_HD void operator()(int64_t row) const {
    counts[row] = (indptr[row + 1] - indptr[row] + cap - 1) / cap;
  }
};

// Fills the entry of one slice. `first` is the inclusive-from-zero prefix sum of the counts:
// first[row] is the number of slices before the row, first[rows] their total. An empty row repeats
// its predecessor's value, so the last row with first[row] <= slice owns the slice.
struct FillSlice {
  const int64_t* indptr;   // int64[rows + 1]
  const int64_t* first;    // int64[rows + 1]
  int64_t rows;
  int64_t cap;
  int32_t* row_indices;    // int32[slices]
  int64_t* slice_offsets;  // int64[slices + 1]; its last element is the caller's

  DGB_HD void operator()(int64_t slice) const {
    const int64_t row = upper_bound(first, rows + 1, slice) - 1;
    row_indices[slice] = static_cast<int32_t>(row);
    slice_offsets[slice] = indptr[row] + (slice - first[row]) * cap;
  }
};

}  // namespace dgbench
