// What the forward and the backward scan share: a block owns a tile of vertices for all T steps.
//
// A thread works on one hidden unit j of RT neighbouring vertices at a time, so that each weight it
// reads serves RT rows and neighbouring threads read neighbouring weights. The weights lie in
// shared memory where they fit, else they are read through the caches.
//
// Record of a vertex-step, G + 1 rows of H (GRU: h' z r c) or G + 2 (LSTM: h' i f g o c').
#pragma once

#include "common/launch.cuh"
#include "scan/cuda_launchers.h"

namespace dgbench {

constexpr int kTileGroups = 8;  // row groups of a tile: a tile has 8 RT vertices

__host__ __device__ inline int record_width(int gates) { return gates == 3 ? 4 : 6; }

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Copies `count` floats to shared memory; returns where to read them, `from` itself if !SHARED.
template <bool SHARED>
__device__ __forceinline__ const float* weights_of(const float* from, int64_t count,
                                                   float* shared) {
  if constexpr (SHARED) {
    for (int64_t i = threadIdx.x; i < count; i += kBlock) shared[i] = from[i];
    return shared;
  } else {
    return from;
  }
}

// sum[i] += sum over k of rows[i][k] * weights[k * pitch], for RT rows `row_pitch` floats apart.
template <int RT>
__device__ __forceinline__ void add_product(const float* rows, int row_pitch, int depth,
                                            const float* weights, int pitch, float (&sum)[RT]) {
#pragma unroll 4
  for (int k = 0; k < depth; ++k) {
    const float w = weights[static_cast<int64_t>(k) * pitch];
#pragma unroll
    for (int i = 0; i < RT; ++i) sum[i] += rows[i * row_pitch + k] * w;
  }
}

// Unit j of what vertex v starts step t from, where `begins` says that it does not go on.
__device__ __forceinline__ float start_of(const float* starts, int32_t from, int hidden, int j) {
  return from >= 0 && starts != nullptr ? starts[int64_t{from} * hidden + j] : 0.0f;
}

// What the walk back over the steps reads and writes.
struct StepArgs {
  ScanGradArgs a;
  float* dg;
  const float* w_hid_t;  // [G H, H]
};

// Bytes of dynamic shared memory that a block may have on the current device.
inline int64_t shared_limit() {
  int device = 0;
  int limit = 48 << 10;
  if (cudaGetDevice(&device) == cudaSuccess) {
    cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  return limit;
}

inline int processors() {
  int device = 0;
  int count = 1;
  if (cudaGetDevice(&device) == cudaSuccess) {
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  }
  return count;
}

// How rows are shared out to blocks: a tile has `groups` RT rows, RT is 4 from `wide_from` rows on
// (large tiles read the weights less often, small ones give every processor a block), and a grid has
// at most `blocks` blocks, for kernels whose blocks take one tile after another.
struct Tiling {
  int groups;
  int64_t wide_from, blocks;
};

inline Tiling scan_tiling() {
  return {kTileGroups, int64_t{2} * 4 * kTileGroups * processors(), INT32_MAX};
}

// Launches kernel<RT, SHARED> over tiles of rows. `state` and `weight` count floats of shared memory
// for one row and for the weights.
template <template <int, bool> class Kernel, class Args>
int launch_tiles(const Args& args, int64_t rows, int64_t state, int64_t weight,
                 const Tiling& tiling, void* stream) {
  const int64_t limit = shared_limit() / 4;
  const bool wide = rows >= tiling.wide_from;
  const auto go = [&](auto kernel, int rows_per_thread, bool shared) {
    const int64_t tile = int64_t{tiling.groups} * rows_per_thread;
    const int64_t bytes = 4 * (tile * state + (shared ? weight : 0));
    cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (error != cudaSuccess) return static_cast<int>(error);
    const int64_t tiles = ceil_div(rows, tile);
    const auto blocks = static_cast<unsigned>(tiles < tiling.blocks ? tiles : tiling.blocks);
    kernel<<<blocks, kBlock, bytes, as_stream(stream)>>>(args);
    return launch_status();
  };
  const auto fits = [&](int rows_per_thread, bool shared) {
    return int64_t{tiling.groups} * rows_per_thread * state + (shared ? weight : 0) <= limit;
  };
  if (wide && fits(4, true)) return go(Kernel<4, true>::function(), 4, true);
  if (fits(1, true)) return go(Kernel<1, true>::function(), 1, true);
  if (wide && fits(4, false)) return go(Kernel<4, false>::function(), 4, false);
  if (fits(1, false)) return go(Kernel<1, false>::function(), 1, false);
  return static_cast<int>(cudaErrorInvalidConfiguration);  // H + F beyond what a tile can hold
}

}  // namespace dgbench
