// Scaled dot-product attention inside packed sequences, forward and backward:
//
//   packed_attention_forward(sequence int32[S, 3], first, wanted, q, k, v [T, N, H], heads, causal,
//                            out, threads)
//   packed_attention_backward(..., grad, stats, grad_q, grad_k, grad_v, threads)
//
// A sequence of L steps of which m are wanted costs m L, whatever else stands in its row. Its keys
// and values are copied to dense, padded rows once; then some queries at a time: scores for all
// keys, softmax, sums, each a small dense product in cache. The backward pass makes the scores
// again from q and k, so the forward pass keeps nothing (a device needs `stats`, here unread). A sequence has one owner, so the number of
// threads does not show.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <new>

#include "attention/cpu_vector_exp.hpp"
#include "attention/functors.hpp"
#include "common/check.hpp"
#include "scan/cpu_common.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using scan::load;
using scan::multiply;
using scan::splat;
using scan::store;
using V = scan::Vec<float>;

constexpr std::int64_t kLanes = scan::Lanes<float>::count;
constexpr std::int64_t kQueries = 48;          // at a time, fewer where rows of scores are long
constexpr std::int64_t kScores = 48 << 10;     // floats: with their derivatives within L2
constexpr std::int64_t kSequences = 32;        // that a thread takes at a time
constexpr std::int64_t kSerialPairs = 1 << 12;

