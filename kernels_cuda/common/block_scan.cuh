// Prefix sums over the threads of a warp and of a block, in whole numbers.
#pragma once

#include "common/launch.cuh"

namespace dgbench {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kBlockWarps = kBlock / 32;

// The sum over the lanes up to this one, which is included.
template <class T>
__device__ __forceinline__ T warp_scan(T value) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const T before = __shfl_up_sync(kAllLanes, value, static_cast<unsigned>(distance));
    if (lane >= distance) value += before;
  }
  return value;
}

// The sum over the threads before this one; `total` is the sum over all of them. All threads call
// it; `warp_sums` is shared memory for kBlockWarps numbers, free again when it returns.
template <class T>
__device__ __forceinline__ T block_scan(T value, T* warp_sums, T& total) {
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) >> 5;
  const T inclusive = warp_scan(value);
  if (lane == 31) warp_sums[warp] = inclusive;
  __syncthreads();
  T before = 0;
  total = 0;
  for (int w = 0; w < kBlockWarps; ++w) {
    if (w < warp) before += warp_sums[w];
    total += warp_sums[w];
  }
  __syncthreads();
  return before + inclusive - value;
}

}  // namespace dgbench
