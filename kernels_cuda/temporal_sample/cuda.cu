// Temporal sampling on a device: a thread for each target's search and one for each neighbour's copy,
// so that neighbouring threads write neighbouring places (GNNFlow 4.2).
#include "common/block_scan.cuh"
#include "common/launch.cuh"
#include "temporal_sample/cuda_launchers.h"

namespace dgbench::temporal {
namespace {

constexpr int kItems = static_cast<int>(kScanTile) / kBlock;

__global__ void __launch_bounds__(kBlock)
    sum_tiles(const int32_t* counts, int64_t n, int64_t* sums) {
  __shared__ int64_t warps[kBlockWarps];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kScanTile;
  int64_t mine = 0;
  for (int k = 0; k < kItems; ++k) {
    const int64_t i = first + k * kBlock + threadIdx.x;
    if (i < n) mine += counts[i];
  }
  int64_t whole = 0;
  block_scan(mine, warps, whole);
  if (threadIdx.x == 0) sums[blockIdx.x] = whole;
}

// Every block adds up the sums of the tiles before its own: few, and no block waits for another.
__global__ void __launch_bounds__(kBlock)
    put_offsets(const int32_t* counts, int64_t n, const int64_t* sums, int64_t* offsets,
                int64_t* total) {
  __shared__ int64_t warps[kBlockWarps];
  int64_t part = 0;
  for (int64_t b = threadIdx.x; b < static_cast<int64_t>(blockIdx.x); b += kBlock) part += sums[b];
  int64_t base = 0;
  block_scan(part, warps, base);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kScanTile + threadIdx.x * kItems;
  int32_t taken[kItems];
  int64_t mine = 0;
  for (int k = 0; k < kItems; ++k) {
    taken[k] = first + k < n ? counts[first + k] : 0;
    mine += taken[k];
  }
  int64_t whole = 0;
  int64_t sum = base + block_scan(mine, warps, whole);
  if (first == 0) offsets[0] = 0;
  for (int k = 0; k < kItems; ++k) {
    sum += taken[k];
    if (first + k < n) offsets[first + k + 1] = sum;
    if (first + k + 1 == n) *total = sum;
  }
}

// `draw_uniform` by a block of threads, for large fan-outs. By Floyd's rule step i takes number r[i]
// unless that is among those taken before, else j[i] = n - fanout + i. It is among them exactly where an
// earlier step had the same number, or where r[i] = j[q] of an earlier step q that took j[q]. The first
// is looked up in a table of the least step of each number, the second goes back from step to step.
struct LongDraw {
  static constexpr int32_t kEmpty = -1;

  const Hop& hop;
  uint32_t* chosen;
  int32_t* table;
  uint32_t mask;
  uint32_t* repeated;  // a bit for each step: an earlier one had the same number
  uint32_t* taken;     // a bit for each step: it takes j

  __device__ LongDraw(const Hop& hop, int64_t target, int64_t block)
      : hop(hop), chosen(hop.chosen + target * hop.fanout),
        table(reinterpret_cast<int32_t*>(hop.chosen + hop.capacity * hop.fanout +
                                         block * draw_table(hop.fanout))),
        mask(static_cast<uint32_t>(draw_slots(hop.fanout) - 1)),
        repeated(reinterpret_cast<uint32_t*>(table) + mask + 1),
        taken(repeated + (hop.fanout + 31) / 32) {}

  __device__ uint32_t slot_of(uint32_t number) const {
    uint32_t x = number * 0x9E3779B1u;
    return (x ^ x >> 15) & mask;
  }
  static __device__ bool bit(const uint32_t* bits, uint32_t i) { return bits[i / 32] >> i % 32 & 1u; }
  static __device__ void set_bit(uint32_t* bits, uint32_t i) { atomicOr(bits + i / 32, 1u << i % 32); }

