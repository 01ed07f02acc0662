// How the lanes of a warp share adjacent slices: thread-aware slice coalescing, algorithm 1 of PiPAD
// (PPoPP 2023, 4.3), one function per step, so that a host loop over 32 lanes runs the very code of
// the device.
//
// For a feature width d below 32 a warp takes g = min(4, 32 / d) adjacent slices. It stages their
// entries in shared memory, interleaved (entry `off` of slice i lies at off * g + i), so that the
// loads of a piece and the later reads both run over neighbouring words; then thread group i of d
// lanes sums slice i, one column per lane. From width 32 on g is 1 and the lanes cover the columns,
// up to four each. The printed algorithm fixes g at 4, which needs more than 32 lanes for d > 8,
// compares with ">" where ">=" is meant and advances its loop variables twice.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

constexpr int kWarp = 32;
constexpr int kMaxGroups = 4;
constexpr int kPieceEntries = 32;  // entries of a slice staged at a time

struct StagedEntry {
  int32_t column;
  float value;
};

struct SliceWarp {
  const int32_t* row_indices;    // int32[slices]
  const int64_t* slice_offsets;  // int64[slices + 1]
  const int32_t* indices;        // int32[nnz]
  const float* values;           // float32[nnz * weights] or null: 1 each
  int weights;                   // of an entry: one, or one for each of as many blocks of columns
  int64_t slices;
  const float* x;  // rows of x_pitch floats, d used
  int64_t x_pitch;
  float* y;  // rows of y_pitch floats, d used; sums are added
  int64_t y_pitch;
  int d;
  int groups;  // slices per warp, g

  DGB_HD int64_t units() const { return (slices + groups - 1) / groups; }

  // Lanes that load: a multiple of g, so that a lane always loads from the same slice.
  DGB_HD int staging_lanes() const { return groups > 1 ? groups * d : kWarp; }

  // Entries of a slice from piece `piece` on, at most one piece; 0 past the last slice.
  DGB_HD int piece_size(int64_t slice, int64_t piece) const {
    if (slice >= slices) return 0;
    const int64_t rest = slice_offsets[slice + 1] - slice_offsets[slice] - piece * kPieceEntries;
    return rest <= 0 ? 0 : (rest < kPieceEntries ? static_cast<int>(rest) : kPieceEntries);
  }

  // Whether any slice of the unit still has entries in this piece.
  DGB_HD bool has_piece(int64_t unit, int64_t piece) const {
    bool any = false;
    for (int i = 0; i < groups; ++i) any = any || piece_size(unit * groups + i, piece) > 0;
    return any;
  }

  // Step 1: `shared` holds kPieceEntries * g entries.
  DGB_HD void stage(int64_t unit, int64_t piece, int lane, StagedEntry* shared) const {
    const int stride = staging_lanes();
    if (lane >= stride) return;
    const int64_t slice = unit * groups + lane % groups;
    const int size = piece_size(slice, piece);
    if (size == 0) return;
    const int64_t begin = slice_offsets[slice] + piece * kPieceEntries;
    for (int nid = lane; nid < kPieceEntries * groups; nid += stride) {
      const int off = nid / groups;
      if (off >= size) return;
      const bool staged = values != nullptr && weights == 1;
      shared[nid] = {indices[begin + off], staged ? values[begin + off] : 1.0f};
    }
  }

  // Which slice of the unit and which first column a lane works on; false for an idle lane.
  template <int VEC>
  DGB_HD bool place(int64_t unit, int tile, int lane, int* index, int* column) const {
    *index = groups > 1 ? lane / d : 0;
    *column = groups > 1 ? lane % d : (tile * kWarp + lane) * VEC;
    return *index < groups && *column < d && unit * groups + *index < slices;
  }

  // Weights of entry `entry` of the matrix for the VEC columns from `column` on, where snapshots that
  // share an entry weigh it each in their own block of columns. They are not staged: a lane reads
  // those of its own columns.
  template <int VEC>
  DGB_HD void weigh(int64_t entry, int column, float (&value)[VEC]) const {
    const int width = d / weights;
    for (int e = 0; e < VEC; ++e) value[e] *= values[entry * weights + (column + e) / width];
  }

  // Step 2: adds the staged neighbours of the lane's slice to its VEC sums.
  template <int VEC, class Load>
  DGB_HD void accumulate(int64_t unit, int64_t piece, int index, int column,
                         const StagedEntry* shared, const Load& load, float (&sum)[VEC]) const {
    const int64_t slice = unit * groups + index;
    const int size = piece_size(slice, piece);
    for (int k = 0; k < size; ++k) {
      const StagedEntry entry = shared[k * groups + index];
      float row[VEC];
      load(x + entry.column * x_pitch + column, row);
      if (weights > 1) weigh<VEC>(slice_offsets[slice] + piece * kPieceEntries + k, column, row);
      for (int e = 0; e < VEC; ++e) sum[e] += entry.value * row[e];
    }
  }

  // The transposed product takes the same steps, with rows of x for rows of the matrix: a lane holds
  // its columns of the slice's own row, from source(), and adds them to the row of y that each
  // staged entry names.
  template <int VEC, class Add>
  DGB_HD void scatter(int64_t unit, int64_t piece, int index, int column,
                      const StagedEntry* shared, const Add& add, const float (&own)[VEC]) const {
    const int64_t slice = unit * groups + index;
    const int size = piece_size(slice, piece);
    for (int k = 0; k < size; ++k) {
      const StagedEntry entry = shared[k * groups + index];
      float value[VEC];
      for (int e = 0; e < VEC; ++e) value[e] = entry.value * own[e];
      if (weights > 1) weigh<VEC>(slice_offsets[slice] + piece * kPieceEntries + k, column, value);
      add(y + entry.column * y_pitch + column, value);
    }
  }

  DGB_HD const float* source(int64_t unit, int index, int column) const {
    return x + row_indices[unit * groups + index] * x_pitch + column;
  }

  // Step 3: where the lane's sums are added.
  DGB_HD float* target(int64_t unit, int index, int column) const {
    return y + row_indices[unit * groups + index] * y_pitch + column;
  }
};

}  // namespace dgbench
