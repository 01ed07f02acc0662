// One pass over a matrix that finds what would send a merge or a gather out of bounds.
#pragma once

#include <cstdint>

#include "common/for_each.hpp"
#include "common/host_device.hpp"

namespace dgbench {

// Reports any bad row into found[0] (bounds: decreasing or outside [0, nnz]), found[1] (a column
// outside [0, num_cols)) and found[2] (columns not strictly ascending). Places start at -1.
struct CheckRow {
  const int64_t* indptr;   // int64[rows + 1]
  const int32_t* indices;  // int32[nnz]
  int64_t nnz;
  int64_t num_cols;
  int64_t* found;  // int64[3]

  DGB_HD void operator()(int64_t row) const {
    const int64_t begin = indptr[row];
    const int64_t end = indptr[row + 1];
    if (begin < 0 || end < begin || end > nnz) {
      report(found, row);
      return;
    }
    bool outside = false;
    bool disordered = false;
    for (int64_t p = begin; p < end; ++p) {
      const int32_t column = indices[p];
      outside = outside || column < 0 || column >= num_cols;
      disordered = disordered || (p > begin && column <= indices[p - 1]);
    }
    if (outside) report(found + 1, row);
    if (disordered) report(found + 2, row);
  }
};

}  // namespace dgbench