std::int64_t padded(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Sizes and dense copies of one sequence and head.
struct ThreadScratch {
  std::int64_t lp = 0, dp = 0, tile = 0;
  float *keys_t, *values, *values_t, *keys, *to_keys, *to_values;  // by key
  float *queries, *grads, *sums, *scores, *pulls;                  // by query
  float* hidden;  // [lp]: 0 for keys, minus infinity behind them
  scan::Scratch<float> memory;

  bool fit(std::int64_t length, std::int64_t width, std::int64_t queries_wanted) {
    lp = padded(length);
    dp = padded(width);
    tile = std::clamp<std::int64_t>(kScores / lp / 6 * 6, 6, kQueries);
    tile = std::min(tile, queries_wanted);
    const std::int64_t by_key = std::max(lp * dp, lp * padded(width));
    float* at = memory.try_get(6 * by_key + tile * (3 * dp + 2 * lp) + lp);
    if (!at) return false;
    for (float** part : {&keys_t, &values, &values_t, &keys, &to_keys, &to_values}) {
      *part = at;
      at += by_key;
    }
    for (float** part : {&queries, &grads, &sums}) {
      *part = at;
      at += tile * dp;
    }
    scores = at;
    pulls = at + tile * lp;
    hidden = pulls + tile * lp;
    for (std::int64_t j = 0; j < lp; ++j) {
      hidden[j] = j < length ? 0.0f : -std::numeric_limits<float>::infinity();
    }
    return true;
  }
};

// One sequence: where its steps lie.
struct Sequence {
  std::int64_t row, begin, length;
  const std::int32_t* wanted;
  std::int64_t queries;

  Sequence(const PackedAttention& a, std::int64_t s)
      : row(a.sequence[3 * s]), begin(a.sequence[3 * s + 1]), length(a.sequence[3 * s + 2]),
        wanted(a.wanted + a.first[s]), queries(a.first[s + 1] - a.first[s]) {}

  const float* at(const StepRows& x, std::int64_t i) const {
    return x.data + (begin + i) * x.step + row * x.row;
  }
  float* at(const PackedAttention& a, float* x, std::int64_t i) const {
    return x + ((begin + i) * a.rows + row) * a.heads * a.width;
  }
};

// dp floats of a row of `width`, zeros behind it.
inline void copy_row(const float* from, std::int64_t width, std::int64_t dp, float scale,
                     float* to) {
  std::int64_t j = 0;
  for (; j + kLanes <= width; j += kLanes) store(to + j, load(from + j) * scale);
  if (j == dp) return;
  for (; j < width; ++j) to[j] = from[j] * scale;
  for (; j < dp; ++j) to[j] = 0.0f;
}

inline void scaled_out(const float* from, std::int64_t width, float scale, float* to) {
  std::int64_t j = 0;
  for (; j + kLanes <= width; j += kLanes) store(to + j, load(from + j) * scale);
  for (; j < width; ++j) to[j] = from[j] * scale;
}

// Columns [at, at + width) of every step as dense rows, or as columns of a [width, lp] matrix.
void gather(const Sequence& s, const StepRows& x, std::int64_t at, std::int64_t width,
            const ThreadScratch& r, float* rows, float* columns) {
  for (std::int64_t i = 0; i < s.length; ++i) {
    const float* from = s.at(x, i) + at;
    if (rows) copy_row(from, width, r.dp, 1.0f, rows + i * r.dp);
    if (columns) {
      for (std::int64_t j = 0; j < width; ++j) columns[j * r.lp + i] = from[j];
    }
  }
  if (!columns) return;
  for (std::int64_t j = 0; j < width; ++j) {
    for (std::int64_t i = s.length; i < r.lp; ++i) columns[j * r.lp + i] = 0.0f;
  }
}

// Scores of `count` queries from number `from` on become shares but for the factor, which is given
// back: scores[i] * factor[i] adds up to 1. Returns how many keys they see, padded.
std::int64_t shares(const PackedAttention& a, const Sequence& s, std::int64_t from,
                    std::int64_t count, const ThreadScratch& r, float* factor) {
  const std::int64_t last = s.wanted[from + count - 1];
  const std::int64_t seen = a.causal ? std::min(r.lp, padded(last + 1)) : r.lp;
  multiply<float>(count, seen / kLanes, {r.queries, r.dp, r.keys_t, r.lp, a.width}, {}, r.hidden,
                  0, r.scores, r.lp);
  for (std::int64_t i = 0; i < count; ++i) {
    float* row = r.scores + i * r.lp;
    if (a.causal) {
      for (std::int64_t j = s.wanted[from + i] + 1; j < seen; ++j) {
        row[j] = -std::numeric_limits<float>::infinity();
      }
    }
    V top = load(row);
    for (std::int64_t j = kLanes; j < seen; j += kLanes) {
      const V x = load(row + j);
      top = x > top ? x : top;
    }
    float largest = top[0];
    for (int l = 1; l < kLanes; ++l) largest = top[l] > largest ? top[l] : largest;
    const V shift = splat(largest);
    V sum{};
    for (std::int64_t j = 0; j < seen; j += kLanes) {
      const V x = exp_below_zero(load(row + j) - shift);
      store(row + j, x);
      sum += x;
    }
    float total = 0.0f;
    for (int l = 0; l < kLanes; ++l) total += sum[l];
    factor[i] = 1.0f / total;
  }
  return seen;
}

void load_queries(const PackedAttention& a, const Sequence& s, std::int64_t from,
                  std::int64_t count, std::int64_t column, const ThreadScratch& r) {
  for (std::int64_t i = 0; i < count; ++i) {
    copy_row(s.at(a.q, s.wanted[from + i]) + column, a.width, r.dp, a.scale, r.queries + i * r.dp);
  }
}

void forward(const PackedAttention& a, const Sequence& s, const ThreadScratch& r) {
  float factor[kQueries];
  for (int h = 0; h < a.heads; ++h) {
    const std::int64_t column = std::int64_t(h) * a.width;
    gather(s, a.k, column, a.width, r, nullptr, r.keys_t);
    gather(s, a.v, column, a.width, r, r.values, nullptr);
    for (std::int64_t from = 0; from < s.queries; from += r.tile) {
      const std::int64_t count = std::min(r.tile, s.queries - from);
      load_queries(a, s, from, count, column, r);
      const std::int64_t seen = shares(a, s, from, count, r, factor);
      multiply<float>(count, r.dp / kLanes,
                      {r.scores, r.lp, r.values, r.dp, std::min(seen, s.length)}, {}, nullptr, 0,
                      r.sums, r.dp);
      for (std::int64_t i = 0; i < count; ++i) {
        scaled_out(r.sums + i * r.dp, a.width, factor[i],
                   s.at(a, a.out, s.wanted[from + i]) + column);
      }
    }
  }
}

void backward(const PackedAttention& a, const Sequence& s, const ThreadScratch& r) {
  float factor[kQueries];
  for (int h = 0; h < a.heads; ++h) {
    const std::int64_t column = std::int64_t(h) * a.width;
    gather(s, a.k, column, a.width, r, r.keys, r.keys_t);
    gather(s, a.v, column, a.width, r, nullptr, r.values_t);
    std::fill_n(r.to_keys, s.length * r.dp, 0.0f);
    std::fill_n(r.to_values, s.length * r.dp, 0.0f);
    for (std::int64_t from = 0; from < s.queries; from += r.tile) {
      const std::int64_t count = std::min(r.tile, s.queries - from);
      load_queries(a, s, from, count, column, r);
      for (std::int64_t i = 0; i < count; ++i) {
        copy_row(s.at(a.grad, s.wanted[from + i]) + column, a.width, r.dp, 1.0f,
                 r.grads + i * r.dp);
      }
      const std::int64_t seen = shares(a, s, from, count, r, factor);
      const std::int64_t keys = std::min(seen, s.length);
      multiply<float>(count, seen / kLanes, {r.grads, r.dp, r.values_t, r.lp, a.width}, {},
                      nullptr, 0, r.pulls, r.lp);
      for (std::int64_t i = 0; i < count; ++i) {
        float *share = r.scores + i * r.lp, *pull = r.pulls + i * r.lp;
        V sum{};
        for (std::int64_t j = 0; j < seen; j += kLanes) {
          const V p = load(share + j) * factor[i];
          store(share + j, p);
          sum += p * load(pull + j);
        }
        float mean = 0.0f;
        for (int l = 0; l < kLanes; ++l) mean += sum[l];
        for (std::int64_t j = 0; j < seen; j += kLanes) {
          store(pull + j, load(share + j) * (load(pull + j) - mean));
        }
      }
      const std::int64_t wide = r.dp / kLanes;
      multiply<float>(count, wide, {r.pulls, r.lp, r.keys, r.dp, keys}, {}, nullptr, 0, r.sums,
                      r.dp);
      for (std::int64_t i = 0; i < count; ++i) {
        scaled_out(r.sums + i * r.dp, a.width, a.scale,
                   s.at(a, a.grad_q, s.wanted[from + i]) + column);
      }
      // The queries are scaled already.
      multiply<float, true>(keys, wide, {r.pulls, r.lp, r.queries, r.dp, count}, {}, r.to_keys,
                            r.dp, r.to_keys, r.dp);
      multiply<float, true>(keys, wide, {r.scores, r.lp, r.grads, r.dp, count}, {}, r.to_values,
                            r.dp, r.to_values, r.dp);
    }
    for (std::int64_t i = 0; i < s.length; ++i) {
      scaled_out(r.to_keys + i * r.dp, a.width, 1.0f, s.at(a, a.grad_k, i) + column);
      scaled_out(r.to_values + i * r.dp, a.width, 1.0f, s.at(a, a.grad_v, i) + column);
    }
  }
}

// A step alone sees only itself: its share is 1 whatever the scores, and they get no derivative.
bool alone(const PackedAttention& a, const Sequence& s) {
  if (s.length != 1) return false;
  const std::int64_t width = std::int64_t(a.heads) * a.width;
  if (a.out) {
    if (s.queries) std::copy_n(s.at(a.v, 0), width, s.at(a, a.out, 0));
    return true;
  }
  std::fill_n(s.at(a, a.grad_q, 0), width, 0.0f);
  std::fill_n(s.at(a, a.grad_k, 0), width, 0.0f);
  if (s.queries) {
    std::copy_n(s.at(a.grad, 0), width, s.at(a, a.grad_v, 0));
  } else {
    std::fill_n(s.at(a, a.grad_v, 0), width, 0.0f);
  }
  return true;
}

void run(const PackedAttention& a, int threads) {
  std::atomic<bool> failed{false};
  const bool worth = a.first[a.sequences] * a.heads * a.width > kSerialPairs && threads > 1;
#pragma omp parallel num_threads(std::max(1, threads)) if (worth)
  {
    static thread_local ThreadScratch scratch;
#pragma omp for schedule(dynamic, kSequences)
    for (std::int64_t i = 0; i < a.sequences; ++i) {
      const Sequence s(a, i);
      if (alone(a, s) || (a.out && s.queries == 0)) continue;
      if (!scratch.fit(s.length, a.width, s.queries)) {
        failed = true;
      } else if (a.out) {
        forward(a, s, scratch);
      } else {
        backward(a, s, scratch);
      }
    }
  }
  if (failed) throw std::bad_alloc();
}

using Steps = nb::ndarray<const float, nb::ndim<3>, nb::device::cpu>;
using Out = nb::ndarray<float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

StepRows step_rows(const Steps& x, const Steps& like, const char* name) {
  for (int d = 0; d < 3; ++d) {
    if (x.shape(d) != like.shape(d)) reject(std::string(name) + " has another shape than q");
  }
  if (x.shape(2) > 1 && x.stride(2) != 1) reject(std::string(name) + " must have dense rows");
  return {x.data(), x.stride(0), x.stride(1)};
}

float* dense(const Out& x, const Steps& like, const char* name) {
  check_size(x, like.size(), name);
  return x.data();
}

PackedAttention arguments(const Array<const std::int32_t>& sequence,
                          const Array<const std::int64_t>& first,
                          const Array<const std::int32_t>& wanted, const Steps& q, const Steps& k,
                          const Steps& v, std::int64_t heads, bool causal) {
  PackedAttention a{};
  if (first.size() == 0) reject("first is empty, expected sequences + 1 offsets");
  a.sequences = static_cast<std::int64_t>(first.size()) - 1;
  check_size(sequence, 3 * static_cast<std::size_t>(a.sequences), "sequence");
  if (heads < 1 || q.shape(2) % heads != 0) reject("heads must divide the width of q");
  a.sequence = sequence.data();
  a.first = first.data();
  a.wanted = wanted.data();
  a.rows = static_cast<std::int64_t>(q.shape(1));
  a.heads = static_cast<std::int32_t>(heads);
  a.width = static_cast<std::int32_t>(q.shape(2) / heads);
  a.causal = causal;
  a.scale = 1.0f / std::sqrt(static_cast<float>(std::max(1, a.width)));
  a.q = step_rows(q, q, "q");
  a.k = step_rows(k, q, "k");
  a.v = step_rows(v, q, "v");
  check_offsets(a.first, first.size(), wanted.size(), "first");
  const auto steps = static_cast<std::int64_t>(q.shape(0));
  for (std::int64_t s = 0; s < a.sequences; ++s) {
    const std::int32_t *at = a.sequence + 3 * s, *w = a.wanted;
    bool good = at[0] >= 0 && at[0] < a.rows && at[1] >= 0 && at[2] >= 1 &&
                std::int64_t(at[1]) + at[2] <= steps;
    for (std::int64_t i = a.first[s]; good && i < a.first[s + 1]; ++i) {
      good = w[i] >= 0 && w[i] < at[2] && (i == a.first[s] || w[i - 1] < w[i]);
    }
    if (!good) reject("sequence " + std::to_string(s) + " does not lie inside the steps");
  }
  return a;
}

void packed_attention_forward(Array<const std::int32_t> sequence, Array<const std::int64_t> first,
                              Array<const std::int32_t> wanted, Steps q, Steps k, Steps v,
                              std::int64_t heads, bool causal, Out out, int threads) {
  PackedAttention a = arguments(sequence, first, wanted, q, k, v, heads, causal);
  a.out = dense(out, q, "out");
  if (a.width == 0) return;
  nb::gil_scoped_release release;
  run(a, threads);
}

void packed_attention_backward(Array<const std::int32_t> sequence, Array<const std::int64_t> first,
                               Array<const std::int32_t> wanted, Steps q, Steps k, Steps v,
                               std::int64_t heads, bool causal, Steps grad, Maybe<float> /*stats*/,
                               Out grad_q, Out grad_k, Out grad_v, int threads) {
  PackedAttention a = arguments(sequence, first, wanted, q, k, v, heads, causal);
  a.grad = step_rows(grad, q, "grad");
  a.grad_q = dense(grad_q, q, "grad_q");
  a.grad_k = dense(grad_k, q, "grad_k");
  a.grad_v = dense(grad_v, q, "grad_v");
  if (a.width == 0) return;
  nb::gil_scoped_release release;
  run(a, threads);
}

}  // namespace

void bind_packed_attention(nb::module_& m) {
  m.def("packed_attention_forward", &packed_attention_forward, "sequence"_a.noconvert(),
        "first"_a.noconvert(), "wanted"_a.noconvert(), "q"_a.noconvert(), "k"_a.noconvert(),
        "v"_a.noconvert(), "heads"_a, "causal"_a, "out"_a.noconvert(), "threads"_a);
  m.def("packed_attention_backward", &packed_attention_backward, "sequence"_a.noconvert(),
        "first"_a.noconvert(), "wanted"_a.noconvert(), "q"_a.noconvert(), "k"_a.noconvert(),
        "v"_a.noconvert(), "heads"_a, "causal"_a, "grad"_a.noconvert(),
        "stats"_a.noconvert().none(), "grad_q"_a.noconvert(), "grad_k"_a.noconvert(),
        "grad_v"_a.noconvert(), "threads"_a);
}

}  // namespace dgbench
