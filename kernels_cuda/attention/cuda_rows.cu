// Graph attention over the rows of a matrix, forward and backward, without atomics.
//
// As on the CPU: forward by rows, with the part of a result that came over positive scores kept for
// the derivative to targets, which then needs no neighbours; derivatives to values and sources by
// columns of the transposed matrix. A row or a column and head has one owner, a group of 2^k lanes
// that hold its columns in registers. Every lane works the scores out itself: they are read in one
// broadcast, and an exchange would cost more. Only the products of the backward pass are summed
// over a group, by exchanges inside it.
//
// More than kHeavyRow entries are shared out among all groups of the owner's block, whose sums are
// added in their order.
#include "attention/cuda_launchers.h"
#include "common/launch.cuh"

namespace dgbench {
namespace {

constexpr int64_t kHeavyRow = 128;
constexpr int kInFlight = 4;  // neighbours whose rows are loaded before the first is used
constexpr int kMaxWidth = 128;

// E columns of a head held by a lane: neighbouring ones (VECTOR, E = 4), or every lanes-th.
template <int E, bool VECTOR>
struct Lane {
  int first, step, width;

  __device__ Lane(int lane, int lanes, int width)
      : first(VECTOR ? lane * E : lane), step(VECTOR ? 1 : lanes), width(width) {}

