// Ranks of true columns on the device: a warp reads a row side by side and adds up its counts.
#include "common/launch.cuh"
#include "ranking/cuda_launchers.h"

namespace dgbench {
namespace {

constexpr int kLanes = 32;
constexpr unsigned kEverybody = 0xffffffffu;

__device__ __forceinline__ int64_t warp_sum(int64_t value) {
#pragma unroll
  for (int apart = kLanes / 2; apart > 0; apart /= 2) {
    value += __shfl_xor_sync(kEverybody, value, apart);
  }
  return value;
}

template <class T>
__global__ void __launch_bounds__(kBlock) rank_columns_kernel(RankRows<T> ranks) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t step = static_cast<int64_t>(gridDim.x) * (kBlock / kLanes);
  int64_t row = static_cast<int64_t>(blockIdx.x) * (kBlock / kLanes) + threadIdx.x / kLanes;
  for (; row < ranks.rows; row += step) {
    const RankCounts part = ranks.count(row, lane, kLanes);
    const int64_t above = warp_sum(part.above);
    const int64_t equal = warp_sum(part.equal);
    if (lane == 0) {
      ranks.above[row] = above;
      ranks.equal[row] = equal - 1;  // the true column equals itself
    }
  }
}

template <class T>
int launch_ranks(const RankRows<T>& ranks, void* stream) {
  if (ranks.rows <= 0) return 0;
  constexpr int64_t kMaxBlocks = 1 << 20;  // beyond, a warp takes several rows
  const int64_t blocks = ceil_div(ranks.rows, kBlock / kLanes);
  rank_columns_kernel<T><<<static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks), kBlock,
                           0, as_stream(stream)>>>(ranks);
  return launch_status();
}

}  // namespace

extern "C" {

int dgb_rank_columns_float(const RankRows<float>* args, void* stream) {
  return launch_ranks(*args, stream);
}

int dgb_rank_columns_double(const RankRows<double>* args, void* stream) {
  return launch_ranks(*args, stream);
}

}  // extern "C"

}  // namespace dgbench
