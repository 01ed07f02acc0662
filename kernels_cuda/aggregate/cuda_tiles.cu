// Y = R (A [+ I]) C X for at most kNarrow columns: every block takes a tile of as many rows and
// entries as any other (aggregate/tiles.hpp), every group of lanes a share of the tile.
//
// A block fetches ids, weights and ends of rows side by side, then each lane has seven rows of X
// under way. A row that ends in a share and begins there is written by its group. What a share leaves
// of a row that goes on is added to the next end by a scan over the block, and what a tile leaves by
// the second kernel, in the order of the tiles: the result is the same in every run.
#include "aggregate/cuda_launch.cuh"
#include "aggregate/cuda_launchers.h"
#include "aggregate/tiles.hpp"

namespace dgbench {
namespace {

static_assert(kPathThreads == kBlock);
constexpr unsigned kAll = 0xffffffffu;
constexpr int kPathWarps = kBlock / 32;

// Rows that end in a tile and its entries, [row, row_end) and [entry, entry_end).
struct Tile {
  int64_t row, row_end, entry, entry_end;

  __device__ Tile(const AggregateArgs& a, int64_t tile)
      : row(a.tiles[tile]), row_end(a.tiles[tile + 1]) {
    entry = tile * kPathTile - row;
    const int64_t items = a.rows + a.entries, end = (tile + 1) * kPathTile;
    entry_end = (end < items ? end : items) - row_end;
  }
};

// Sums of a tile's first row, which began before it, and of its last, which goes on.
__device__ __forceinline__ float* head_of(const AggregateArgs& a, int64_t tile) {
  return a.partials + 2 * tile * a.snapshots * a.features;
}

__device__ __forceinline__ float* tail_of(const AggregateArgs& a, int64_t tile) {
  return head_of(a, tile) + a.snapshots * a.features;
}

template <int VEC, int WEIGHTS, bool SCALED>
__global__ void __launch_bounds__(kBlock, kBlocksPerProcessor)
    aggregate_tiles(const AggregateArgs a, int lane_bits) {
  __shared__ int32_t words[kPathTile];  // ends of rows in entries of the tile, then columns
  __shared__ float weights[WEIGHTS == kOne ? kPathTile : 1];
  __shared__ uint32_t held[WEIGHTS == kBits ? kPathTile : 1];
  __shared__ int32_t shares[kBlock + 1];  // rows that end before each share
  __shared__ float warp_tail[kPathWarps][kNarrow];
  __shared__ bool warp_ends[kPathWarps];

  // Rows of X that a lane has under way; seven of four floats and their scales do not fit.
  constexpr bool kScaled = SCALED || WEIGHTS == kPerSnapshot;
  constexpr int kInFlight = VEC == 4 && kScaled ? 4 : kPathItems;

  const Tile tile(a, blockIdx.x);
  const int rows = static_cast<int>(tile.row_end - tile.row);
  const int entries = static_cast<int>(tile.entry_end - tile.entry);
  const int32_t* columns = words + rows;
  for (int i = threadIdx.x; i < rows; i += kBlock) {
    words[i] = static_cast<int32_t>(a.over_indptr[tile.row + 1 + i] - tile.entry);
  }
  for (int i = threadIdx.x; i < entries; i += kBlock) {
    words[rows + i] = __ldg(a.over_indices + tile.entry + i);
    if constexpr (WEIGHTS == kOne) weights[i] = __ldg(a.over_values + tile.entry + i);
    if constexpr (WEIGHTS == kBits) held[i] = __ldg(a.over_bits + tile.entry + i);
  }
  __syncthreads();

  const int lanes = 1 << lane_bits, share = kPathItems << lane_bits;
  const int group = threadIdx.x >> lane_bits, groups = kBlock >> lane_bits;
  for (int g = threadIdx.x; g <= groups; g += kBlock) {
    int low = 0, high = rows;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (words[middle] + middle < g * share) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    shares[g] = low;
  }
  __syncthreads();

  const Lane<VEC> lane(a, (threadIdx.x & (lanes - 1)) * VEC);
  const int64_t d = static_cast<int64_t>(a.snapshots) * a.features;
  const bool has_columns = lane.column < d;
  const int first = shares[group], last = shares[group + 1];
  const int items = rows + entries;
  const int end = min((group + 1) * share, items) - last;
  const float* x = a.x + lane.column;
  const uint32_t mine = WEIGHTS == kBits && has_columns ? lane.bits() : 0u;
  const auto wanted = [&](int p) {
    return has_columns && (WEIGHTS != kBits || (held[p] & mine) != 0);
  };
  float sum[VEC] = {}, head[VEC] = {};
  int open = first;
  const auto close = [&] {
    if (open == first) {
#pragma unroll
      for (int e = 0; e < VEC; ++e) head[e] = sum[e];
    } else if (has_columns) {
      finish<VEC, SCALED>(a, lane, tile.row + open, sum);
    }
#pragma unroll
    for (int e = 0; e < VEC; ++e) sum[e] = 0.0f;
    ++open;
  };
  for (int p = min(group * share, items) - first; p < end; p += kInFlight) {
    float neighbour[kInFlight][VEC];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (p + u < end && wanted(p + u)) load_floats<VEC>(x + columns[p + u] * d, neighbour[u]);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (p + u >= end) continue;
      while (open < last && words[open] <= p + u) close();
      if (!wanted(p + u)) continue;
      if constexpr (SCALED) scale_by<VEC>(a.col_scale, columns[p + u], a, lane, neighbour[u]);
      if constexpr (WEIGHTS == kPerSnapshot) {
        scale_by<VEC>(a.over_values, tile.entry + p + u, a, lane, neighbour[u]);
      }
      if constexpr (WEIGHTS == kBits) {
        lane.add_held(held[p + u], neighbour[u], sum);
        continue;
      }
      const float weight = WEIGHTS == kOne ? weights[p + u] : 1.0f;
#pragma unroll
      for (int e = 0; e < VEC; ++e) sum[e] += weight * neighbour[u][e];
    }
  }
  while (open < last) close();

