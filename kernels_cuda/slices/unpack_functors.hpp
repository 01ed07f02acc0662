// From the form in which a partition travels to the form in which it is aggregated, without a look at
// any element by the host (PiPAD 3.1, 4.1): row offsets from slices, and the exclusive parts of all
// snapshots as one list. One independent index per element, so no scratch and no fixed order.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"
#include "common/search.hpp"
#include "overlap/functors.hpp"

namespace dgbench {

constexpr int kMaxPieces = kMaxSnapshots + 1;  // the overlap and one part per snapshot

// out[piece][row] = first entry of the row: the offset of the first slice of this or a later row.
struct UnpackOffsets {
  const int32_t* row_indices[kMaxPieces];    // int32[slices], non-decreasing
  const int32_t* slice_offsets[kMaxPieces];  // int32[slices + 1]
  int64_t slices[kMaxPieces];
  int64_t rows;
  int pieces;
  int64_t* out;  // int64[pieces, rows + 1]

  DGB_HD int64_t size() const { return pieces * (rows + 1); }

  DGB_HD void operator()(int64_t i) const {
    const int piece = static_cast<int>(i / (rows + 1));
    const auto row = static_cast<int32_t>(i % (rows + 1));
    const int64_t slice = upper_bound(row_indices[piece], slices[piece], row - 1);
    out[i] = slice_offsets[piece][slice];
  }
};

// The exclusive parts as one list of `column << bits | snapshot`: a row holds the entries of
// snapshot 0, then those of snapshot 1 and so on, each in its own order. The CPU's list is sorted
// by column instead, which needs no second pass there.
struct MergeExclusive {
  SnapshotRows parts;
  const float* values[kMaxSnapshots];
  int64_t before[kMaxPieces];  // entries of earlier parts; before[count] is their total
  int64_t rows;
  int bits;
  int64_t* out_indptr;    // int64[rows + 1]
  uint32_t* out_entries;  // [total]
  float* out_values;      // float32[total] or null

  DGB_HD int64_t size() const { return before[parts.count] + rows + 1; }

  DGB_HD int64_t row_begin(int64_t row) const {
    int64_t begin = 0;
    for (int s = 0; s < parts.count; ++s) begin += parts.indptr[s][row];
    return begin;
  }

  DGB_HD void operator()(int64_t i) const {
    if (i >= before[parts.count]) {
      const int64_t row = i - before[parts.count];
      out_indptr[row] = row_begin(row);
      return;
    }
    int snapshot = 0;
    while (i >= before[snapshot + 1]) ++snapshot;
    const int64_t entry = i - before[snapshot];
    const int64_t* indptr = parts.indptr[snapshot];
    const int64_t row = upper_bound(indptr, rows + 1, entry) - 1;
    int64_t at = row_begin(row) + entry - indptr[row];
    for (int s = 0; s < snapshot; ++s) at += parts.indptr[s][row + 1] - parts.indptr[s][row];
    const auto column = static_cast<uint32_t>(parts.indices[snapshot][entry]);
    out_entries[at] = column << bits | static_cast<uint32_t>(snapshot);
    if (out_values != nullptr) out_values[at] = values[snapshot][entry];
  }
};

}  // namespace dgbench
