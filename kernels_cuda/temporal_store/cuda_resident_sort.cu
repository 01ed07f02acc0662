// The halves of a batch by vertex: a stable radix sort of 8-byte pairs, of 11 bits a pass at most.
// A block counts the digits of its run of halves; then every block adds up what stands before its
// own, and ranks its halves tile by tile, a warp at a time, in order.
#include "common/block_scan.cuh"
#include "common/launch.cuh"
#include "temporal_store/cuda_resident.h"

namespace dgbench::temporal {
namespace {

constexpr int kSortItems = static_cast<int>(kSortTile) / kBlock;

// What is wrong with the events of a thread; kRight where nothing is.
struct Wrong {
  unsigned long long invalid = kRight, uneven = kRight;

  __device__ __forceinline__ void look_at(const ResidentInsert& in, int64_t event) {
    const Refusal why = refusal_of(in, event);
    const auto number = static_cast<unsigned long long>(event);
    const unsigned long long with_why = 8 * number + static_cast<unsigned>(why);
    if (why == Refusal::Compact) {
      uneven = number < uneven ? number : uneven;
    } else if (why != Refusal::None) {
      invalid = with_why < invalid ? with_why : invalid;
    }
  }
  __device__ __forceinline__ void tell(ResidentState* state) const {
    if (invalid != kRight) atomicMin(&state->invalid, invalid);
    if (uneven != kRight) atomicMin(&state->uneven, uneven);
  }
};

// The halves of a tile that a thread has: those of a warp follow each other, 32 at a time.
__device__ __forceinline__ int64_t place_of(int64_t tile, int item) {
  const int warp = static_cast<int>(threadIdx.x) >> 5, lane = static_cast<int>(threadIdx.x) & 31;
  return tile + (warp * kSortItems + item) * 32 + lane;
}

template <bool First>
__device__ __forceinline__ void load(const ResidentInsert& in, const Half* from, int64_t tile,
                                     int64_t last, Half (&taken)[kSortItems]) {
#pragma unroll
  for (int k = 0; k < kSortItems; ++k) {
    const int64_t h = place_of(tile, k);
    taken[k] = {0, static_cast<uint32_t>(h)};
    if (h >= last) continue;
    if (First) {
      taken[k].owner = in.owner_of(taken[k].half);
    } else {
      taken[k] = from[h];
    }
  }
}

// Counts of run r at digits[r << bits].
template <bool First>
__global__ void __launch_bounds__(kBlock)
    count_owners(const ResidentInsert in, const Half* from, int shift, int bits, int64_t run) {
  __shared__ uint32_t counts[kMostDigits];
  const int digits = 1 << bits;
  for (int d = threadIdx.x; d < digits; d += kBlock) counts[d] = 0;
  __syncthreads();
  const int64_t first = blockIdx.x * run, halves = in.halves();
  const int64_t last = first + run < halves ? first + run : halves;
  Wrong wrong;
  for (int64_t tile = first; tile < last; tile += kSortTile) {
    Half taken[kSortItems];
    load<First>(in, from, tile, last, taken);
#pragma unroll
    for (int k = 0; k < kSortItems; ++k) {
      if (!First || place_of(tile, k) >= last || in.backwards(taken[k].half)) continue;
      wrong.look_at(in, in.event_of(taken[k].half));
    }
#pragma unroll
    for (int k = 0; k < kSortItems; ++k) {
      if (place_of(tile, k) >= last) continue;
      atomicAdd(counts + (taken[k].owner >> shift & (digits - 1)), 1u);
    }
  }
  if (First) wrong.tell(in.state);
  __syncthreads();
  uint32_t* const own = in.digits + (static_cast<int64_t>(blockIdx.x) << bits);
  for (int d = threadIdx.x; d < digits; d += kBlock) own[d] = counts[d];
}

// Lanes of the warp whose digit is this one's, of those that have any.
__device__ __forceinline__ unsigned peers_of(uint32_t digit, int bits, bool there) {
  unsigned same = __ballot_sync(kAllLanes, there);
  for (int b = 0; b < bits; ++b) {
    const bool set = (digit >> b & 1u) != 0;
    const unsigned votes = __ballot_sync(kAllLanes, set);
    same &= set ? votes : ~votes;
  }
  return same;
}

template <bool First>
__global__ void __launch_bounds__(kBlock) order_owners(const ResidentInsert in, const Half* from,
                                                       Half* to, int shift, int bits, int64_t run) {
  __shared__ uint32_t ends[kMostDigits];  // where halves of a digit end that were put so far
  __shared__ uint16_t ranks[kBlockWarps][kMostDigits];
  __shared__ uint32_t warp_sums[kBlockWarps];
  const int digits = 1 << bits, mask = digits - 1;
  const int warp = static_cast<int>(threadIdx.x) >> 5, lane = static_cast<int>(threadIdx.x) & 31;

  constexpr int kEach = kMostDigits / kBlock;  // digits of a thread, kBlock apart
  const auto runs = static_cast<int>(gridDim.x), mine = static_cast<int>(blockIdx.x);
  uint32_t all[kEach] = {}, before[kEach] = {};
#pragma unroll 8
  for (int r = 0; r < runs; ++r) {
    const uint32_t* const counts = in.digits + (static_cast<int64_t>(r) << bits) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if (k * kBlock + static_cast<int>(threadIdx.x) >= digits) continue;
      const uint32_t count = counts[k * kBlock];
      all[k] += count;
      before[k] += r < mine ? count : 0;
    }
  }
  uint32_t smaller = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int d = k * kBlock + static_cast<int>(threadIdx.x);
    if (k * kBlock >= digits) break;
    uint32_t whole = 0;
    const uint32_t offset = block_scan(all[k], warp_sums, whole);
    if (d < digits) ends[d] = smaller + offset + before[k];
    smaller += whole;
  }