  // `sum` becomes what is left of this share's last row and of the shares before, in the warp.
  bool ends = last > first;
  const int in_warp = threadIdx.x & 31;
  for (int distance = lanes; distance < 32; distance *= 2) {
    const bool ended = __shfl_up_sync(kAll, static_cast<int>(ends), distance) != 0;
    const bool add = in_warp >= distance && !ends;
#pragma unroll
    for (int e = 0; e < VEC; ++e) {
      const float before = __shfl_up_sync(kAll, sum[e], distance);
      if (add) sum[e] = before + sum[e];
    }
    if (add) ends = ended;
  }
  float carry[VEC];
  bool begins = __shfl_up_sync(kAll, static_cast<int>(ends), lanes) != 0;
  begins = in_warp >= lanes && begins;
#pragma unroll
  for (int e = 0; e < VEC; ++e) {
    const float before = __shfl_up_sync(kAll, sum[e], lanes);
    carry[e] = in_warp >= lanes ? before : 0.0f;
  }
  const int warp = threadIdx.x / 32;
  if (in_warp >= 32 - lanes) {
#pragma unroll
    for (int e = 0; e < VEC; ++e) warp_tail[warp][lane.column + e] = sum[e];
    warp_ends[warp] = ends;
  }
  __syncthreads();
  // What earlier warps leave goes to the first row that ends here, and to the rest where none does.
  float left[VEC] = {};
  bool ended = false;
  for (int w = 0; w < warp; ++w) {
    const bool anew = warp_ends[w];
#pragma unroll
    for (int e = 0; e < VEC; ++e) {
      const float tail = warp_tail[w][lane.column + e];
      left[e] = anew ? tail : left[e] + tail;
    }
    ended = ended || anew;
  }
  if (!has_columns) return;
  if (last > first) {
#pragma unroll
    for (int e = 0; e < VEC; ++e) head[e] = (begins ? carry[e] : left[e] + carry[e]) + head[e];
    const bool whole = begins || ended || a.over_indptr[tile.row] >= tile.entry;
    if (whole) {
      finish<VEC, SCALED>(a, lane, tile.row + first, head);
    } else {
      store_floats<VEC>(head_of(a, blockIdx.x) + lane.column, head);
    }
  }
  if (group == groups - 1) {
#pragma unroll
    for (int e = 0; e < VEC; ++e) sum[e] = ends ? sum[e] : left[e] + sum[e];
    store_floats<VEC>(tail_of(a, blockIdx.x) + lane.column, sum);
  }
}

// A warp finishes the row that began before its tile and ends there.
template <int VEC, bool SCALED>
__global__ void __launch_bounds__(kBlock) combine_tiles(const AggregateArgs a, int lane_bits) {
  const int64_t number = static_cast<int64_t>(blockIdx.x) * kPathWarps + threadIdx.x / 32;
  if (number >= tiles_of(a.rows, a.entries)) return;
  const Tile tile(a, number);
  if (tile.row == tile.row_end) return;
  const int64_t begin = a.over_indptr[tile.row];
  if (begin >= tile.entry) return;
  const int lanes = 1 << lane_bits;
  const Lane<VEC> lane(a, (threadIdx.x & (lanes - 1)) * VEC);
  const bool has_columns = lane.column < a.snapshots * a.features;
  const int turn = (threadIdx.x & 31) >> lane_bits;
  float sum[VEC] = {};
  if (has_columns) {
#pragma unroll 4
    for (int64_t t = (begin + tile.row) / kPathTile + turn; t < number; t += 32 >> lane_bits) {
      float part[VEC];
      load_floats<VEC>(tail_of(a, t) + lane.column, part);
#pragma unroll
      for (int e = 0; e < VEC; ++e) sum[e] += part[e];
    }
  }
  add_lanes<VEC>(lane_bits, 5, sum);
  if (turn != 0 || !has_columns) return;
  float head[VEC];
  load_floats<VEC>(head_of(a, number) + lane.column, head);
#pragma unroll
  for (int e = 0; e < VEC; ++e) sum[e] += head[e];
  finish<VEC, SCALED>(a, lane, tile.row, sum);
}

template <int VEC, int WEIGHTS, bool SCALED>
int launch(const AggregateArgs& a, int lane_bits, cudaStream_t stream) {
  const int64_t tiles = tiles_of(a.rows, a.entries);
  aggregate_tiles<VEC, WEIGHTS, SCALED>
      <<<static_cast<unsigned>(tiles), kBlock, 0, stream>>>(a, lane_bits);
  const int status = launch_status();
  if (status != 0 || tiles == 1) return status;
  combine_tiles<VEC, SCALED>
      <<<static_cast<unsigned>(ceil_div(tiles, kPathWarps)), kBlock, 0, stream>>>(a, lane_bits);
  return launch_status();
}

template <int VEC, int WEIGHTS>
int launch_scaled(const AggregateArgs& a, int lane_bits, cudaStream_t stream) {
  return a.col_scale != nullptr ? launch<VEC, WEIGHTS, true>(a, lane_bits, stream)
                                : launch<VEC, WEIGHTS, false>(a, lane_bits, stream);
}

template <int VEC>
int launch_weighted(const AggregateArgs& a, int lane_bits, cudaStream_t stream) {
  if (a.over_bits != nullptr) return launch_scaled<VEC, kBits>(a, lane_bits, stream);
  if (a.over_values == nullptr) return launch_scaled<VEC, kNone>(a, lane_bits, stream);
  if (a.per_snapshot) return launch_scaled<VEC, kPerSnapshot>(a, lane_bits, stream);
  return launch_scaled<VEC, kOne>(a, lane_bits, stream);
}

}  // namespace

extern "C" {

int dgb_aggregate_tiles(const AggregateArgs* args, void* stream) {
  if (args->rows == 0 || args->snapshots * args->features == 0) return 0;
  const Columns columns(*args);
  if (columns.vec == 4) return launch_weighted<4>(*args, columns.lane_bits, as_stream(stream));
  if (columns.vec == 2) return launch_weighted<2>(*args, columns.lane_bits, as_stream(stream));
  return launch_weighted<1>(*args, columns.lane_bits, as_stream(stream));
}

}  // extern "C"

}  // namespace dgbench
