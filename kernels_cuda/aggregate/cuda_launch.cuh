// What both products over long lists share: a lane's part of a row, and how rows are launched.
#pragma once

#include "aggregate/cuda_launchers.h"
#include "aggregate/heavy_rows.hpp"
#include "common/launch.cuh"

namespace dgbench {

// Entries of an average row for each lane that takes entries in turns, by how many lanes hold a
// row of features (bits). Rows of a warp end together, so the longest one sets its time: where many
// narrow rows would share a warp, more lanes to a row even that out.
constexpr int kFewEntries[] = {4, 4, 4, 4, 4, 4};
constexpr int kEverything = 0x7fffffff;
constexpr int kMaxBlocks = 132 * 16;  // that take segments or split rows in turns

// A lane's part of a row: VEC columns from `column` on and the snapshots they belong to.
template <int VEC>
struct Lane {
  int column;
  int snapshot[VEC];

  __device__ Lane(const AggregateArgs& a, int first) : column(first) {
#pragma unroll
    for (int e = 0; e < VEC; ++e) snapshot[e] = (first + e) / a.features;
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

__device__ __forceinline__ int64_t entries_of(const AggregateArgs& a, int64_t row) {
  int64_t count = a.over_indptr[row + 1] - a.over_indptr[row];
  if (a.ex_indptr != nullptr) count += a.ex_indptr[row + 1] - a.ex_indptr[row];
  return count;
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
  const auto fits = [&](int vec) {
    return d % vec == 0 && aligned(a.x, 4 * vec) && aligned(a.y, 4 * vec);
  };
  Launch launch{};
  launch.vec = fits(4) ? 4 : fits(2) ? 2 : 1;
  while (launch.lane_bits < 5 && (launch.vec << launch.lane_bits) < d) ++launch.lane_bits;
  launch.group_bits = launch.lane_bits;
  launch.most = a.owner_alone ? kOwnersMost : kHeavyRow;
  if (in_turns && !a.owner_alone) {
    for (int turns = 2; launch.group_bits < 5; turns *= 2, ++launch.group_bits) {
      if (a.entries < a.rows * turns * kFewEntries[launch.lane_bits]) break;
    }
  }
  const auto tiles = static_cast<unsigned>(ceil_div(d, launch.vec << launch.lane_bits));
  launch.combine = dim3(0, tiles);
  if (a.heavy != nullptr && !a.owner_alone) {
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
