// Y = C (A^T [+ I]) R X from the lists of A itself: the backward pass of topologies that keep no
// transposed copy.
#include "aggregate/cuda_launch.cuh"
#include "aggregate/cuda_launchers.h"

namespace dgbench {
namespace {

// The transposed product from the same lists: the owner of a row of A adds its own scaled features
// to the rows of Y that the entries name. Order of additions, and so the last bits, vary.
template <int VEC>
__global__ void __launch_bounds__(kBlock)
    scatter_rows(const AggregateArgs a, const HeavyRows heavy, int lane_bits, int table_blocks) {
  __shared__ bool heavy_row[kBlock];
  const int lanes = 1 << lane_bits;
  const int groups = kBlock >> lane_bits;
  const int group = threadIdx.x >> lane_bits;
  const Lane<VEC> lane(a, (blockIdx.y * lanes + (threadIdx.x & (lanes - 1))) * VEC);
  const int64_t d = static_cast<int64_t>(a.snapshots) * a.features;
  const bool has_columns = lane.column < d;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) - table_blocks) * groups;
  const uint32_t low = (1u << a.shift) - 1u;

  // Every step-th of the entries [begin, end) of a row.
  const auto send = [&](int64_t row, int begin, int end, int offset, int step) {
    float own[VEC];
    load_floats<VEC>(a.x + row * d + lane.column, own);
    if (a.row_scale != nullptr) scale_by<VEC>(a.row_scale, row, a, lane, own);
    const int64_t over = a.over_indptr[row];
    const int count = static_cast<int>(a.over_indptr[row + 1] - over);
    for (int64_t p = over + begin + offset; p < over + min(end, count); p += step) {
      const int64_t column = __ldg(a.over_indices + p);
      float value[VEC];
      const float weight =
          a.over_values != nullptr && !a.per_snapshot ? __ldg(a.over_values + p) : 1.0f;
#pragma unroll
      for (int e = 0; e < VEC; ++e) value[e] = weight * own[e];
      if (a.per_snapshot) scale_by<VEC>(a.over_values, p, a, lane, value);
      if (a.col_scale != nullptr) scale_by<VEC>(a.col_scale, column, a, lane, value);
      add_floats<VEC>(a.y + column * d + lane.column, value);
    }
    if (a.ex_indptr != nullptr) {
      const int64_t ex = a.ex_indptr[row];
      const int64_t last = min(static_cast<int64_t>(end) - count, a.ex_indptr[row + 1] - ex);
      for (int64_t p = ex + max(begin - count, 0) + offset; p < ex + last; p += step) {
        const uint32_t entry = __ldg(a.ex_entries + p);
        const int snapshot = static_cast<int>(entry & low);
        if (snapshot < lane.snapshot[0] || snapshot > lane.snapshot[VEC - 1]) continue;
        const int64_t column = entry >> a.shift;
        float weight = a.ex_values != nullptr ? __ldg(a.ex_values + p) : 1.0f;
        if (a.col_scale != nullptr) {
          weight *= __ldg(a.col_scale + column * a.snapshots + snapshot);
        }
#pragma unroll
        for (int e = 0; e < VEC; ++e) {
          if (lane.snapshot[e] == snapshot) {
            atomicAdd(a.y + column * d + lane.column + e, weight * own[e]);
          }
        }
      }
    }
    if (a.self_loop && begin + offset == 0) {
      if (a.col_scale != nullptr) scale_by<VEC>(a.col_scale, row, a, lane, own);
      add_floats<VEC>(a.y + row * d + lane.column, own);
    }
  };

  if (static_cast<int>(blockIdx.x) < table_blocks) {
    const int segments = heavy.at[kSegments];
    for (int job = blockIdx.x; job < segments && has_columns; job += table_blocks) {
      const int32_t* segment = heavy.segment(job);
      send(segment[0], segment[1], segment[2], group, groups);
    }
    return;
  }
  bool is_heavy = false;
  const int64_t row = first + group;
  if (row < a.rows) {
    is_heavy = entries_of(a, row) > kHeavyRow;
    if (!is_heavy && has_columns) send(row, 0, kEverything, 0, 1);
  }
  if (heavy.at != nullptr) return;
  heavy_row[group] = is_heavy;
  if (!__syncthreads_or(is_heavy)) return;
  for (int g = 0; g < groups; ++g) {
    if (heavy_row[g] && has_columns) send(first + g, 0, kEverything, group, groups);
  }
}

}  // namespace

extern "C" {

int dgb_scatter(const AggregateArgs* args, void* stream) {
  const int64_t d = static_cast<int64_t>(args->snapshots) * args->features;
  if (args->columns == 0 || d == 0) return 0;
  const cudaError_t error =
      cudaMemsetAsync(args->y, 0, args->columns * d * sizeof(float), as_stream(stream));
  if (error != cudaSuccess || args->rows == 0) return static_cast<int>(error);
  const Launch l = plan(*args, false);
  if (l.vec == 4) {
    scatter_rows<4>
        <<<l.grid, kBlock, 0, as_stream(stream)>>>(*args, l.heavy, l.lane_bits, l.table_blocks);
  } else if (l.vec == 2) {
    scatter_rows<2>
        <<<l.grid, kBlock, 0, as_stream(stream)>>>(*args, l.heavy, l.lane_bits, l.table_blocks);
  } else {
    scatter_rows<1>
        <<<l.grid, kBlock, 0, as_stream(stream)>>>(*args, l.heavy, l.lane_bits, l.table_blocks);
  }
  return launch_status();
}

}  // extern "C"

}  // namespace dgbench
