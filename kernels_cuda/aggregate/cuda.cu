// Y = R (A [+ I]) C X for S snapshots in one launch, without atomics.
//
// A row of Y has one owner: a group of 2^k lanes. L of them hold the d = S F columns of the row in
// registers, VEC neighbouring ones each; where d is small or rows are long, a group has several times
// L lanes, which take the entries in turns and add up by shuffles. The owner adds the shared
// neighbours, the neighbours of single snapshots and the row itself and writes once, so the result
// is the same in every run. Lanes of the same entry load the same index word, which the hardware
// broadcasts.
//
// A row of more than kHeavyRow entries would hold up its owner's warp. It is cut into segments of
// kSegment entries that a whole block adds up. Rows of one segment are finished by that block; the
// partial sums of the others are added in the order of the segments by a second kernel. Which rows
// those are stands in a table made once per topology on the device, so that no host looks at it;
// small topologies have none, there the block of a heavy row's owner adds it. Narrow products of one
// list go another way where rows are long enough, see cuda_tiles.cu.
#include "aggregate/cuda_launch.cuh"
#include "aggregate/cuda_launchers.h"

namespace dgbench {
namespace {

constexpr int kInFlight = 4;  // neighbour rows loaded before the first is used
constexpr int kWarps = kBlock / 32;

// Adds every step-th of the shared neighbours [offset, count) of a row whose first is `begin`.
// Positions inside a row are 32 bits wide, which saves registers.
template <int VEC, int WEIGHTS, bool SCALED>
__device__ __forceinline__ void add_shared(const AggregateArgs& a, const Lane<VEC>& lane,
                                           int64_t begin, int offset, int count, int step,
                                           float (&sum)[VEC]) {
  const int64_t d = static_cast<int64_t>(a.snapshots) * a.features;
  const int32_t* indices = a.over_indices + begin;
  const float* x = a.x + lane.column;
  const uint32_t mine = WEIGHTS == kBits ? lane.bits() : 0u;
  for (int p = offset; p < count; p += kInFlight * step) {
    float neighbour[kInFlight][VEC];
    int32_t column[kInFlight];
    uint32_t held[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const bool inside = p + u * step < count;
      if constexpr (WEIGHTS == kBits) {
        held[u] = inside ? __ldg(a.over_bits + begin + p + u * step) : 0u;
        column[u] = held[u] & mine ? __ldg(indices + p + u * step) : -1;
      } else {
        column[u] = inside ? __ldg(indices + p + u * step) : -1;
      }
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
      if constexpr (WEIGHTS == kBits) {
        lane.add_held(held[u], neighbour[u], sum);
        continue;
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
                                           int64_t begin, int offset, int count, int step,
                                           float (&sum)[VEC]) {
  const int64_t d = static_cast<int64_t>(a.snapshots) * a.features;
  const uint32_t low = (1u << a.shift) - 1u;
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

// Adds every step-th of the entries [first, last) of a row, from `offset` behind the first on; the
// shared ones are numbered before those of single snapshots.
template <int VEC, int WEIGHTS, bool SCALED>
__device__ __forceinline__ void add_row(const AggregateArgs& a, const Lane<VEC>& lane, int64_t row,
                                        int first, int last, int offset, int step,
                                        float (&sum)[VEC]) {
  const int64_t begin = a.over_indptr[row];
  const int count = static_cast<int>(a.over_indptr[row + 1] - begin);
  add_shared<VEC, WEIGHTS, SCALED>(a, lane, begin, first + offset, min(last, count), step, sum);
  if (a.ex_indptr != nullptr) {
    const int64_t ex_begin = a.ex_indptr[row];
    const int ex_count = static_cast<int>(a.ex_indptr[row + 1] - ex_begin);
    add_single<VEC, SCALED>(a, lane, ex_begin, max(first - count, 0) + offset,
                            min(last - count, ex_count), step, sum);
  }
}

// The sum over all threads of a block that hold the same columns, to those of the first group.
template <int VEC>
__device__ __forceinline__ void add_block(float* shared, int lane_bits, float (&sum)[VEC]) {
  add_lanes<VEC>(lane_bits, 5, sum);
#pragma unroll
  for (int e = 0; e < VEC; ++e) shared[e * kBlock + threadIdx.x] = sum[e];
  __syncthreads();
  if (threadIdx.x < 1u << lane_bits) {
    for (int warp = 1; warp < kWarps; ++warp) {
#pragma unroll
      for (int e = 0; e < VEC; ++e) sum[e] += shared[e * kBlock + warp * 32 + threadIdx.x];
    }
  }
  __syncthreads();
}

// Blocks up to `table_blocks` take the segments of the table in turns, the others rows in order.
template <int VEC, int WEIGHTS, bool SCALED>
__global__ void __launch_bounds__(kBlock, kBlocksPerProcessor)
    aggregate_rows(const AggregateArgs a, const HeavyRows heavy, int lane_bits, int group_bits,
                   int most, int table_blocks) {
  __shared__ float shared[kBlock * VEC];
  __shared__ bool heavy_row[kBlock];
  const int lanes = 1 << lane_bits;
  const Lane<VEC> lane(a, (blockIdx.y * lanes + (threadIdx.x & (lanes - 1))) * VEC);
  const int64_t d = static_cast<int64_t>(a.snapshots) * a.features;
  const bool has_columns = lane.column < d;
  const bool from_table = static_cast<int>(blockIdx.x) < table_blocks;
  const int groups = kBlock >> group_bits;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) - table_blocks) * groups;
  int job = 0, jobs = groups, step = 1;
  if (from_table) {
    job = blockIdx.x;
    jobs = heavy.at[kSegments];
    step = table_blocks;
  } else {
    const int group = threadIdx.x >> group_bits;
    const int turn = (threadIdx.x & ((1 << group_bits) - 1)) >> lane_bits;
    const int64_t row = first + group;
    const bool exists = row < a.rows;
    const bool is_heavy = exists && entries_of(a, row) > most;
    const bool mine = exists && !is_heavy && has_columns;
    float sum[VEC] = {};
    if (mine) {
      add_row<VEC, WEIGHTS, SCALED>(a, lane, row, 0, kEverything, turn,
                                    1 << (group_bits - lane_bits), sum);
    }
    add_lanes<VEC>(lane_bits, group_bits, sum);
    if (mine && turn == 0) finish<VEC, SCALED>(a, lane, row, sum);
    if (heavy.at != nullptr) return;
    heavy_row[group] = is_heavy;  // every lane of the group writes the same
    if (!__syncthreads_or(is_heavy)) return;
  }
  for (; job < jobs; job += step) {
    int64_t row = first + job;
    int begin = 0, end = kEverything, slot = -1;
    if (from_table) {
      const int32_t* segment = heavy.segment(job);
      row = segment[0];
      begin = segment[1];
      end = segment[2];
      slot = segment[3];
    } else if (!heavy_row[job]) {
      continue;
    }
    float sum[VEC] = {};
    if (has_columns) {
      add_row<VEC, WEIGHTS, SCALED>(a, lane, row, begin, end, threadIdx.x >> lane_bits,
                                    kBlock >> lane_bits, sum);
    }
    add_block<VEC>(shared, lane_bits, sum);
    if (threadIdx.x < lanes && has_columns) {
      if (slot < 0) {
        finish<VEC, SCALED>(a, lane, row, sum);
      } else {
        store_floats<VEC>(a.partials + slot * d + lane.column, sum);
      }
    }
  }
}

// Adds the partial sums of the rows of several segments.
template <int VEC, bool SCALED>
__global__ void __launch_bounds__(kBlock)
    combine_segments(const AggregateArgs a, const HeavyRows heavy, int lane_bits) {
  __shared__ float shared[kBlock * VEC];
  const int lanes = 1 << lane_bits;
  const Lane<VEC> lane(a, (blockIdx.y * lanes + (threadIdx.x & (lanes - 1))) * VEC);
  const int64_t d = static_cast<int64_t>(a.snapshots) * a.features;
  const bool has_columns = lane.column < d;
  const int rows = heavy.at[kSplitRows];
  for (int job = blockIdx.x; job < rows; job += gridDim.x) {
    const int32_t* split = heavy.split_row(job);
    float sum[VEC] = {};
    for (int i = threadIdx.x >> lane_bits; i < split[2] && has_columns; i += kBlock >> lane_bits) {
      float part[VEC];
      load_floats<VEC>(a.partials + (split[1] + i) * d + lane.column, part);
#pragma unroll
      for (int e = 0; e < VEC; ++e) sum[e] += part[e];
    }
    add_block<VEC>(shared, lane_bits, sum);
    if (threadIdx.x < lanes && has_columns) finish<VEC, SCALED>(a, lane, split[0], sum);
  }
}

template <int VEC, int WEIGHTS>
void aggregate_weighted(const AggregateArgs& a, const Launch& l, cudaStream_t stream) {
  if (a.col_scale != nullptr) {
    aggregate_rows<VEC, WEIGHTS, true><<<l.grid, kBlock, 0, stream>>>(
        a, l.heavy, l.lane_bits, l.group_bits, l.most, l.table_blocks);
  } else {
    aggregate_rows<VEC, WEIGHTS, false><<<l.grid, kBlock, 0, stream>>>(
        a, l.heavy, l.lane_bits, l.group_bits, l.most, l.table_blocks);
  }
}

template <int VEC>
int aggregate_wide(const AggregateArgs& a, const Launch& l, cudaStream_t stream) {
  if (a.over_bits != nullptr) {
    aggregate_weighted<VEC, kBits>(a, l, stream);
  } else if (a.over_values == nullptr) {
    aggregate_weighted<VEC, kNone>(a, l, stream);
  } else if (a.per_snapshot) {
    aggregate_weighted<VEC, kPerSnapshot>(a, l, stream);
  } else {
    aggregate_weighted<VEC, kOne>(a, l, stream);
  }
  const int status = launch_status();
  if (status != 0 || l.combine.x == 0) return status;
  if (a.col_scale != nullptr) {
    combine_segments<VEC, true><<<l.combine, kBlock, 0, stream>>>(a, l.heavy, l.lane_bits);
  } else {
    combine_segments<VEC, false><<<l.combine, kBlock, 0, stream>>>(a, l.heavy, l.lane_bits);
  }
  return launch_status();
}

}  // namespace

extern "C" {

int dgb_aggregate(const AggregateArgs* args, void* stream) {
  if (args->rows == 0 || args->snapshots * args->features == 0) return 0;
  if (takes_tiles(*args)) return dgb_aggregate_tiles(args, stream);
  const Launch l = plan(*args, true);
  if (l.vec == 4) return aggregate_wide<4>(*args, l, as_stream(stream));
  if (l.vec == 2) return aggregate_wide<2>(*args, l, as_stream(stream));
  return aggregate_wide<1>(*args, l, as_stream(stream));
}

}  // extern "C"

}  // namespace dgbench
