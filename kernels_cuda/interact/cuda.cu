// Sums over the partners of rows and products of rows of edges; see interact/cpu.cpp for the rules.
//
// A group of lanes, as wide as a row of floats, owns a row and adds its edges in their order, without
// atomics. Rows of more than kPieceEdges edges, which a power law makes some thousand times as long as
// others, are cut where multiples of it fall: first every piece is added up by a group of its own,
// then the row's owner adds the pieces, or the whole block does where they are many. All orders are
// fixed by the arrays, so the same input always gives the same bits.
#include "common/launch.cuh"
#include "interact/cuda_launchers.h"

namespace dgbench {
namespace {

constexpr int kHubPieces = 64;  // more are added up by a whole block
constexpr unsigned kEverybody = 0xffffffffu;

template <class T, int VEC>
struct alignas(sizeof(T) * VEC) Part {
  T at[VEC];
};

template <class T, int VEC>
__device__ __forceinline__ Part<T, VEC> load(const T* from) {
  return *reinterpret_cast<const Part<T, VEC>*>(from);
}

template <class T, int VEC>
__device__ __forceinline__ void store(T* to, const Part<T, VEC>& value) {
  *reinterpret_cast<Part<T, VEC>*>(to) = value;
}

template <class T, int VEC>
__device__ __forceinline__ void add(Part<T, VEC>& sum, const Part<T, VEC>& value) {
#pragma unroll
  for (int i = 0; i < VEC; ++i) sum.at[i] += value.at[i];
}

template <class T, int VEC>
__device__ __forceinline__ void add(Part<T, VEC>& sum, const Part<T, VEC>& value, T weight) {
#pragma unroll
  for (int i = 0; i < VEC; ++i) sum.at[i] += weight * value.at[i];
}

// The edges at [first, stop), VEC columns from `column` on; four rows are on their way at a time.
template <class T, int VEC>
__device__ Part<T, VEC> sum_edges(const InteractSums<T>& s, int64_t first, int64_t stop,
                                  int64_t column) {
  constexpr int kFlight = 4;
  Part<T, VEC> sum{};
  int64_t p = first;
  for (; p + kFlight <= stop; p += kFlight) {
    int64_t edge[kFlight];
    Part<T, VEC> row[kFlight];
#pragma unroll
    for (int i = 0; i < kFlight; ++i) edge[i] = s.order[p + i];
#pragma unroll
    for (int i = 0; i < kFlight; ++i) {
      row[i] = load<T, VEC>(s.x + s.other[edge[i]] * s.width + column);
    }
#pragma unroll
    for (int i = 0; i < kFlight; ++i) {
      if (s.weight == nullptr) {
        add(sum, row[i]);
      } else {
        add(sum, row[i], s.weight[edge[i]]);
      }
    }
  }
  for (; p < stop; ++p) {
    const int64_t edge = s.order[p];
    const Part<T, VEC> row = load<T, VEC>(s.x + s.other[edge] * s.width + column);
    if (s.weight == nullptr) {
      add(sum, row);
    } else {
      add(sum, row, s.weight[edge]);
    }
  }
  return sum;
}

// The row that holds place p: the last that begins there or before, and so not an empty one.
template <class T>
__device__ __forceinline__ int64_t row_at(const InteractSums<T>& s, int64_t p) {
  int64_t low = 0, high = s.rows;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (s.offsets[middle] <= p) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Partial sums of the long rows that a piece has a part of: the one at its first place, and the one
// at its last where that is another. A long row is longer than a piece, so it is one of them.
template <class T, int VEC>
__global__ void __launch_bounds__(kBlock) sum_pieces(const InteractSums<T> s, int shift) {
  const int lanes = 1 << shift;
  const int64_t pieces = (s.edges + kPieceEdges - 1) / kPieceEdges;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * lanes + (threadIdx.x & (lanes - 1))) * VEC;
  if (column >= s.width) return;
  const int64_t groups = static_cast<int64_t>(gridDim.x) * (kBlock >> shift);
  int64_t piece = static_cast<int64_t>(blockIdx.x) * (kBlock >> shift) + (threadIdx.x >> shift);
  for (; piece < pieces; piece += groups) {
    const int64_t first = piece * kPieceEdges;
    const int64_t stop = first + kPieceEdges < s.edges ? first + kPieceEdges : s.edges;
    T* const partial = s.partial + 2 * piece * s.width + column;
    const int64_t row = row_at(s, first);
    const int64_t row_stop = s.offsets[row + 1];
    if (row_stop - s.offsets[row] > kPieceEdges) {
      store(partial, sum_edges<T, VEC>(s, first, row_stop < stop ? row_stop : stop, column));
    }
    if (row_stop >= stop) continue;
    const int64_t other = row_at(s, stop - 1);
    if (s.offsets[other + 1] - s.offsets[other] > kPieceEdges) {
      store(partial + s.width, sum_edges<T, VEC>(s, s.offsets[other], stop, column));
    }
  }
}

// Pieces [from, to) of the row that begins at `first`.
template <class T, int VEC>
__device__ Part<T, VEC> sum_partials(const InteractSums<T>& s, int64_t first, int64_t from,
                                     int64_t to, int64_t column) {
  constexpr int kFlight = 4;
  Part<T, VEC> sum{};
  const T* const partial = s.partial + column;
  int64_t piece = from;
  const auto slot = [&](int64_t c) {  // behind the piece's first row where this one begins in it
    return (2 * c + (c * kPieceEdges < first ? 1 : 0)) * s.width;
  };
  for (; piece + kFlight <= to; piece += kFlight) {
    Part<T, VEC> row[kFlight];
#pragma unroll
    for (int i = 0; i < kFlight; ++i) row[i] = load<T, VEC>(partial + slot(piece + i));
#pragma unroll
    for (int i = 0; i < kFlight; ++i) add(sum, row[i]);
  }
  for (; piece < to; ++piece) add(sum, load<T, VEC>(partial + slot(piece)));
  return sum;
}

template <class T, int VEC>
__global__ void __launch_bounds__(kBlock) sum_rows(const InteractSums<T> s, int shift) {
  __shared__ T partial_sums[kBlock * VEC];
  __shared__ bool is_hub[kBlock];
  const int lanes = 1 << shift, groups = kBlock >> shift;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int group = static_cast<int>(threadIdx.x) >> shift;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * lanes + lane) * VEC;
  const bool inside = column < s.width;
  const int64_t block_first = static_cast<int64_t>(blockIdx.x) * groups;
  const int64_t row = block_first + group;
  bool hub = false;
  if (row < s.rows) {
    int64_t first = s.offsets[row];
    const int64_t stop = s.offsets[row + 1];
    if (s.last && stop - first > 1) first = stop - 1;
    if (stop - first <= kPieceEdges) {
      if (inside) store(s.out + row * s.width + column, sum_edges<T, VEC>(s, first, stop, column));
    } else {
      const int64_t from = first / kPieceEdges, to = (stop - 1) / kPieceEdges + 1;
      hub = to - from > kHubPieces;
      if (!hub && inside) {
        store(s.out + row * s.width + column, sum_partials<T, VEC>(s, first, from, to, column));
      }
    }
  }
  if (lane == 0) is_hub[group] = hub;
  if (!__syncthreads_or(hub)) return;
  for (int g = 0; g < groups; ++g) {
    if (!is_hub[g]) continue;
    const int64_t at = block_first + g;
    const int64_t first = s.offsets[at];
    const int64_t from = first / kPieceEdges, to = (s.offsets[at + 1] - 1) / kPieceEdges + 1;
    const int64_t each = (to - from + groups - 1) / groups;
    const int64_t mine = from + group * each;
    Part<T, VEC> sum{};
    if (inside && mine < to) {
      sum = sum_partials<T, VEC>(s, first, mine, mine + each < to ? mine + each : to, column);
    }
    for (int i = 0; i < VEC; ++i) partial_sums[threadIdx.x * VEC + i] = sum.at[i];
    __syncthreads();
    if (group == 0 && inside) {
      for (int other = 1; other < groups; ++other) {
        for (int i = 0; i < VEC; ++i) sum.at[i] += partial_sums[(other * lanes + lane) * VEC + i];
      }
      store(s.out + at * s.width + column, sum);
    }
    __syncthreads();
  }
}

template <class T, int VEC>
__global__ void __launch_bounds__(kBlock) edge_dots(const InteractDots<T> d, int shift) {
  const int lanes = 1 << shift;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (kBlock / 32);
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x) / 32;
  const int each = 32 >> shift;  // edges of a warp, whose lanes stay together
  for (int64_t base = warp * each; base < d.edges; base += warps * each) {
    const int64_t edge = base + ((threadIdx.x & 31) >> shift);
    T sum = 0;
    if (edge < d.edges) {
      const T* const left = d.left + d.src[edge] * d.width;
      const T* const right = d.right + d.dst[edge] * d.width;
      for (int64_t column = lane * VEC; column < d.width; column += lanes * VEC) {
        const Part<T, VEC> a = load<T, VEC>(left + column), b = load<T, VEC>(right + column);
#pragma unroll
        for (int i = 0; i < VEC; ++i) sum += a.at[i] * b.at[i];
      }
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kEverybody, sum, distance);
    }
    if (lane == 0 && edge < d.edges) d.out[edge] = sum;
  }
}