  __device__ __forceinline__ void load(const float* row, float (&to)[E]) const {
    if constexpr (VECTOR) {
      if (first < width) {
        load_floats<E>(row + first, to);
        return;
      }
#pragma unroll
      for (int e = 0; e < E; ++e) to[e] = 0.0f;
    } else {
#pragma unroll
      for (int e = 0; e < E; ++e) {
        const int column = first + e * step;
        to[e] = column < width ? __ldg(row + column) : 0.0f;
      }
    }
  }
  __device__ __forceinline__ void store(float* row, const float (&from)[E], float factor) const {
#pragma unroll
    for (int e = 0; e < E; ++e) {
      const int column = first + e * step;
      if (column < width) row[column] = from[e] * factor;
    }
  }
};

// Sums over the entries that one group took of a row. `top` is their largest score.
template <int E>
struct RowSums {
  float top, total, positive;
  bool above, below;
  float all[E], over[E];
};

// Every step-th entry of a row from number `offset` on; entry 0 is the row itself.
template <int E, bool VECTOR>
__device__ void sum_row(const AttendRows& a, const Lane<E, VECTOR>& lane, int64_t row, int head,
                        int64_t offset, int64_t step, RowSums<E>& sums) {
  const int64_t begin = a.indptr[row], count = a.indptr[row + 1] - begin + 1;
  const float target = a.target[row * a.heads + head];
  const auto column_of = [&](int64_t j) {
    return j == 0 ? row : static_cast<int64_t>(__ldg(a.indices + begin + j - 1));
  };
  float top = -INFINITY;
  for (int64_t j = offset; j < count; j += step) {
    const float score = leaky(target + __ldg(a.source + column_of(j) * a.source_row + head),
                              a.slope);
    top = score > top ? score : top;
  }
  sums.top = top;
  sums.total = sums.positive = 0.0f;
  sums.above = sums.below = false;
#pragma unroll
  for (int e = 0; e < E; ++e) sums.all[e] = sums.over[e] = 0.0f;
  const float* values = a.values + head * a.width;
  for (int64_t j = offset; j < count; j += kInFlight * step) {
    float neighbour[kInFlight][E], raw[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (j + u * step >= count) continue;
      const int64_t column = column_of(j + u * step);
      raw[u] = target + __ldg(a.source + column * a.source_row + head);
      lane.load(values + column * a.values_row, neighbour[u]);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (j + u * step >= count) continue;
      const float share = expf(leaky(raw[u], a.slope) - top);
      const bool above = raw[u] > 0.0f;
      sums.above = sums.above || above;
      sums.below = sums.below || !above;
      sums.total += share;
      sums.positive += above ? share : 0.0f;
#pragma unroll
      for (int e = 0; e < E; ++e) {
        sums.all[e] += share * neighbour[u][e];
        sums.over[e] += above ? share * neighbour[u][e] : 0.0f;
      }
    }
  }
}

template <int E, bool VECTOR>
__device__ void finish_row(const AttendRows& a, const Lane<E, VECTOR>& lane, int64_t row, int head,
                           const RowSums<E>& sums) {
  const int64_t at = row * a.heads + head;
  const float factor = 1.0f / sums.total;
  lane.store(a.out + at * a.width, sums.all, factor);
  if (a.stats == nullptr) return;
  const bool mixed = sums.above && sums.below;
  if (mixed) {
    const int64_t place = static_cast<int64_t>(a.place[row]) * a.heads + head;
    lane.store(a.positive + place * a.width, sums.over, factor);
  }
  if (lane.first == 0) {
    a.stats[3 * at] = sums.top;
    a.stats[3 * at + 1] = factor;
    a.stats[3 * at + 2] = mixed ? sums.positive * factor : kOneSign;
  }
}

template <int E, bool VECTOR>
__global__ void __launch_bounds__(kBlock) attend_forward(const AttendRows a, int lane_bits) {
  __shared__ bool heavy_row[kBlock];
  __shared__ float part[kBlock][2 * E + 3];
  __shared__ bool signs[kBlock][2];
  const int lanes = 1 << lane_bits, groups = kBlock >> lane_bits;
  const int group = threadIdx.x >> lane_bits, in_group = threadIdx.x & (lanes - 1);
  const int head = blockIdx.y;
  const Lane<E, VECTOR> lane(in_group, lanes, a.width);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * groups;
  const int64_t row = first + group;

  bool heavy = false;
  RowSums<E> sums;
  if (row < a.rows) {
    const int64_t count = a.indptr[row + 1] - a.indptr[row];
    heavy = count > kHeavyRow;
    if (!heavy) {
      sum_row(a, lane, row, head, 0, 1, sums);
      finish_row(a, lane, row, head, sums);
    }
  }
  heavy_row[group] = heavy;
  if (!__syncthreads_or(heavy)) return;
  for (int g = 0; g < groups; ++g) {
    if (!heavy_row[g]) continue;
    sum_row(a, lane, first + g, head, group, groups, sums);
    float* mine = part[threadIdx.x];
    mine[0] = sums.top;
    mine[1] = sums.total;
    mine[2] = sums.positive;
#pragma unroll
    for (int e = 0; e < E; ++e) {
      mine[3 + e] = sums.all[e];
      mine[3 + E + e] = sums.over[e];
    }
    signs[threadIdx.x][0] = sums.above;
    signs[threadIdx.x][1] = sums.below;
    __syncthreads();
    if (group == 0) {
      float top = sums.top;
      for (int other = 1; other < groups; ++other) {
        const float theirs = part[(other << lane_bits) + in_group][0];
        top = theirs > top ? theirs : top;
      }
      sums.total = sums.positive = 0.0f;
#pragma unroll
      for (int e = 0; e < E; ++e) sums.all[e] = sums.over[e] = 0.0f;
      for (int other = 0; other < groups; ++other) {
        const int from = (other << lane_bits) + in_group;
        const float smaller = expf(part[from][0] - top);
        sums.total += smaller * part[from][1];
        sums.positive += smaller * part[from][2];
#pragma unroll
        for (int e = 0; e < E; ++e) {
          sums.all[e] += smaller * part[from][3 + e];
          sums.over[e] += smaller * part[from][3 + E + e];
        }
        sums.above = sums.above || signs[from][0];
        sums.below = sums.below || signs[from][1];
      }
      sums.top = top;
      finish_row(a, lane, first + g, head, sums);
    }
    __syncthreads();
  }
}

// Derivatives to targets, and what the columns need of each row; index row * heads + head.
struct TargetGrad {
  AttendRowsGrad b;

