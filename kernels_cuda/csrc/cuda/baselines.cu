// Aggregation as the papers do it: PiPAD's kernel over slices, and a kernel in the manner of GE-SpMM.
#include "cuda/launch.cuh"
#include "cuda/launchers.h"

namespace dgbench {
namespace {

constexpr int kWarpsPerBlock = kBlock / kWarp;

// One warp per g slices; see common/slice_coalescing.hpp for the steps.
template <int VEC>
__global__ void __launch_bounds__(kBlock) sliced_warps(const SliceWarp warp) {
  __shared__ StagedEntry staged[kWarpsPerBlock][kPieceEntries * kMaxGroups];
  const int lane = threadIdx.x % kWarp;
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarp;
  if (unit >= warp.units()) return;  // whole warps leave
  StagedEntry* shared = staged[threadIdx.x / kWarp];
  int index, column;
  const bool works = warp.place<VEC>(unit, blockIdx.y, lane, &index, &column);
  float sum[VEC] = {};
  const auto load = [](const float* from, float(&to)[VEC]) { load_floats<VEC>(from, to); };
  for (int64_t piece = 0; warp.has_piece(unit, piece); ++piece) {
    warp.stage(unit, piece, lane, shared);
    __syncwarp();
    if (works) warp.accumulate<VEC>(unit, piece, index, column, shared, load, sum);
    __syncwarp();
  }
  if (works) add_floats<VEC>(warp.target(unit, index, column), sum);
}

// One warp per row and tile of 32 COARSE columns, 32 entries of the row staged at a time.
template <int COARSE>
__global__ void __launch_bounds__(kBlock)
    gespmm_warps(const int64_t* __restrict__ indptr, const int32_t* __restrict__ indices,
                 const float* __restrict__ values, int64_t rows, int features,
                 const float* __restrict__ x, float* __restrict__ y) {
  __shared__ StagedEntry staged[kWarpsPerBlock][kWarp];
  const int lane = threadIdx.x % kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarp;
  if (row >= rows) return;
  StagedEntry* shared = staged[threadIdx.x / kWarp];
  const int first = blockIdx.y * kWarp * COARSE + lane;
  const int64_t end = indptr[row + 1];
  float sum[COARSE] = {};
  for (int64_t begin = indptr[row]; begin < end; begin += kWarp) {
    const int count = end - begin < kWarp ? static_cast<int>(end - begin) : kWarp;
    if (lane < count) {
      shared[lane] = {indices[begin + lane], values != nullptr ? values[begin + lane] : 1.0f};
    }
    __syncwarp();
    for (int k = 0; k < count; ++k) {
      const StagedEntry entry = shared[k];
      const float* from = x + static_cast<int64_t>(entry.column) * features;
#pragma unroll
      for (int c = 0; c < COARSE; ++c) {
        const int column = first + c * kWarp;
        if (column < features) sum[c] += entry.value * __ldg(from + column);
      }
    }
    __syncwarp();
  }
#pragma unroll
  for (int c = 0; c < COARSE; ++c) {
    const int column = first + c * kWarp;
    if (column < features) y[row * features + column] = sum[c];
  }
}

}  // namespace

extern "C" {

int dgb_aggregate_sliced(const SliceWarp* warp, int vector, void* stream) {
  if (warp->slices == 0 || warp->d == 0) return 0;
  const bool fits = warp->x_pitch % vector == 0 && warp->y_pitch % vector == 0 &&
                    aligned(warp->x, 4 * vector) && aligned(warp->y, 4 * vector);
  const int vec = fits ? vector : 1;  // never an unaligned vector load
  const int64_t tiles = warp->groups > 1 ? 1 : ceil_div(warp->d, kWarp * vec);
  const dim3 grid(static_cast<unsigned>(ceil_div(warp->units(), kWarpsPerBlock)),
                  static_cast<unsigned>(tiles));
  if (vec == 4) {
    sliced_warps<4><<<grid, kBlock, 0, as_stream(stream)>>>(*warp);
  } else if (vec == 2) {
    sliced_warps<2><<<grid, kBlock, 0, as_stream(stream)>>>(*warp);
  } else {
    sliced_warps<1><<<grid, kBlock, 0, as_stream(stream)>>>(*warp);
  }
  return launch_status();
}

int dgb_spmm_gespmm(const int64_t* indptr, const int32_t* indices, const float* values,
                    int64_t rows, int features, const float* x, float* y, void* stream) {
  if (rows == 0 || features == 0) return 0;
  const int coarse = features < 2 * kWarp ? 1 : 2;
  const dim3 grid(static_cast<unsigned>(ceil_div(rows, kWarpsPerBlock)),
                  static_cast<unsigned>(ceil_div(features, kWarp * coarse)));
  if (coarse == 2) {
    gespmm_warps<2><<<grid, kBlock, 0, as_stream(stream)>>>(indptr, indices, values, rows,
                                                            features, x, y);
  } else {
    gespmm_warps<1><<<grid, kBlock, 0, as_stream(stream)>>>(indptr, indices, values, rows,
                                                            features, x, y);
  }
  return launch_status();
}

}  // extern "C"

}  // namespace dgbench
