// The comparison that a rank counts, for CPU and CUDA.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

struct RankCounts {
  int64_t above = 0;  // columns with a higher score than the true one
  int64_t equal = 0;  // other columns with the same score
};

// Rows of scores, the true column of each, and columns that are left out of a row (null: none).
template <class T>
struct RankRows {
  const T* scores;              // [rows, width]
  const int64_t* column;        // [rows]
  const int64_t* skip_offsets;  // [rows + 1] or null
  const int64_t* skip;          // strictly ascending in a row, the true column not among them
  int64_t rows, width;
  int64_t* above;  // [rows]
  int64_t* equal;  // [rows]

  // What `stride` threads of a row count, of which this is number `first`.
  DGB_HD RankCounts count(int64_t row, int64_t first, int64_t stride) const {
    const T* line = scores + row * width;
    const T wanted = line[column[row]];
    RankCounts found;
    for (int64_t c = first; c < width; c += stride) {
      found.above += line[c] > wanted;
      found.equal += line[c] == wanted;
    }
    if (skip_offsets != nullptr) {
      for (int64_t p = skip_offsets[row] + first; p < skip_offsets[row + 1]; p += stride) {
        found.above -= line[skip[p]] > wanted;
        found.equal -= line[skip[p]] == wanted;
      }
    }
    return found;
  }
};

}  // namespace dgbench