// Lanes of a group, as a power of two: enough for a row of `parts` vectors, at most a warp.
inline int lane_shift(int64_t parts) {
  int shift = 0;
  while (shift < 5 && int64_t{1} << shift < parts) ++shift;
  return shift;
}

inline unsigned grid_of(int64_t groups_wanted, int groups_a_block) {
  constexpr int64_t kMax = 0x7fffffff;
  const int64_t blocks = ceil_div(groups_wanted, groups_a_block);
  return static_cast<unsigned>(blocks < kMax ? blocks : kMax);
}

template <class T, int VEC>
int sums(const InteractSums<T>& s, void* stream) {
  const int64_t parts = ceil_div(s.width, VEC);
  const int shift = lane_shift(parts);
  const auto tiles = static_cast<unsigned>(ceil_div(parts, int64_t{1} << shift));
  if (s.edges > kPieceEdges && !s.last) {
    const dim3 grid(grid_of(ceil_div(s.edges, kPieceEdges), kBlock >> shift), tiles);
    sum_pieces<T, VEC><<<grid, kBlock, 0, as_stream(stream)>>>(s, shift);
    const int status = launch_status();
    if (status != 0) return status;
  }
  const dim3 grid(grid_of(s.rows, kBlock >> shift), tiles);
  sum_rows<T, VEC><<<grid, kBlock, 0, as_stream(stream)>>>(s, shift);
  return launch_status();
}

