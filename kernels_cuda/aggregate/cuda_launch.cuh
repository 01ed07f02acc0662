// What both products over long lists share: a lane's part of a row, and how rows are launched.
#pragma once

#include "aggregate/cuda_launchers.h"
#include "aggregate/heavy_rows.hpp"
#include "aggregate/tiles.hpp"
#include "common/launch.cuh"

namespace dgbench {

// Entries of an average row for each lane that takes entries in turns, by how many lanes hold a
// row of features (bits). Rows of a warp end together, so the longest one sets its time: where many
// narrow rows would share a warp, more lanes to a row even that out.
constexpr int kFewEntries[] = {4, 4, 4, 4, 4, 4};
constexpr int kEverything = 0x7fffffff;
constexpr int kMaxBlocks = 132 * 16;  // that take segments or split rows in turns
// 128 rows of 512 bytes in flight hide the memory of a processor; 64 registers allow that.
constexpr int kBlocksPerProcessor = 4;

enum Weights { kNone, kOne, kPerSnapshot, kBits };

// A lane's part of a row: VEC columns from `column` on and the snapshots they belong to.
template <int VEC>
struct Lane {
  int column;
  int snapshot[VEC];

  __device__ Lane(const AggregateArgs& a, int first) : column(first) {
#pragma unroll
    for (int e = 0; e < VEC; ++e) snapshot[e] = (first + e) / a.features;
  }

  // A bit for each of its snapshots, of which the last is below 32.
  __device__ uint32_t bits() const {
    uint32_t found = 0;
#pragma unroll
    for (int e = 0; e < VEC; ++e) found |= 1u << snapshot[e];
    return found;
  }

  // Adds what the snapshots in `held` have of a neighbour's row; others may hold anything there.
  __device__ void add_held(uint32_t held, const float (&neighbour)[VEC], float (&sum)[VEC]) const {
#pragma unroll
    for (int e = 0; e < VEC; ++e) sum[e] += held >> snapshot[e] & 1u ? neighbour[e] : 0.0f;
  }
};

template <int VEC>
__device__ __forceinline__ void scale_by(const float* scale, int64_t vertex,
                                         const AggregateArgs& a, const Lane<VEC>& lane,
                                         float (&value)[VEC]) {
  const float* of_vertex = scale + vertex * a.snapshots;
#pragma unroll
  for (int e = 0; e < VEC; ++e) value[e] *= __ldg(of_vertex + lane.snapshot[e]);
}

// The sum over the lanes of a warp whose numbers differ in the bits [from, to).
template <int VEC>
__device__ __forceinline__ void add_lanes(int from, int to, float (&sum)[VEC]) {
  for (int bit = from; bit < to; ++bit) {
#pragma unroll
    for (int e = 0; e < VEC; ++e) sum[e] += __shfl_xor_sync(0xffffffffu, sum[e], 1 << bit);
  }
}

// Self loop, row scale, store.
template <int VEC, bool SCALED>
__device__ __forceinline__ void finish(const AggregateArgs& a, const Lane<VEC>& lane, int64_t row,
                                       float (&sum)[VEC]) {
  const int64_t at = row * a.snapshots * a.features + lane.column;
  if (a.self_loop) {
    float own[VEC];
    load_floats<VEC>(a.x + at, own);
    if constexpr (SCALED) scale_by<VEC>(a.col_scale, row, a, lane, own);
#pragma unroll
    for (int e = 0; e < VEC; ++e) sum[e] += own[e];
  }
  if (a.row_scale != nullptr) scale_by<VEC>(a.row_scale, row, a, lane, sum);
  store_floats<VEC>(a.y + at, sum);
}

__device__ __forceinline__ int64_t entries_of(const AggregateArgs& a, int64_t row) {
  int64_t count = a.over_indptr[row + 1] - a.over_indptr[row];
  if (a.ex_indptr != nullptr) count += a.ex_indptr[row + 1] - a.ex_indptr[row];
  return count;
}

// Floats of a lane's loads, and lanes (bits) that hold a row of features.
struct Columns {
  int vec = 1;
  int lane_bits = 0;

  explicit Columns(const AggregateArgs& a) {
    const int d = a.snapshots * a.features;
    const auto fits = [&](int wide) {
      return d % wide == 0 && aligned(a.x, 4 * wide) && aligned(a.y, 4 * wide);
    };
    vec = fits(4) ? 4 : fits(2) ? 2 : 1;
    while (lane_bits < 5 && (vec << lane_bits) < d) ++lane_bits;
  }
};

// Whether a product goes by tiles: one list, rows of X of one line at most, and rows long enough on
// average that several lanes would take turns at each. The mean is all that a host knows of their
// lengths without a wait. Wider rows are bound by lines, however they are shared out.
inline bool takes_tiles(const AggregateArgs& a) {
  if (a.form != kChosen || a.heavy == nullptr || a.partials == nullptr) return a.form == kByTiles;
  return a.ex_indptr == nullptr && a.snapshots * a.features <= kLineFloats &&
         a.entries >= a.rows * kFewEntries[0];
}

struct Launch {
  dim3 grid;
  dim3 combine;  // x is 0 where no row has several segments
  HeavyRows heavy;
  int lane_bits;
  int group_bits;
  int vec;
  int most;  // entries of a row that its owner adds
  int table_blocks;
};

inline Launch plan(const AggregateArgs& a, bool in_turns) {
  const int d = a.snapshots * a.features;
  const bool owner_alone = a.form == kOwnerAlone;
  const Columns columns(a);
  Launch launch{};
  launch.vec = columns.vec;
  launch.group_bits = launch.lane_bits = columns.lane_bits;
  launch.most = owner_alone ? kOwnersMost : kHeavyRow;
  if (in_turns && !owner_alone) {
    for (int turns = 2; launch.group_bits < 5; turns *= 2, ++launch.group_bits) {
      if (a.entries < a.rows * turns * kFewEntries[launch.lane_bits]) break;
    }
  }
  const auto tiles = static_cast<unsigned>(ceil_div(d, launch.vec << launch.lane_bits));
  launch.combine = dim3(0, tiles);
  if (a.heavy != nullptr && !owner_alone) {
    launch.heavy = HeavyRows(const_cast<int32_t*>(a.heavy), a.entries);
    const auto blocks = [](int64_t wanted) {
      return static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
    };
    launch.table_blocks = static_cast<int>(blocks(HeavyRows::most_segments(a.entries)));
    launch.combine = dim3(blocks(HeavyRows::most_split_rows(a.entries)), tiles);
  }
  launch.grid = dim3(static_cast<unsigned>(ceil_div(a.rows, kBlock >> launch.group_bits)) +
                         static_cast<unsigned>(launch.table_blocks),
                     tiles);
  return launch;
}

}  // namespace dgbench