  const int64_t first = static_cast<int64_t>(mine) * run, halves = in.halves();
  const int64_t last = first + run < halves ? first + run : halves;
  for (int64_t tile = first; tile < last; tile += kSortTile) {
    for (int d = lane; d < digits; d += 32) ranks[warp][d] = 0;
    __syncwarp();
    Half taken[kSortItems];
    uint16_t rank[kSortItems];
    load<First>(in, from, tile, last, taken);
#pragma unroll
    for (int k = 0; k < kSortItems; ++k) {
      const bool there = place_of(tile, k) < last;
      const uint32_t digit = taken[k].owner >> shift & mask;
      const unsigned peers = peers_of(digit, bits, there);
      const unsigned up_to = peers & (kAllLanes >> (31 - lane));
      const uint16_t before = ranks[warp][digit];
      rank[k] = static_cast<uint16_t>(before + __popc(up_to) - 1);
      __syncwarp();
      if (there && up_to == peers) {  // the last of them
        ranks[warp][digit] = static_cast<uint16_t>(before + __popc(peers));
      }
      __syncwarp();
    }
    __syncthreads();
    // From counts of warps to distances from where the digit's halves of this tile end.
    for (int d = threadIdx.x; d < digits; d += kBlock) {
      uint32_t behind = 0;
      for (int w = kBlockWarps - 1; w >= 0; --w) {
        behind += ranks[w][d];
        ranks[w][d] = static_cast<uint16_t>(behind);
      }
      ends[d] += behind;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kSortItems; ++k) {
      if (place_of(tile, k) >= last) continue;
      const uint32_t digit = taken[k].owner >> shift & mask;
      to[ends[digit] - ranks[warp][digit] + rank[k]] = taken[k];
    }
    __syncthreads();
  }
}

}  // namespace

extern "C" {

const Half* dgb_resident_sorted(const ResidentInsert* in) {
  return in->halves_at[(sort_shape(in->num_vertices).passes - 1) % 2];
}

int dgb_resident_sort(const ResidentInsert* in, void* stream) {
  const int64_t halves = in->halves();
  if (halves <= 0) return 0;
  const SortShape shape = sort_shape(in->num_vertices);
  const int bits = shape.bits;
  const int64_t run = run_length(halves, kSortTile, kSortBlocks);
  const auto blocks = static_cast<unsigned>(ceil_div(halves, run));
  for (int pass = 0; pass < shape.passes; ++pass) {
    const Half* const from = in->halves_at[(pass + 1) % 2];
    Half* const to = in->halves_at[pass % 2];
    const int shift = pass * bits;
    if (pass == 0) {
      count_owners<true><<<blocks, kBlock, 0, as_stream(stream)>>>(*in, from, shift, bits, run);
      if (const int status = launch_status()) return status;
      order_owners<true><<<blocks, kBlock, 0, as_stream(stream)>>>(*in, from, to, shift, bits, run);
    } else {
      count_owners<false><<<blocks, kBlock, 0, as_stream(stream)>>>(*in, from, shift, bits, run);
      if (const int status = launch_status()) return status;
      order_owners<false><<<blocks, kBlock, 0, as_stream(stream)>>>(*in, from, to, shift, bits,
                                                                    run);
    }
    if (const int status = launch_status()) return status;
  }
  return 0;
}

}  // extern "C"

}  // namespace dgbench::temporal
