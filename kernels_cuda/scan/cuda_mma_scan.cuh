// What the scans on tensor cores share: how a block's warps share out rows and hidden units.
//
// A warp owns 16 rows and 8 hidden units, all gates of them, for all T steps. What the recurrence
// carries stays in its registers; warps of the same rows hand each other h, or what stands in its
// place, through shared memory, in the order of lanes. Bits are the same for any rows of a block.
#pragma once

#include "common/launch.cuh"
#include "scan/cuda_launchers.h"
#include "scan/cuda_mma.cuh"
#include "scan/cuda_tile.cuh"

namespace dgbench {

constexpr int kMmaUnits = kBlock / 32;  // tiles of 8 hidden units at most, a warp each

__host__ __device__ inline int mma_tiles(int n) { return (n + kMmaWidth - 1) / kMmaWidth; }

// How a scan is laid out, the same for all of its blocks.
struct MmaLayout {
  int units, inputs;  // tiles of 8 hidden units, of 8 features
  int tiles;          // of 16 rows in a block

  int threads() const { return 32 * units * tiles; }
  int64_t rows() const { return int64_t{kMmaRows} * tiles; }
};

// Shared memory of a forward block: weights, two steps of x, then h and r * h, or two of h.
inline int64_t mma_forward_bytes(const MmaLayout& l, int gates) {
  const int64_t weights = int64_t{l.units} * (l.inputs + l.units) * gates * kBFloats;
  return 4 * (weights + int64_t{2} * l.tiles * (l.inputs + l.units) * kAFloats);
}

// Of a backward block: W_hid transposed, then the gates' gradients of one step (LSTM: of two).
inline int64_t mma_backward_bytes(const MmaLayout& l, int gates) {
  const int64_t weights = int64_t{l.units} * l.units * gates * kBFloats;
  return 4 * (weights + int64_t{gates == 3 ? 3 : 8} * l.tiles * l.units * kAFloats);
}

// This lane's part of a block: rows g and g + 8 of a tile of 16, two neighbouring units of each.
struct MmaLane {
  int warp, lane, tile, unit;
  int rows;       // vertices of the block that exist
  int64_t first;  // the first of them

  __device__ MmaLane(const ScanArgs& a, const MmaLayout& layout)
      : warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        tile(warp / layout.units),
        unit(warp % layout.units),
        first(blockIdx.x * int64_t{kMmaRows} * layout.tiles) {
    const int most = kMmaRows * layout.tiles;
    rows = a.vertices - first < most ? static_cast<int>(a.vertices - first) : most;
  }

  // Row in the block and hidden unit of value i.
  __device__ int row(int i) const { return tile * kMmaRows + lane / 4 + i / 2 * 8; }
  __device__ int j(int i) const { return unit * kMmaWidth + lane % 4 * 2 + i % 2; }
  __device__ bool inside(const ScanArgs& a, int i) const {
    return row(i) < rows && j(i) < a.hidden;
  }
};

// Reads this lane's values of a [vertices, pitch] array, zero where there are none.
__device__ __forceinline__ void load_values(const MmaLane& own, const ScanArgs& a,
                                            const float* from, int pitch, float (&to)[4]) {
  const float* const block = from == nullptr ? nullptr : from + own.first * pitch;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool there = block != nullptr && own.inside(a, i);
    to[i] = there ? block[own.row(i) * pitch + own.j(i)] : 0.0f;
  }
}

// Writes this lane's values to a [vertices, pitch] array. `paired`: two units lie at 8 bytes.
__device__ __forceinline__ void store_values(const MmaLane& own, const ScanArgs& a, float* to,
                                             int pitch, bool paired, const float (&from)[4]) {
  float* const block = to + own.first * pitch;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    if (!own.inside(a, i)) continue;
    float* const at = block + own.row(i) * pitch + own.j(i);
    if (paired) {
      *reinterpret_cast<float2*>(at) = make_float2(from[i], from[i + 1]);
    } else {
      at[0] = from[i];
      if (own.inside(a, i + 1)) at[1] = from[i + 1];
    }
  }
}

