// The products of scan/cuda_tile_product.cuh on tensor cores, in the same tiles and parts.
//
// Each of the eight warps of a block has 16 x 8 of its 32 x 32 elements.
#pragma once

#include "scan/cuda_mma.cuh"
#include "scan/cuda_tile_product.cuh"

namespace dgbench {

template <bool A_ALONG_I, bool B_ALONG_J, class A, class B, class Store>
__global__ void __launch_bounds__(kBlock)
    split_tile_product(int64_t rows, int64_t columns, int64_t depth, int64_t part_depth, const A a,
                       const B b, const Store store) {
#if DGBENCH_SPLIT_PRODUCTS
  constexpr int kTiles = kTile / kMmaWidth;  // of k, and of j
  static_assert(kTile / kMmaRows * kTiles == kBlock / 32, "a warp each");
  alignas(16) __shared__ float left[kTile * kTile];
  alignas(16) __shared__ float right[kTile * kTile];
  const int fast = threadIdx.x % kTile;
  const int slow = threadIdx.x / kTile;  // of the warp, too
  const int64_t i0 = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t j0 = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t begin = blockIdx.z * part_depth;
  const int64_t end = begin + part_depth < depth ? begin + part_depth : depth;
  MmaSum sum;
  sum.start(0.0f, 0.0f);
  for (int64_t k0 = begin; k0 < end; k0 += kTile) {
#pragma unroll
    for (int q = 0; q < kTile; q += kBlock / kTile) {
      const int ai = A_ALONG_I ? fast : slow + q;
      const int ak = A_ALONG_I ? slow + q : fast;
      left[place_in_a(ai, ak, kTiles)] =
          i0 + ai < rows && k0 + ak < end ? a(i0 + ai, k0 + ak, j0) : 0.0f;
      const int bj = B_ALONG_J ? fast : slow + q;
      const int bk = B_ALONG_J ? slow + q : fast;
      right[(bj / kMmaWidth * kTiles + bk / kMmaWidth) * kBFloats +
            place_in_b(bk % kMmaWidth, bj % kMmaWidth)] =
          j0 + bj < columns && k0 + bk < end ? b(k0 + bk, j0 + bj) : 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < kTiles; ++k) {
      sum.add(load_a(left + (slow / kTiles * kTiles + k) * kAFloats, fast),
              load_b(right + (slow % kTiles * kTiles + k) * kBFloats, fast));
    }
    __syncthreads();
  }
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const int64_t i = i0 + slow / kTiles * kMmaRows + fast / 4 + q / 2 * 8;
    const int64_t j = j0 + slow % kTiles * kMmaWidth + fast % 4 * 2 + q % 2;
    if (i < rows && j < columns) store(static_cast<int>(blockIdx.z), i, j, sum.value(q));
  }
#endif
}

// As launch_tile_product, which it is where products are not to be split.
template <bool A_ALONG_I, bool B_ALONG_J, class A, class B, class Store>
int launch_product(bool split, int64_t rows, int64_t columns, int64_t depth, int64_t parts,
                   const A& a, const B& b, const Store& store, void* stream) {
  if (!split) {
    return launch_tile_product<A_ALONG_I, B_ALONG_J>(rows, columns, depth, parts, a, b, store,
                                                     stream);
  }
  if (rows == 0 || columns == 0) return 0;
  const dim3 grid = product_grid(rows, columns, parts);
  split_tile_product<A_ALONG_I, B_ALONG_J><<<grid, kBlock, 0, as_stream(stream)>>>(
      rows, columns, depth, depth_of_part(depth, parts), a, b, store);
  return launch_status();
}

}  // namespace dgbench