  DGB_HD void operator()(int64_t index) const {
    const AttendRows& a = b.in;
    const int64_t row = index / a.heads, head = index % a.heads;
    b.grad_target[index] = 0.0f;
    if (a.indptr[row] == a.indptr[row + 1]) return;
    const float* stats = a.stats + 3 * index;
    const bool mixed = stats[2] != kOneSign;
    const float* grad = b.grad + index * a.width;
    const float* out = a.out + index * a.width;
    const float* over = nullptr;
    if (mixed) over = a.positive + (static_cast<int64_t>(a.place[row]) * a.heads + head) * a.width;
    float whole = 0.0f, part = 0.0f;
    for (int j = 0; j < a.width; ++j) {
      whole += grad[j] * out[j];
      if (mixed) part += grad[j] * over[j];
    }
    float* entry = b.entry + 4 * index;
    entry[0] = a.target[index];
    entry[1] = stats[0];
    entry[2] = stats[1];
    entry[3] = whole;
    if (mixed) b.grad_target[index] = (1.0f - a.slope) * (part - stats[2] * whole);
  }
};

// The sum over the lanes of a group; all of them get it.
__device__ __forceinline__ float group_sum(float x, int lanes, unsigned members) {
  for (int distance = lanes >> 1; distance > 0; distance >>= 1) {
    x += __shfl_xor_sync(members, x, distance);
  }
  return x;
}

// Every step-th entry of a column from number `offset` on. Entry 0 is the column's own row where it
// has one; alone in it, its share is 1 whatever the scores.
template <int E, bool VECTOR>
__device__ void sum_column(const AttendRowsGrad& b, const Lane<E, VECTOR>& lane, int lanes,
                           unsigned members, int64_t column, int head, int64_t offset,
                           int64_t step, float& to_source, float (&to_value)[E]) {
  const AttendRows& a = b.in;
  const int64_t begin = b.receivers_ptr[column], count = b.receivers_ptr[column + 1] - begin;
  const bool has_row = column < a.rows;
  const bool alone = has_row && a.indptr[column] == a.indptr[column + 1];
  const int64_t entries = count + (has_row ? 1 : 0);
  const float source = __ldg(a.source + column * a.source_row + head);
  const int64_t pitch = static_cast<int64_t>(a.heads) * a.width;
  const float* grads = b.grad + head * a.width;
  float own[E];
  lane.load(a.values + column * a.values_row + head * a.width, own);
  to_source = 0.0f;
#pragma unroll
  for (int e = 0; e < E; ++e) to_value[e] = 0.0f;
  for (int64_t j = offset; j < entries; j += kInFlight * step) {
    float grad[kInFlight][E];
    int64_t row[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int64_t i = j + u * step;
      if (i >= entries) continue;
      row[u] = has_row && i == 0
                   ? column
                   : static_cast<int64_t>(__ldg(b.receivers + begin + i - (has_row ? 1 : 0)));
      lane.load(grads + row[u] * pitch, grad[u]);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int64_t i = j + u * step;
      if (i >= entries) continue;
      float share = 1.0f;
      if (!(alone && i == 0)) {
        float product = 0.0f;
#pragma unroll
        for (int e = 0; e < E; ++e) product += own[e] * grad[u][e];
        product = group_sum(product, lanes, members);
        const float* entry = b.entry + 4 * (row[u] * a.heads + head);
        const float raw = entry[0] + source;
        share = entry[2] * expf(leaky(raw, a.slope) - entry[1]);
        const float pull = share * (product - entry[3]);
        to_source += raw > 0.0f ? pull : a.slope * pull;
      }
#pragma unroll
      for (int e = 0; e < E; ++e) to_value[e] += share * grad[u][e];
    }
  }
}

template <int E, bool VECTOR>
__global__ void __launch_bounds__(kBlock) attend_columns(const AttendRowsGrad b, int lane_bits) {
  __shared__ bool heavy_column[kBlock];
  __shared__ float part[kBlock][E + 1];
  const AttendRows& a = b.in;
  const int lanes = 1 << lane_bits, groups = kBlock >> lane_bits;
  const int group = threadIdx.x >> lane_bits, in_group = threadIdx.x & (lanes - 1);
  const unsigned members = (lanes == 32 ? 0xFFFFFFFFu : (1u << lanes) - 1u)
                           << ((threadIdx.x & 31) / lanes * lanes);
  const int head = blockIdx.y;
  const Lane<E, VECTOR> lane(in_group, lanes, a.width);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * groups;
  const int64_t column = first + group;

  const auto finish = [&](int64_t at, float to_source, const float(&to_value)[E]) {
    lane.store(b.grad_values + (at * a.heads + head) * a.width, to_value, 1.0f);
    if (in_group == 0) b.grad_source[at * a.heads + head] = to_source;
  };
  bool heavy = false;
  float to_source, to_value[E];
  if (column < a.columns) {
    heavy = b.receivers_ptr[column + 1] - b.receivers_ptr[column] > kHeavyRow;
    if (!heavy) {
      sum_column(b, lane, lanes, members, column, head, 0, 1, to_source, to_value);
      finish(column, to_source, to_value);
    }
  }
  heavy_column[group] = heavy;
  if (!__syncthreads_or(heavy)) return;
  for (int g = 0; g < groups; ++g) {
    if (!heavy_column[g]) continue;
    sum_column(b, lane, lanes, members, first + g, head, group, groups, to_source, to_value);
    part[threadIdx.x][0] = to_source;
#pragma unroll
    for (int e = 0; e < E; ++e) part[threadIdx.x][1 + e] = to_value[e];
    __syncthreads();
    if (group == 0) {
      for (int other = 1; other < groups; ++other) {
        const int from = (other << lane_bits) + in_group;
        to_source += part[from][0];
#pragma unroll
        for (int e = 0; e < E; ++e) to_value[e] += part[from][1 + e];
      }
      finish(first + g, to_source, to_value);
    }
    __syncthreads();
  }
}

int lane_bits_for(int columns) {
  int bits = 0;
  while (bits < 5 && (1 << bits) < columns) ++bits;
  return bits;
}

dim3 grid_for(int64_t count, int lane_bits, int heads) {
  return dim3(static_cast<unsigned>(ceil_div(count, kBlock >> lane_bits)),
              static_cast<unsigned>(heads));
}

bool vectors(const AttendRows& a) {
  return a.width % 4 == 0 && a.values_row % 4 == 0 && aligned(a.values, 16);
}

}  // namespace

extern "C" {

int dgb_attend_rows_width() { return kMaxWidth; }

int dgb_attend_rows(const AttendRows* args, void* stream) {
  const AttendRows& a = *args;
  if (a.rows == 0 || a.heads == 0 || a.width == 0) return 0;
  if (vectors(a)) {
    const int bits = lane_bits_for(a.width / 4);
    attend_forward<4, true><<<grid_for(a.rows, bits, a.heads), kBlock, 0, as_stream(stream)>>>(
        a, bits);
    return launch_status();
  }
  const int bits = lane_bits_for(a.width);
  const dim3 grid = grid_for(a.rows, bits, a.heads);
  if (a.width <= 32) {
    attend_forward<1, false><<<grid, kBlock, 0, as_stream(stream)>>>(a, bits);
  } else if (a.width <= 64) {
    attend_forward<2, false><<<grid, kBlock, 0, as_stream(stream)>>>(a, bits);
  } else {
    attend_forward<4, false><<<grid, kBlock, 0, as_stream(stream)>>>(a, bits);
  }
  return launch_status();
}

int dgb_attend_rows_backward(const AttendRowsGrad* args, void* stream) {
  const AttendRows& a = args->in;
  if (a.columns == 0 || a.heads == 0 || a.width == 0) return 0;
  const int status = for_each(a.rows * a.heads, TargetGrad{*args}, stream);
  if (status != 0) return status;
  if (vectors(a) && aligned(args->grad, 16)) {
    const int bits = lane_bits_for(a.width / 4);
    const dim3 grid = grid_for(a.columns, bits, a.heads);
    attend_columns<4, true><<<grid, kBlock, 0, as_stream(stream)>>>(*args, bits);
    return launch_status();
  }
  const int bits = lane_bits_for(a.width);
  const dim3 grid = grid_for(a.columns, bits, a.heads);
  if (a.width <= 32) {
    attend_columns<1, false><<<grid, kBlock, 0, as_stream(stream)>>>(*args, bits);
  } else if (a.width <= 64) {
    attend_columns<2, false><<<grid, kBlock, 0, as_stream(stream)>>>(*args, bits);
  } else {
    attend_columns<4, false><<<grid, kBlock, 0, as_stream(stream)>>>(*args, bits);
  }
  return launch_status();
}

}  // extern "C"

}  // namespace dgbench
