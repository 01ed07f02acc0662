// C(i, j) = sum over k of A(i, k) B(k, j) with operands given as functors, in tiles of 32 x 32.
//
// Plain float32, one fixed order of additions: used where the scans need products whose operands
// are put together on the way (shifted states, products of gates) and results must repeat.
// A long k is cut into parts, which `add_parts` sums in their order. How many depends on the shape
// alone, so that every device adds in the same order.
#pragma once

#include "common/launch.cuh"

namespace dgbench {

constexpr int kTile = 32;

constexpr int64_t kMaxParts = 64;    // what a sum over them may read
constexpr int64_t kPartDepth = 512;  // of k that a part has at most, up to kMaxParts of them
constexpr int64_t kFullGrid = 512;   // blocks that keep a device busy: four on each of 128 processors

inline int64_t depth_of_part(int64_t depth, int64_t parts) {
  return ceil_div(ceil_div(depth, parts), kTile) * kTile;
}

// Parts that k is cut into: short ones while tiles alone are a small grid. None is empty.
inline int64_t parts_of(int64_t rows, int64_t columns, int64_t depth) {
  const int64_t tiles = ceil_div(rows, kTile) * ceil_div(columns, kTile);
  const int64_t filling = ceil_div(kFullGrid, tiles < 1 ? 1 : tiles);
  const int64_t by_depth = ceil_div(depth, kPartDepth);
  int64_t parts = filling > by_depth ? filling : by_depth;
  if (parts > kMaxParts) parts = kMaxParts;
  const int64_t part_depth = depth_of_part(depth, parts);
  return part_depth == 0 ? 1 : ceil_div(depth, part_depth);
}

inline dim3 product_grid(int64_t rows, int64_t columns, int64_t parts) {
  return dim3(static_cast<unsigned>(ceil_div(rows, kTile)),
              static_cast<unsigned>(ceil_div(columns, kTile)), static_cast<unsigned>(parts));
}

// Sum of a product's parts, `pitch` floats apart, in their order.
__device__ __forceinline__ float add_parts(const float* part, int64_t parts, int64_t pitch) {
  float sum = 0.0f;
  int64_t p = 0;
  for (; p + 8 <= parts; p += 8) {  // eight reads at once
    float value[8];
#pragma unroll
    for (int q = 0; q < 8; ++q) value[q] = part[(p + q) * pitch];
#pragma unroll
    for (int q = 0; q < 8; ++q) sum += value[q];
  }
  for (; p < parts; ++p) sum += part[p * pitch];
  return sum;
}

// blockIdx: tile of i, tile of j, part of k. Each part is handed to `store(part, i, j, value)`.
// `a` is also told the first j of its tile, where A is not the same for all columns.
template <bool A_ALONG_I, bool B_ALONG_J, class A, class B, class Store>
__global__ void __launch_bounds__(kBlock)
    tile_product(int64_t rows, int64_t columns, int64_t depth, int64_t part_depth, const A a,
                 const B b, const Store store) {
  __shared__ float left[kTile][kTile + 1];   // [i][k]
  __shared__ float right[kTile][kTile + 1];  // [k][j]
  constexpr int kRowsPerThread = kTile * kTile / kBlock;
  const int fast = threadIdx.x % kTile;
  const int slow = threadIdx.x / kTile;  // 0 .. 7
  const int64_t i0 = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t j0 = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t begin = blockIdx.z * part_depth;
  const int64_t end = begin + part_depth < depth ? begin + part_depth : depth;
  float sum[kRowsPerThread] = {};
  for (int64_t k0 = begin; k0 < end; k0 += kTile) {
#pragma unroll
    for (int q = 0; q < kTile; q += kBlock / kTile) {
      // `fast` runs along the dimension that lies contiguous in memory
      const int ai = A_ALONG_I ? fast : slow + q;
      const int ak = A_ALONG_I ? slow + q : fast;
      left[ai][ak] = i0 + ai < rows && k0 + ak < end ? a(i0 + ai, k0 + ak, j0) : 0.0f;
      const int bj = B_ALONG_J ? fast : slow + q;
      const int bk = B_ALONG_J ? slow + q : fast;
      right[bk][bj] = j0 + bj < columns && k0 + bk < end ? b(k0 + bk, j0 + bj) : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < kTile; ++k) {
      const float value = right[k][fast];
#pragma unroll
      for (int q = 0; q < kRowsPerThread; ++q) sum[q] += left[slow * kRowsPerThread + q][k] * value;
    }
    __syncthreads();
  }
  if (j0 + fast >= columns) return;
#pragma unroll
  for (int q = 0; q < kRowsPerThread; ++q) {
    const int64_t i = i0 + slow * kRowsPerThread + q;
    if (i < rows) store(static_cast<int>(blockIdx.z), i, j0 + fast, sum[q]);
  }
}

template <bool A_ALONG_I, bool B_ALONG_J, class A, class B, class Store>
int launch_tile_product(int64_t rows, int64_t columns, int64_t depth, int64_t parts, const A& a,
                        const B& b, const Store& store, void* stream) {
  if (rows == 0 || columns == 0) return 0;
  const dim3 grid = product_grid(rows, columns, parts);
  tile_product<A_ALONG_I, B_ALONG_J><<<grid, kBlock, 0, as_stream(stream)>>>(
      rows, columns, depth, depth_of_part(depth, parts), a, b, store);
  return launch_status();
}

}  // namespace dgbench
