// Sums over the threads of a block.
#pragma once

#include "common/launch.cuh"

namespace dgbench {

constexpr int kBlockWarps = kBlock / 32;

// The sum over all threads before this one; `whole` is the sum over all of them. All threads call it;
// `warps` is shared memory for kBlockWarps numbers.
__device__ inline int64_t sum_before(int64_t mine, int64_t* warps, int64_t& whole) {
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
  for (int w = 0; w < kBlockWarps; ++w) {
    if (w < warp) before += warps[w];
    whole += warps[w];
  }
  __syncthreads();  // the next call writes there
  return before + sum - mine;
}

}  // namespace dgbench