// Where two neighbouring units of a row may be written at once: `to` is null or aligned.
__device__ __forceinline__ bool pairs(const ScanArgs& a, const float* to) {
  return a.hidden % 2 == 0 && reinterpret_cast<uintptr_t>(to) % 8 == 0;
}

// Of this lane's two rows, what `begins` says of step t; a row that is not there goes on.
struct MmaBegins {
  int32_t from[2];

  MmaBegins() = default;
  __device__ MmaBegins(const MmaLane& own, const ScanArgs& a, int64_t t) : from{-1, -1} {
    if (a.begins == nullptr || t >= a.steps) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = own.row(2 * i);
      if (row < own.rows) from[i] = (a.begins + t * a.vertices + own.first)[row];
    }
  }
  // Replaces the states of rows whose next sequence begins.
  __device__ void apply(const MmaLane& own, const ScanArgs& a, const float* starts,
                        float (&state)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (from[i / 2] == -1) continue;
      state[i] = own.j(i) < a.hidden ? start_of(starts, from[i / 2], a.hidden, own.j(i)) : 0.0f;
    }
  }
};

// Begins to copy a tile of B, as load_b reads it, for each (unit, tile of k, gate); it is zero past
// the matrix. `at(k, gate, j)` is where an element lies, asked for k < depth and j < hidden.
template <class Address>
__device__ __forceinline__ void copy_b(float* to, const MmaLane& own, const MmaLayout& layout,
                                       int depth, int gates, int hidden, const Address& at) {
  const int tiles = mma_tiles(depth);
  const int column = own.lane % kMmaWidth;
  for (int p = own.warp; p < layout.units * tiles; p += layout.units * layout.tiles) {
    const int j = p / tiles * kMmaWidth + column;
    for (int gate = 0; gate < gates; ++gate) {
      float* const tile = to + (p * gates + gate) * kBFloats;
#pragma unroll
      for (int row = own.lane / kMmaWidth; row < kMmaWidth; row += 32 / kMmaWidth) {
        const int k = p % tiles * kMmaWidth + row;
        float* const element = tile + place_in_b(row, column);
        if (k < depth && j < hidden) {
          copy_float(element, at(k, gate, j));
        } else {
          *element = 0.0f;
        }
      }
    }
  }
}

// Whether both passes run on the current device.
inline bool mma_fits(int features, int hidden, int gates) {
  const MmaLayout least{mma_tiles(hidden), mma_tiles(features), 1};
  const int64_t limit = shared_limit();
  return hidden > 0 && least.units <= kMmaUnits && has_tensor_cores() &&
         mma_forward_bytes(least, gates) <= limit && mma_backward_bytes(least, gates) <= limit;
}

// The layout for so many rows: a block of eight warps where every processor has several, else of as
// many as 16 rows need. `bytes(layout)` is the shared memory of a block.
template <class Bytes>
MmaLayout mma_layout(const ScanArgs& a, const Bytes& bytes) {
  MmaLayout layout{mma_tiles(a.hidden), mma_tiles(a.features), 1};
  const bool wide = a.vertices >= int64_t{4} * kMmaRows * kMmaUnits * processors();
  MmaLayout more = layout;
  more.tiles = kMmaUnits / layout.units;
  if (wide && bytes(more) <= shared_limit()) return more;
  return layout;
}

template <class Kernel, class Args>
int launch_mma(Kernel kernel, const Args& args, int64_t vertices, const MmaLayout& layout,
               int64_t bytes, void* stream) {
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error != cudaSuccess) return static_cast<int>(error);
  const auto blocks = static_cast<unsigned>(ceil_div(vertices, layout.rows()));
  const auto threads = static_cast<unsigned>(layout.threads());
  kernel<<<blocks, threads, bytes, as_stream(stream)>>>(args, layout);
  return launch_status();
}

}  // namespace dgbench