template <class T, int VEC>
int dots(const InteractDots<T>& d, void* stream) {
  const int shift = lane_shift(ceil_div(d.width, VEC));
  const unsigned grid = grid_of(d.edges, kBlock >> shift);
  edge_dots<T, VEC><<<grid, kBlock, 0, as_stream(stream)>>>(d, shift);
  return launch_status();
}

template <class T>
int any_sums(const InteractSums<T>* s, void* stream) {
  constexpr int kWide = 16 / sizeof(T);
  if (s->rows == 0 || s->width == 0) return 0;
  const bool wide = s->width % kWide == 0 && aligned(s->x, 16) && aligned(s->out, 16) &&
                    aligned(s->partial, 16);
  return wide ? sums<T, kWide>(*s, stream) : sums<T, 1>(*s, stream);
}

template <class T>
int any_dots(const InteractDots<T>* d, void* stream) {
  constexpr int kWide = 16 / sizeof(T);
  if (d->edges == 0) return 0;
  const bool wide = d->width % kWide == 0 && aligned(d->left, 16) && aligned(d->right, 16);
  return wide ? dots<T, kWide>(*d, stream) : dots<T, 1>(*d, stream);
}

}  // namespace

extern "C" {

int dgb_interact_sums_float(const InteractSums<float>* args, void* stream) {
  return any_sums(args, stream);
}
int dgb_interact_sums_double(const InteractSums<double>* args, void* stream) {
  return any_sums(args, stream);
}
int dgb_interact_dots_float(const InteractDots<float>* args, void* stream) {
  return any_dots(args, stream);
}
int dgb_interact_dots_double(const InteractDots<double>* args, void* stream) {
  return any_dots(args, stream);
}

}  // extern "C"

}  // namespace dgbench
