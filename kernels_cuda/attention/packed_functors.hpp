// Attention inside packed sequences, one query or one key per index: the device's form. Neighbouring
// indices are steps of one sequence, so they read the same keys at the same time, which a device
// broadcasts; nothing is exchanged between indices and every result has one writer. A query keeps a
// running maximum and rescales what it summed when the maximum grows.
//
// W is the width of a head rounded up, so that rows fit registers; FOURS says that all rows can be
// read four numbers at a time.
#pragma once

#include <cmath>
#include <cstdint>

#include "attention/functors.hpp"
#include "common/host_device.hpp"
#include "common/search.hpp"

namespace dgbench {

struct alignas(16) FourFloats {
  float x, y, z, w;
};

template <int W, bool FOURS>
DGB_HD void load_row(const float* from, int width, float (&to)[W]) {
#if DGB_ON_DEVICE
#pragma unroll
#endif
  for (int c = 0; c < W; c += 4) {
    if (FOURS) {
      const FourFloats some =
          c < width ? *reinterpret_cast<const FourFloats*>(from + c) : FourFloats{0, 0, 0, 0};
      to[c] = some.x;
      to[c + 1] = some.y;
      to[c + 2] = some.z;
      to[c + 3] = some.w;
    } else {
      for (int e = 0; e < 4; ++e) to[c + e] = c + e < width ? from[c + e] : 0.0f;
    }
  }
}

// The product of a row in registers with one in memory.
template <int W, bool FOURS>
DGB_HD float dot_row(const float (&a)[W], const float* from, int width) {
  float row[W];
  load_row<W, FOURS>(from, width, row);
  float sum[4] = {};
#if DGB_ON_DEVICE
#pragma unroll
#endif
  for (int c = 0; c < W; ++c) sum[c % 4] += a[c] * row[c];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <int W, bool FOURS>
DGB_HD void add_row(float weight, const float* from, int width, float (&to)[W]) {
  float row[W];
  load_row<W, FOURS>(from, width, row);
#if DGB_ON_DEVICE
#pragma unroll
#endif
  for (int c = 0; c < W; ++c) to[c] += weight * row[c];
}

template <int W>
DGB_HD void store_row(const float (&from)[W], float factor, int width, float* to) {
#if DGB_ON_DEVICE
#pragma unroll
#endif
  for (int c = 0; c < W; ++c) {
    if (c < width) to[c] = from[c] * factor;
  }
}

DGB_HD const float* step_of(const StepRows& x, std::int64_t step, std::int64_t row) {
  return x.data + step * x.step + row * x.row;
}

// Index w * heads + h: wanted step number w, head h.
struct Query {
  std::int64_t row, begin;
  std::int32_t step, keys;  // its own place in the sequence, and how many keys it sees
  std::int64_t column;      // of the head

  DGB_HD Query(const PackedAttention& a, std::int64_t index) {
    const std::int64_t number = index / a.heads;
    const std::int64_t s = upper_bound(a.first, a.sequences + 1, number) - 1;
    row = a.sequence[3 * s];
    begin = a.sequence[3 * s + 1];
    step = a.wanted[number];
    keys = a.causal ? step + 1 : a.sequence[3 * s + 2];
    column = (index % a.heads) * a.width;
  }
  DGB_HD std::int64_t dense(const PackedAttention& a) const {
    return ((begin + step) * a.rows + row) * a.heads * a.width + column;
  }
};

template <int W, bool FOURS>
struct PackedForward {
  PackedAttention a;

  DGB_HD void operator()(std::int64_t index) const {
    const Query at(a, index);
    const float* keys = step_of(a.k, at.begin, at.row) + at.column;
    const float* values = step_of(a.v, at.begin, at.row) + at.column;
    float q[W], sum[W] = {};
    load_row<W, FOURS>(step_of(a.q, at.begin + at.step, at.row) + at.column, a.width, q);
    float top = -INFINITY, total = 0.0f;
    for (std::int32_t j = 0; j < at.keys; ++j) {
      const float score = a.scale * dot_row<W, FOURS>(q, keys + j * a.k.step, a.width);
      if (score > top) {
        const float smaller = expf(top - score);
        total *= smaller;
#if DGB_ON_DEVICE
#pragma unroll
#endif
        for (int c = 0; c < W; ++c) sum[c] *= smaller;
        top = score;
      }
      const float share = expf(score - top);
      total += share;
      add_row<W, FOURS>(share, values + j * a.v.step, a.width, sum);
    }
    store_row<W>(sum, 1.0f / total, a.width, a.out + at.dense(a));
  }
};

// Derivatives to queries; leaves largest score, 1 / sum and mean pull of a query for the keys.
template <int W, bool FOURS>
struct PackedQueryGrad {
  PackedAttention a;
  float* stats;  // [wanted, heads, 3]

  DGB_HD void operator()(std::int64_t index) const {
    const Query at(a, index);
    const float* keys = step_of(a.k, at.begin, at.row) + at.column;
    const float* values = step_of(a.v, at.begin, at.row) + at.column;
    float q[W], g[W], sum[W] = {};
    load_row<W, FOURS>(step_of(a.q, at.begin + at.step, at.row) + at.column, a.width, q);
    load_row<W, FOURS>(step_of(a.grad, at.begin + at.step, at.row) + at.column, a.width, g);
    float top = -INFINITY, total = 0.0f, pulled = 0.0f;
    for (std::int32_t j = 0; j < at.keys; ++j) {
      const float score = a.scale * dot_row<W, FOURS>(q, keys + j * a.k.step, a.width);
      if (score > top) {
        const float smaller = expf(top - score);
        total *= smaller;
        pulled *= smaller;
        top = score;
      }
      const float share = expf(score - top);
      total += share;
      pulled += share * dot_row<W, FOURS>(g, values + j * a.v.step, a.width);
    }
    const float factor = 1.0f / total, mean = pulled * factor;
    for (std::int32_t j = 0; j < at.keys; ++j) {
      const float* key = keys + j * a.k.step;
      const float share =
          factor * expf(a.scale * dot_row<W, FOURS>(q, key, a.width) - top);
      const float pull = dot_row<W, FOURS>(g, values + j * a.v.step, a.width) - mean;
      add_row<W, FOURS>(share * pull, key, a.width, sum);
    }
    store_row<W>(sum, a.scale, a.width, a.grad_q + at.dense(a));
    stats[3 * index] = top;
    stats[3 * index + 1] = factor;
    stats[3 * index + 2] = mean;
  }
};

// Derivatives to keys and values; index (row * steps + step) * heads + h over all steps.
template <int W, bool FOURS>
struct PackedKeyGrad {
  PackedAttention a;
  const float* stats;
  std::int64_t steps;

  DGB_HD void operator()(std::int64_t index) const {
    const std::int64_t place = index / a.heads, h = index % a.heads;
    const std::int64_t row = place / steps, step = place % steps;
    // The last sequence that begins at this place or before it; they stand by row, then by step.
    std::int64_t low = 0, high = a.sequences;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      const std::int32_t* other = a.sequence + 3 * middle;
      if (other[0] < row || (other[0] == row && other[1] <= step)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const std::int64_t s = low - 1;
    float to_key[W] = {}, to_value[W] = {};
    const std::int64_t column = h * a.width;
    if (s >= 0 && a.sequence[3 * s] == row &&
        step < a.sequence[3 * s + 1] + a.sequence[3 * s + 2]) {
      const std::int64_t begin = a.sequence[3 * s + 1];
      float key[W], value[W];
      load_row<W, FOURS>(step_of(a.k, step, row) + column, a.width, key);
      load_row<W, FOURS>(step_of(a.v, step, row) + column, a.width, value);
      for (std::int64_t w = a.first[s]; w < a.first[s + 1]; ++w) {
        const std::int64_t asking = begin + a.wanted[w];
        if (a.causal && asking < step) continue;
        const float* of = stats + 3 * (w * a.heads + h);
        const float* q = step_of(a.q, asking, row) + column;
        const float* g = step_of(a.grad, asking, row) + column;
        const float share =
            of[1] * expf(a.scale * dot_row<W, FOURS>(key, q, a.width) - of[0]);
        const float pull = dot_row<W, FOURS>(value, g, a.width) - of[2];
        add_row<W, FOURS>(share, g, a.width, to_value);
        add_row<W, FOURS>(share * pull, q, a.width, to_key);
      }
    }
    const std::int64_t at = (step * a.rows + row) * a.heads * a.width + column;
    store_row<W>(to_key, a.scale, a.width, a.grad_k + at);
    store_row<W>(to_value, 1.0f, a.width, a.grad_v + at);
  }
};

}  // namespace dgbench