  __device__ void numbers(uint32_t n, uint64_t position) {
    const auto k = static_cast<uint32_t>(hop.fanout);
    const DrawKey key = key_of(hop);
    for (uint32_t pair = threadIdx.x; 2 * pair < k; pair += kBlock) {
      const Draws two = draws_of(key, position, pair);
      for (uint32_t i = 2 * pair; i < 2 * pair + 2 && i < k; ++i) {
        const uint64_t bound = hop.replace ? n : uint64_t{n - k + i} + 1;
        chosen[i] = static_cast<uint32_t>(below(i % 2 == 0 ? two.even : two.odd, bound));
      }
    }
  }
  __device__ void clear() {
    for (uint32_t s = threadIdx.x; s <= mask; s += kBlock) table[s] = kEmpty;
    const auto words = static_cast<uint32_t>(hop.fanout + 31) / 32;
    for (uint32_t w = threadIdx.x; w < 2 * words; w += kBlock) repeated[w] = 0;
  }
  __device__ void insert(uint32_t i) {
    for (uint32_t s = slot_of(chosen[i]);; s = (s + 1) & mask) {
      const int32_t there = atomicCAS(table + s, kEmpty, static_cast<int32_t>(i));
      if (there == kEmpty) return;
      if (chosen[there] != chosen[i]) continue;
      atomicMin(table + s, static_cast<int32_t>(i));
      return;
    }
  }
  __device__ bool is_repeated(uint32_t i) const {
    for (uint32_t s = slot_of(chosen[i]);; s = (s + 1) & mask) {
      const int32_t there = table[s];
      if (chosen[there] == chosen[i]) return there != static_cast<int32_t>(i);
    }
  }
  __device__ bool is_taken(uint32_t i, uint32_t base) const {
    for (;;) {
      if (bit(repeated, i)) return true;
      const uint32_t number = chosen[i];
      if (number < base || number - base >= i) return false;
      i = number - base;
    }
  }

  __device__ void operator()(uint32_t n, uint64_t position) {
    const auto k = static_cast<uint32_t>(hop.fanout);
    if (!hop.replace && n <= k) {
      for (uint32_t i = threadIdx.x; i < n; i += kBlock) chosen[i] = i;
      return;
    }
    numbers(n, position);
    if (hop.replace) return;
    const uint32_t base = n - k;
    clear();
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < k; i += kBlock) insert(i);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < k; i += kBlock) {
      if (is_repeated(i)) set_bit(repeated, i);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < k; i += kBlock) {
      if (is_taken(i, base)) set_bit(taken, i);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < k; i += kBlock) {
      if (bit(taken, i)) chosen[i] = base + i;
    }
    __syncthreads();  // the next target has the same table
  }
};

__global__ void __launch_bounds__(kBlock) draw_long(const Hop hop) {
  const int64_t live = *hop.live < hop.capacity ? *hop.live : hop.capacity;
  for (int64_t i = blockIdx.x; i < live; i += gridDim.x) {
    if (hop.counts[i] == 0) continue;  // and its total is not set
    LongDraw draw(hop, i, blockIdx.x);
    draw(hop.totals[i], static_cast<uint64_t>(hop.positions[i]));
  }
}

template <class Record>
int locate(const Hop& hop, void* stream) {
  const int status = for_each(hop.capacity, Locate<Record>{hop}, stream);
  const int64_t blocks = hop.policy == Policy::Uniform ? draw_blocks(hop.capacity, hop.fanout) : 0;
  if (status != 0 || blocks == 0) return status;
  draw_long<<<static_cast<unsigned>(blocks), kBlock, 0, as_stream(stream)>>>(hop);
  return launch_status();
}

}  // namespace

extern "C" {

int dgb_temporal_offsets(const int32_t* counts, int64_t count, int64_t* sums, int64_t* offsets,
                         int64_t* total, void* stream) {
  if (count <= 0) return 0;
  const auto tiles = static_cast<unsigned>(ceil_div(count, kScanTile));
  sum_tiles<<<tiles, kBlock, 0, as_stream(stream)>>>(counts, count, sums);
  if (const int status = launch_status()) return status;
  put_offsets<<<tiles, kBlock, 0, as_stream(stream)>>>(counts, count, sums, offsets, total);
  return launch_status();
}

int dgb_temporal_locate(const Hop* hop, void* stream) {
  switch (hop->graph.layout) {
    case Layout::Packed: return locate<Packed>(*hop, stream);
    case Layout::Compact: return locate<Compact>(*hop, stream);
    default: return locate<Wide>(*hop, stream);
  }
}

int dgb_temporal_emit(const Hop* hop, void* stream) {
  const int64_t n = hop->capacity * hop->fanout;
  switch (hop->graph.layout) {
    case Layout::Packed: return for_each(n, Emit<Packed>{{*hop}}, stream);
    case Layout::Compact: return for_each(n, Emit<Compact>{{*hop}}, stream);
    default: return for_each(n, Emit<Wide>{{*hop}}, stream);
  }
}

}  // extern "C"

}  // namespace dgbench::temporal
