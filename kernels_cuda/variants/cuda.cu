// Aggregation as the papers do it: PiPAD's kernel over slices, and a kernel in the manner of GE-SpMM.
//
// Both have an instrumented form that writes when each warp began and ended, by the clock of the
// multiprocessor it ran on, and which one that was: the balance of the load (PiPAD, figure 12).
#include "common/launch.cuh"
#include "variants/cuda_launchers.h"

#include <type_traits>

namespace dgbench {
namespace {

constexpr int kWarpsPerBlock = kBlock / kWarp;

// Begin and end by the multiprocessor's clock, and its number, for warp `number`.
struct WarpClock {
  int64_t begin;

  __device__ WarpClock() : begin(cycles()) {}

  __device__ void note(int64_t* clocks, int64_t number, int lane) const {
    __syncwarp();
    if (lane != 0) return;
    clocks[3 * number] = begin;
    clocks[3 * number + 1] = cycles();
    clocks[3 * number + 2] = multiprocessor();
  }
};

struct NoClock {
  __device__ NoClock() {}

  __device__ void note(int64_t*, int64_t, int) const {}
};

template <bool CLOCKED>
using Clock = std::conditional_t<CLOCKED, WarpClock, NoClock>;

// One warp per g slices; see variants/slice_coalescing.hpp for the steps.
template <int VEC, bool CLOCKED>
__global__ void __launch_bounds__(kBlock) sliced_warps(const SliceWarp warp, int64_t* clocks) {
  __shared__ StagedEntry staged[kWarpsPerBlock][kPieceEntries * kMaxGroups];
  const int lane = threadIdx.x % kWarp;
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarp;
  if (unit >= warp.units()) return;  // whole warps leave
  const Clock<CLOCKED> clock;
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
  clock.note(clocks, blockIdx.y * warp.units() + unit, lane);
}

// The transposed product from the same slices: every entry's row of y gets the slice's own row.
template <int VEC>
__global__ void __launch_bounds__(kBlock) sliced_scatter_warps(const SliceWarp warp) {
  __shared__ StagedEntry staged[kWarpsPerBlock][kPieceEntries * kMaxGroups];
  const int lane = threadIdx.x % kWarp;
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarp;
  if (unit >= warp.units()) return;
  StagedEntry* shared = staged[threadIdx.x / kWarp];
  int index, column;
  const bool works = warp.place<VEC>(unit, blockIdx.y, lane, &index, &column);
  float own[VEC] = {};
  if (works) load_floats<VEC>(warp.source(unit, index, column), own);
  const auto add = [](float* to, const float(&from)[VEC]) { add_floats<VEC>(to, from); };
  for (int64_t piece = 0; warp.has_piece(unit, piece); ++piece) {
    warp.stage(unit, piece, lane, shared);
    __syncwarp();
    if (works) warp.scatter<VEC>(unit, piece, index, column, shared, add, own);
    __syncwarp();
  }
}

constexpr int64_t kHubRow = 512;  // entries of a row that one warp adds up, at most

struct Product {
  const int64_t* indptr;
  const int32_t* indices;
  const float* values;  // or null: 1 each
  int64_t rows, entries;
  int features;
  const float* x;
  float* y;
};

// Adds entries [begin, end) of a row, 32 staged at a time, for a tile of 32 COARSE columns.
template <int COARSE>
__device__ __forceinline__ void add_entries(const Product& p, int64_t begin, int64_t end, int first,
                                            int lane, StagedEntry* shared, float (&sum)[COARSE]) {
  for (; begin < end; begin += kWarp) {
    const int count = end - begin < kWarp ? static_cast<int>(end - begin) : kWarp;
    if (lane < count) {
      const int64_t e = begin + lane;
      shared[lane] = {p.indices[e], p.values != nullptr ? p.values[e] : 1.0f};
    }
    __syncwarp();
    for (int k = 0; k < count; ++k) {
      const StagedEntry entry = shared[k];
      const float* from = p.x + static_cast<int64_t>(entry.column) * p.features;
#pragma unroll
      for (int c = 0; c < COARSE; ++c) {
        const int column = first + c * kWarp;
        if (column < p.features) sum[c] += entry.value * __ldg(from + column);
      }
    }
    __syncwarp();
  }
}

// One warp per row and tile of 32 COARSE columns. Longer rows begin with zeros, for gespmm_hubs.
template <int COARSE, bool CLOCKED>
__global__ void __launch_bounds__(kBlock)
    gespmm_warps(const Product p, int64_t* __restrict__ clocks) {
  __shared__ StagedEntry staged[kWarpsPerBlock][kWarp];
  const int lane = threadIdx.x % kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarp;
  if (row >= p.rows) return;
  const Clock<CLOCKED> clock;
  const int first = blockIdx.y * kWarp * COARSE + lane;
  const int64_t begin = p.indptr[row], end = p.indptr[row + 1];
  float sum[COARSE] = {};
  if (end - begin <= kHubRow) {
    add_entries<COARSE>(p, begin, end, first, lane, staged[threadIdx.x / kWarp], sum);
  }
#pragma unroll
  for (int c = 0; c < COARSE; ++c) {
    const int column = first + c * kWarp;
    if (column < p.features) p.y[row * p.features + column] = sum[c];
  }
  clock.note(clocks, blockIdx.y * p.rows + row, lane);
}

__device__ int64_t row_of(const Product& p, int64_t entry) {  // the last that begins at or before it
  int64_t low = 0, high = p.rows;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (p.indptr[middle] <= entry) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// One warp per kHubRow entries of the matrix and tile: it adds what it has of longer rows, in no set
// order. There are two such rows among them at most, that of the first and that of the last entry.
template <int COARSE, bool CLOCKED>
__global__ void __launch_bounds__(kBlock)
    gespmm_hubs(const Product p, int64_t chunks, int64_t* __restrict__ clocks) {
  __shared__ StagedEntry staged[kWarpsPerBlock][kWarp];
  const int lane = threadIdx.x % kWarp;
  const int64_t chunk = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarp;
  if (chunk >= chunks) return;
  const int first = blockIdx.y * kWarp * COARSE + lane;
  const int64_t from = chunk * kHubRow;
  const int64_t to = from + kHubRow < p.entries ? from + kHubRow : p.entries;
  const Clock<CLOCKED> clock;
  const int64_t last = row_of(p, to - 1);
  bool works = false;
  for (int64_t row = row_of(p, from);; row = last) {
    const int64_t begin = p.indptr[row], end = p.indptr[row + 1];
    if (end - begin > kHubRow) {
      works = true;
      float sum[COARSE] = {};
      add_entries<COARSE>(p, begin > from ? begin : from, end < to ? end : to, first, lane,
                          staged[threadIdx.x / kWarp], sum);
#pragma unroll
      for (int c = 0; c < COARSE; ++c) {
        const int column = first + c * kWarp;
        if (column < p.features) atomicAdd(p.y + row * p.features + column, sum[c]);
      }
    }
    if (row == last) break;
  }
  const int64_t number = gridDim.y * p.rows + blockIdx.y * chunks + chunk;
  if (works) clock.note(clocks, number, lane);
}

int64_t hub_chunks(int64_t entries) { return entries > kHubRow ? ceil_div(entries, kHubRow) : 0; }

// Floats per lane that the addresses allow, at most `vector`: never an unaligned vector load.
int vector_that_fits(const SliceWarp& warp, int vector) {
  while (vector > 1 && (warp.x_pitch % vector != 0 || warp.y_pitch % vector != 0 ||
                        !aligned(warp.x, 4 * vector) || !aligned(warp.y, 4 * vector))) {
    vector /= 2;
  }
  return vector;
}

dim3 grid_of(const SliceWarp& warp, int vec) {
  const int64_t tiles = warp.groups > 1 ? 1 : ceil_div(warp.d, kWarp * vec);
  return dim3(static_cast<unsigned>(ceil_div(warp.units(), kWarpsPerBlock)),
              static_cast<unsigned>(tiles));
}

template <int VEC>
void launch_sliced(const SliceWarp& warp, int64_t* clocks, cudaStream_t stream) {
  if (clocks != nullptr) {
    sliced_warps<VEC, true><<<grid_of(warp, VEC), kBlock, 0, stream>>>(warp, clocks);
  } else {
    sliced_warps<VEC, false><<<grid_of(warp, VEC), kBlock, 0, stream>>>(warp, nullptr);
  }
}

}  // namespace

extern "C" {

int64_t dgb_sliced_warp_count(const SliceWarp* warp, int vector) {
  if (warp->slices == 0 || warp->d == 0) return 0;
  return warp->units() * grid_of(*warp, vector_that_fits(*warp, vector)).y;
}

int dgb_aggregate_sliced(const SliceWarp* warp, int vector, int64_t* clocks, void* stream) {
  if (warp->slices == 0 || warp->d == 0) return 0;
  const int vec = vector_that_fits(*warp, vector);
  if (vec == 4) {
    launch_sliced<4>(*warp, clocks, as_stream(stream));
  } else if (vec == 2) {
    launch_sliced<2>(*warp, clocks, as_stream(stream));
  } else {
    launch_sliced<1>(*warp, clocks, as_stream(stream));
  }
  return launch_status();
}

int dgb_scatter_sliced(const SliceWarp* warp, int vector, void* stream) {
  if (warp->slices == 0 || warp->d == 0) return 0;
  const int vec = vector_that_fits(*warp, vector);
  const dim3 grid = grid_of(*warp, vec);
  if (vec == 4) {
    sliced_scatter_warps<4><<<grid, kBlock, 0, as_stream(stream)>>>(*warp);
  } else if (vec == 2) {
    sliced_scatter_warps<2><<<grid, kBlock, 0, as_stream(stream)>>>(*warp);
  } else {
    sliced_scatter_warps<1><<<grid, kBlock, 0, as_stream(stream)>>>(*warp);
  }
  return launch_status();
}

int64_t dgb_gespmm_warp_count(int64_t rows, int features, int64_t entries) {
  const int coarse = features < 2 * kWarp ? 1 : 2;
  return (rows + hub_chunks(entries)) * ceil_div(features, kWarp * coarse);
}

int dgb_spmm_gespmm(const int64_t* indptr, const int32_t* indices, const float* values,
                    int64_t rows, int64_t entries, int features, const float* x, float* y,
                    int64_t* clocks, void* stream) {
  if (rows == 0 || features == 0) return 0;
  const Product p{indptr, indices, values, rows, entries, features, x, y};
  const int coarse = features < 2 * kWarp ? 1 : 2;
  const auto tiles = static_cast<unsigned>(ceil_div(features, kWarp * coarse));
  const int64_t chunks = hub_chunks(entries);
  const auto grid = [&](int64_t warps) {
    return dim3(static_cast<unsigned>(ceil_div(warps, kWarpsPerBlock)), tiles);
  };
  const auto go = [&](auto warps, auto hubs) {
    warps<<<grid(rows), kBlock, 0, as_stream(stream)>>>(p, clocks);
    const int status = launch_status();
    if (status != 0 || chunks == 0) return status;
    hubs<<<grid(chunks), kBlock, 0, as_stream(stream)>>>(p, chunks, clocks);
    return launch_status();
  };
  if (clocks != nullptr) {
    return coarse == 2 ? go(gespmm_warps<2, true>, gespmm_hubs<2, true>)
                       : go(gespmm_warps<1, true>, gespmm_hubs<1, true>);
  }
  return coarse == 2 ? go(gespmm_warps<2, false>, gespmm_hubs<2, false>)
                     : go(gespmm_warps<1, false>, gespmm_hubs<1, false>);
}

}  // extern "C"

}  // namespace dgbench
