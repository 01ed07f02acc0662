// Y = R (A [+ I]) C X for S snapshots in one launch, without atomics.
//
// A row of Y has one owner: a group of L = 2^k lanes, each holding VEC neighbouring columns of the
// d = S F of the row in registers. The owner adds the shared neighbours, the neighbours of single
// snapshots and the row itself and writes once, so the result is the same in every run. The lanes
// of a group load the same index word, which the hardware broadcasts; an exchange by shuffle would
// need run-time masks, which cost more than the loads.
//
// A row of more than kHeavyRow entries is left to the whole block of its owner: each group sums
// every so-manieth entry and the partial sums are added in the order of the groups.
#include "cuda/launch.cuh"
#include "cuda/launchers.h"

namespace dgbench {
namespace {

constexpr int64_t kHeavyRow = 1024;
constexpr int kInFlight = 4;  // neighbour rows loaded before the first is used

enum Weights { kNone, kOne, kPerSnapshot };

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

// Adds every step-th shared neighbour of a row from number `offset` on. Positions inside a row are
// 32 bits wide, which saves registers.
template <int VEC, int WEIGHTS, bool SCALED>
__device__ __forceinline__ void add_shared(const AggregateArgs& a, const Lane<VEC>& lane,
                                           int64_t row, int offset, int step,
                                           float (&sum)[VEC]) {
  const int64_t d = static_cast<int64_t>(a.snapshots) * a.features;
  const int64_t begin = a.over_indptr[row];
  const int count = static_cast<int>(a.over_indptr[row + 1] - begin);
  const int32_t* indices = a.over_indices + begin;
  const float* x = a.x + lane.column;
  for (int p = offset; p < count; p += kInFlight * step) {
    float neighbour[kInFlight][VEC];
    int32_t column[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      column[u] = p + u * step < count ? __ldg(indices + p + u * step) : -1;
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (column[u] >= 0) load_floats<VEC>(x + column[u] * d, neighbour[u]);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (column[u] < 0) continue;
      if constexpr (SCALED) scale_by<VEC>(a.col_scale, column[u], a, lane, neighbour[u]);
      if constexpr (WEIGHTS == kPerSnapshot) {
        scale_by<VEC>(a.over_values, begin + p + u * step, a, lane, neighbour[u]);
      }
      const float weight = WEIGHTS == kOne ? __ldg(a.over_values + begin + p + u * step) : 1.0f;
#pragma unroll
      for (int e = 0; e < VEC; ++e) sum[e] += weight * neighbour[u][e];
    }
  }
}

// Adds the neighbours of single snapshots; a lane loads only where one of its columns is meant.
template <int VEC, bool SCALED>
__device__ __forceinline__ void add_single(const AggregateArgs& a, const Lane<VEC>& lane,
                                           int64_t row, int offset, int step,
                                           float (&sum)[VEC]) {
  const int64_t d = static_cast<int64_t>(a.snapshots) * a.features;
  const uint32_t low = (1u << a.shift) - 1u;
  const int64_t begin = a.ex_indptr[row];
  const int count = static_cast<int>(a.ex_indptr[row + 1] - begin);
  const uint32_t* entries = a.ex_entries + begin;
  const float* x = a.x + lane.column;
  for (int p = offset; p < count; p += kInFlight * step) {
    float neighbour[kInFlight][VEC];
    uint32_t entry[kInFlight];
    bool mine[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const bool inside = p + u * step < count;
      entry[u] = inside ? __ldg(entries + p + u * step) : 0u;
      const int snapshot = static_cast<int>(entry[u] & low);
      mine[u] = inside && lane.snapshot[0] <= snapshot && snapshot <= lane.snapshot[VEC - 1];
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (mine[u]) load_floats<VEC>(x + (entry[u] >> a.shift) * d, neighbour[u]);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (!mine[u]) continue;
      const int snapshot = static_cast<int>(entry[u] & low);
      float weight = a.ex_values != nullptr ? __ldg(a.ex_values + begin + p + u * step) : 1.0f;
      if constexpr (SCALED) {
        weight *= __ldg(a.col_scale + static_cast<int64_t>(entry[u] >> a.shift) * a.snapshots +
                        snapshot);
      }
#pragma unroll
      for (int e = 0; e < VEC; ++e) {
        if (lane.snapshot[e] == snapshot) sum[e] += weight * neighbour[u][e];
      }
    }
  }
}

template <int VEC, int WEIGHTS, bool SCALED>
__device__ __forceinline__ void add_row(const AggregateArgs& a, const Lane<VEC>& lane, int64_t row,
                                        int offset, int step, float (&sum)[VEC]) {
  add_shared<VEC, WEIGHTS, SCALED>(a, lane, row, offset, step, sum);
  if (a.ex_indptr != nullptr) add_single<VEC, SCALED>(a, lane, row, offset, step, sum);
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

template <int VEC, int WEIGHTS, bool SCALED>
__global__ void __launch_bounds__(kBlock) aggregate_rows(const AggregateArgs a, int lane_bits) {
  __shared__ float partial[kBlock * VEC];
  __shared__ bool heavy_row[kBlock];
  const int lanes = 1 << lane_bits;
  const int groups = kBlock >> lane_bits;
  const int group = threadIdx.x >> lane_bits;
  const Lane<VEC> lane(a, (blockIdx.y * lanes + (threadIdx.x & (lanes - 1))) * VEC);
  const bool has_columns = lane.column < a.snapshots * a.features;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * groups;
  const int64_t row = first + group;

  bool heavy = false;
  if (row < a.rows) {
    heavy = entries_of(a, row) > kHeavyRow;
    if (!heavy && has_columns) {
      float sum[VEC] = {};
      add_row<VEC, WEIGHTS, SCALED>(a, lane, row, 0, 1, sum);
      finish<VEC, SCALED>(a, lane, row, sum);
    }
  }
  heavy_row[group] = heavy;  // every lane of the group writes the same
  if (!__syncthreads_or(heavy)) return;

  for (int g = 0; g < groups; ++g) {
    if (!heavy_row[g]) continue;
    float sum[VEC] = {};
    if (has_columns) add_row<VEC, WEIGHTS, SCALED>(a, lane, first + g, group, groups, sum);
#pragma unroll
    for (int e = 0; e < VEC; ++e) partial[e * kBlock + threadIdx.x] = sum[e];
    __syncthreads();
    if (group == 0 && has_columns) {
      for (int other = 1; other < groups; ++other) {
#pragma unroll
        for (int e = 0; e < VEC; ++e) {
          sum[e] += partial[e * kBlock + (other << lane_bits) + threadIdx.x];
        }
      }
      finish<VEC, SCALED>(a, lane, first + g, sum);
    }
    __syncthreads();
  }
}

// The transposed product from the same lists: the owner of a row of A adds its own scaled features
// to the rows of Y that the entries name. Order of additions, and so the last bits, vary.
template <int VEC>
__global__ void __launch_bounds__(kBlock) scatter_rows(const AggregateArgs a, int lane_bits) {
  __shared__ bool heavy_row[kBlock];
  const int lanes = 1 << lane_bits;
  const int groups = kBlock >> lane_bits;
  const int group = threadIdx.x >> lane_bits;
  const Lane<VEC> lane(a, (blockIdx.y * lanes + (threadIdx.x & (lanes - 1))) * VEC);
  const int64_t d = static_cast<int64_t>(a.snapshots) * a.features;
  const bool has_columns = lane.column < d;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * groups;
  const uint32_t low = (1u << a.shift) - 1u;

  const auto send = [&](int64_t row, int64_t offset, int64_t step) {
    float own[VEC];
    load_floats<VEC>(a.x + row * d + lane.column, own);
    if (a.row_scale != nullptr) scale_by<VEC>(a.row_scale, row, a, lane, own);
    for (int64_t p = a.over_indptr[row] + offset; p < a.over_indptr[row + 1]; p += step) {
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
      for (int64_t p = a.ex_indptr[row] + offset; p < a.ex_indptr[row + 1]; p += step) {
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
    if (a.self_loop && offset == 0) {
      if (a.col_scale != nullptr) scale_by<VEC>(a.col_scale, row, a, lane, own);
      add_floats<VEC>(a.y + row * d + lane.column, own);
    }
  };

  bool heavy = false;
  const int64_t row = first + group;
  if (row < a.rows) {
    heavy = entries_of(a, row) > kHeavyRow;
    if (!heavy && has_columns) send(row, 0, 1);
  }
  heavy_row[group] = heavy;
  if (!__syncthreads_or(heavy)) return;
  for (int g = 0; g < groups; ++g) {
    if (heavy_row[g] && has_columns) send(first + g, group, groups);
  }
}

struct Launch {
  dim3 grid;
  int lane_bits;
  int vec;
};

Launch plan(const AggregateArgs& a) {
  const int d = a.snapshots * a.features;
  const auto fits = [&](int vec) {
    return d % vec == 0 && aligned(a.x, 4 * vec) && aligned(a.y, 4 * vec);
  };
  Launch launch;
  launch.vec = fits(4) ? 4 : fits(2) ? 2 : 1;
  launch.lane_bits = 0;
  while (launch.lane_bits < 5 && (launch.vec << launch.lane_bits) < d) ++launch.lane_bits;
  launch.grid = dim3(static_cast<unsigned>(ceil_div(a.rows, kBlock >> launch.lane_bits)),
                     static_cast<unsigned>(ceil_div(d, launch.vec << launch.lane_bits)));
  return launch;
}

template <int VEC, int WEIGHTS>
void aggregate_weighted(const AggregateArgs& a, const Launch& l, cudaStream_t stream) {
  if (a.col_scale != nullptr) {
    aggregate_rows<VEC, WEIGHTS, true><<<l.grid, kBlock, 0, stream>>>(a, l.lane_bits);
  } else {
    aggregate_rows<VEC, WEIGHTS, false><<<l.grid, kBlock, 0, stream>>>(a, l.lane_bits);
  }
}

template <int VEC>
void aggregate_wide(const AggregateArgs& a, const Launch& l, cudaStream_t stream) {
  if (a.over_values == nullptr) {
    aggregate_weighted<VEC, kNone>(a, l, stream);
  } else if (a.per_snapshot) {
    aggregate_weighted<VEC, kPerSnapshot>(a, l, stream);
  } else {
    aggregate_weighted<VEC, kOne>(a, l, stream);
  }
}

}  // namespace

extern "C" {

int dgb_aggregate(const AggregateArgs* args, void* stream) {
  if (args->rows == 0 || args->snapshots * args->features == 0) return 0;
  const Launch l = plan(*args);
  if (l.vec == 4) {
    aggregate_wide<4>(*args, l, as_stream(stream));
  } else if (l.vec == 2) {
    aggregate_wide<2>(*args, l, as_stream(stream));
  } else {
    aggregate_wide<1>(*args, l, as_stream(stream));
  }
  return launch_status();
}

int dgb_scatter(const AggregateArgs* args, void* stream) {
  const int64_t d = static_cast<int64_t>(args->snapshots) * args->features;
  if (args->columns == 0 || d == 0) return 0;
  const cudaError_t error =
      cudaMemsetAsync(args->y, 0, args->columns * d * sizeof(float), as_stream(stream));
  if (error != cudaSuccess || args->rows == 0) return static_cast<int>(error);
  const Launch l = plan(*args);
  if (l.vec == 4) {
    scatter_rows<4><<<l.grid, kBlock, 0, as_stream(stream)>>>(*args, l.lane_bits);
  } else if (l.vec == 2) {
    scatter_rows<2><<<l.grid, kBlock, 0, as_stream(stream)>>>(*args, l.lane_bits);
  } else {
    scatter_rows<1><<<l.grid, kBlock, 0, as_stream(stream)>>>(*args, l.lane_bits);
  }
  return launch_status();
}

}  // extern "C"

}  // namespace dgbench
