// What the whole training steps share: the cut of the vertices, the loss, and Adam.
//
// A step is one call: forward, loss, backward and update. Parameters, their gradients and both
// moments lie flat, one tensor behind the other in the order that each step's header names.
// Blocks and shards depend on shapes only and shards are summed in order, so that results do not
// depend on the number of threads.
#pragma once

#include <cmath>

#include "common/check.hpp"
#include "scan/cpu_common.hpp"

namespace dgbench::steps {

using scan::Lanes;
using scan::load;
using scan::multiply;
using scan::Scratch;
using scan::splat;
using scan::store;
using scan::Vec;

constexpr int64_t kMaxShards = 16;
constexpr int64_t kMaxBlock = 48;
constexpr int64_t kFewRows = 18;             // of a block where there are few vertices
constexpr int64_t kTile = 6;                 // rows that a product takes at once
constexpr int64_t kBlockBytes = 768 << 10;   // of one block's record: well inside an L2 cache
constexpr double kFlopsPerThread = 2e6;
constexpr int64_t kLongestSum = 96;          // rows of one float sum: B stays in the first cache

template <class R>
int64_t padded(int64_t width) {
  return (width + Lanes<R>::count - 1) / Lanes<R>::count * Lanes<R>::count;
}

// Equal blocks of consecutive vertices, and consecutive blocks in shards.
struct Cut {
  int64_t vertices, block, blocks, shards;
  int team;

  Cut(int64_t n, int64_t bytes_per_row, double flops, int64_t threads) : vertices(n) {
    // Whole tiles of the products; small graphs in blocks enough for some threads.
    const int64_t most = n <= kMaxShards * kMaxBlock ? kFewRows : kMaxBlock;
    const int64_t fit = kBlockBytes / std::max<int64_t>(1, bytes_per_row);
    block = std::clamp<int64_t>(std::min(fit, most) / kTile * kTile, kTile, kMaxBlock);
    blocks = (n + block - 1) / block;
    shards = std::min(kMaxShards, blocks);
    const auto useful = int64_t(std::min(flops / kFlopsPerThread, 4096.0));
    team = int(std::clamp<int64_t>(std::min(threads, shards), 1, std::max<int64_t>(1, useful)));
  }

  int64_t first(int64_t b) const { return b * block; }
  int64_t rows(int64_t b) const { return std::min(block, vertices - b * block); }
};

// Calls body(block, scratch, sums) for all blocks and leaves the sums of all in `total` [size].
template <class R, class Body>
void sum_blocks(const Cut& c, int64_t scratch_size, int64_t size, R* total, Body&& body) {
  static thread_local Scratch<R> kept;
  R* sums = kept.get(std::max<int64_t>(1, c.shards * size));
  std::atomic<bool> failed{false};
#pragma omp parallel num_threads(c.team) if (c.team > 1)
  {
    static thread_local Scratch<R> own;
    R* memory = own.try_get(scratch_size + size);
    if (!memory) failed = true;
#pragma omp for schedule(dynamic, 1)
    for (int64_t s = 0; s < c.shards; ++s) {
      if (!memory) continue;
      R* into = sums + s * size;
      std::fill_n(into, size, R(0));
      R* part = memory + scratch_size;
      const int64_t first = s * c.blocks / c.shards, end = (s + 1) * c.blocks / c.shards;
      if (end - first == 1) {
        body(first, memory, into);
        continue;
      }
      for (int64_t b = first; b < end; ++b) {
        std::fill_n(part, size, R(0));  // short sums lose fewer digits than a long one
        body(b, memory, part);
        for (int64_t i = 0; i < size; ++i) into[i] += part[i];
      }
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < size; ++i) {
      R sum = 0;
      for (int64_t s = 0; s < c.shards; ++s) sum += sums[s * size + i];
      total[i] = sum;
    }
  }
  if (failed) throw std::bad_alloc();
}

// into[width of A, vectors] += A^T B over `rows` rows, in short sums; A is read by columns.
template <class R>
void add_products(int64_t width, int64_t vectors, const R* a, int64_t a_row, const R* b,
                  int64_t b_row, int64_t rows, R* into, int64_t pitch) {
  for (int64_t i = 0; i < rows; i += kLongestSum) {
    const int64_t k = std::min(kLongestSum, rows - i);
    multiply<R, true>(width, vectors, {a + i * a_row, a_row, b + i * b_row, b_row, k}, {}, into,
                      pitch, into, pitch);
  }
}

// out[columns, pitch], padded, from the transposed in[rows, row].
template <class R>
void transpose_in(const R* in, int64_t row, int64_t rows, int64_t columns, int64_t pitch, R* out) {
  std::fill_n(out, columns * pitch, R(0));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) out[j * pitch + i] = in[i * row + j];
  }
}

template <class R>
R dot(const R* a, const R* b, int64_t pitch) {
  Vec<R> sum{};
  for (int64_t j = 0; j < pitch; j += Lanes<R>::count) sum += load(a + j) * load(b + j);
  R total = 0;
  for (int j = 0; j < Lanes<R>::count; ++j) total += sum[j];
  return total;
}

// into += factor * row, all of whole vectors.
template <class R>
void add_scaled(R factor, const R* row, int64_t pitch, R* into) {
  for (int64_t j = 0; j < pitch; j += Lanes<R>::count) {
    store(into + j, load(into + j) + load(row + j) * factor);
  }
}

// Adam with decay added to the gradient, as torch.optim.Adam has it.
struct AdamSettings {
  int64_t step;  // of this update; the first is 1
  double rate, beta_1, beta_2, eps, decay;
};

template <class R>
void adam(R* parameters, const R* grads, R* first, R* second, int64_t count,
          const AdamSettings& s) {
  const R rate = R(s.rate / (1 - std::pow(s.beta_1, double(s.step))));
  const R root = R(std::sqrt(1 - std::pow(s.beta_2, double(s.step))));
  const R keep = R(s.beta_2), eps = R(s.eps), decay = R(s.decay);
  const R take_1 = R(1 - s.beta_1), take_2 = R(1 - s.beta_2);
  for (int64_t i = 0; i < count; ++i) {
    const R g = grads[i] + decay * parameters[i];
    first[i] += take_1 * (g - first[i]);
    second[i] = keep * second[i] + take_2 * g * g;
    parameters[i] -= rate * first[i] / (std::sqrt(second[i]) / root + eps);
  }
}

constexpr int64_t kMostHidden = 1 << 14;

inline void check_sizes(int64_t steps, int64_t vertices, int64_t features, int64_t hidden) {
  if (steps < 1 || vertices < 1 || features < 1) {
    reject("x [T, N, F] must be at least 1 in each size");
  }
  if (hidden < 1 || hidden > kMostHidden) {
    reject("hidden must be in 1.." + std::to_string(kMostHidden));
  }
}

// What every step gets: flat tensors of `count` numbers, and moments [2, count] where it updates.
template <class R>
struct Flat {
  R *parameters, *grads, *moments;
  int64_t count;
  AdamSettings settings;

  Flat(const Array<R>& p, const Array<R>& g, const Maybe<R>& m, std::size_t expected,
       const AdamSettings& s)
      : parameters(p.data()), grads(g.data()), moments(m ? m->data() : nullptr),
        count(int64_t(expected)), settings(s) {
    check_size(p, expected, "parameters");
    check_size(g, expected, "grads");
    check_optional(m, 2 * expected, "moments");
    if (m && s.step < 1) reject("step is " + std::to_string(s.step) + ", the first is 1");
  }

  void update() const {
    if (moments) adam(parameters, grads, moments, moments + count, count, settings);
  }
};

}  // namespace dgbench::steps
