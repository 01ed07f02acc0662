// Temporal sampling on a device: a thread for each target's search and one for each neighbour's copy,
// so that neighbouring threads write neighbouring places (GNNFlow 4.2).
#include "cuda/launch.cuh"
#include "cuda/temporal_launchers.h"

namespace dgbench::temporal {
namespace {

constexpr int kWarps = kBlock / 32;
constexpr int kItems = static_cast<int>(kScanTile) / kBlock;

// The sum over all lanes before this one; `whole` is the sum over all of them.
__device__ int64_t sum_before(int64_t mine, int64_t* warps, int64_t& whole) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  int64_t sum = mine;
  for (unsigned step = 1; step < 32; step *= 2) {
    const int64_t other = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= static_cast<int>(step)) sum += other;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  int64_t before = 0;
  whole = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += warps[w];
    whole += warps[w];
  }
  __syncthreads();  // the next call writes there
  return before + sum - mine;
}

__global__ void __launch_bounds__(kBlock)
    sum_tiles(const int32_t* counts, int64_t n, int64_t* sums) {
  __shared__ int64_t warps[kWarps];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kScanTile;
  int64_t mine = 0;
  for (int k = 0; k < kItems; ++k) {
    const int64_t i = first + k * kBlock + threadIdx.x;
    if (i < n) mine += counts[i];
  }
  int64_t whole = 0;
  sum_before(mine, warps, whole);
  if (threadIdx.x == 0) sums[blockIdx.x] = whole;
}

// Every block adds up the sums of the tiles before its own: few, and no block waits for another.
__global__ void __launch_bounds__(kBlock)
    put_offsets(const int32_t* counts, int64_t n, const int64_t* sums, int64_t* offsets,
                int64_t* total) {
  __shared__ int64_t warps[kWarps];
  int64_t part = 0;
  for (int64_t b = threadIdx.x; b < static_cast<int64_t>(blockIdx.x); b += kBlock) part += sums[b];
  int64_t base = 0;
  sum_before(part, warps, base);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kScanTile + threadIdx.x * kItems;
  int32_t taken[kItems];
  int64_t mine = 0;
  for (int k = 0; k < kItems; ++k) {
    taken[k] = first + k < n ? counts[first + k] : 0;
    mine += taken[k];
  }
  int64_t whole = 0;
  int64_t sum = base + sum_before(mine, warps, whole);
  if (first == 0) offsets[0] = 0;
  for (int k = 0; k < kItems; ++k) {
    sum += taken[k];
    if (first + k < n) offsets[first + k + 1] = sum;
    if (first + k + 1 == n) *total = sum;
  }
}

}  // namespace

extern "C" {

int dgb_temporal_offsets(const int32_t* counts, int64_t room, int64_t* sums, int64_t* offsets,
                         int64_t* total, void* stream) {
  if (room <= 0) return 0;
  const auto tiles = static_cast<unsigned>(ceil_div(room, kScanTile));
  sum_tiles<<<tiles, kBlock, 0, as_stream(stream)>>>(counts, room, sums);
  if (const int status = launch_status()) return status;
  put_offsets<<<tiles, kBlock, 0, as_stream(stream)>>>(counts, room, sums, offsets, total);
  return launch_status();
}

int dgb_temporal_locate(const Hop* hop, void* stream) {
  switch (hop->graph.layout) {
    case Layout::Packed: return for_each(hop->room, Locate<Packed>{*hop}, stream);
    case Layout::Compact: return for_each(hop->room, Locate<Compact>{*hop}, stream);
    default: return for_each(hop->room, Locate<Wide>{*hop}, stream);
  }
}

int dgb_temporal_emit(const Hop* hop, void* stream) {
  const int64_t n = hop->room * hop->fanout;
  switch (hop->graph.layout) {
    case Layout::Packed: return for_each(n, Emit<Packed>{{*hop}}, stream);
    case Layout::Compact: return for_each(n, Emit<Compact>{{*hop}}, stream);
    default: return for_each(n, Emit<Wide>{{*hop}}, stream);
  }
}

}  // extern "C"

}  // namespace dgbench::temporal
