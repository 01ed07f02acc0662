// What the dense layers share: rows in blocks and shards, products and gradients of a block, and a
// layer with the batch norm behind it. Pointers to dense arrays of one type R, float32 or float64.
#pragma once

#include <cmath>
#include <type_traits>

#include "scan/cpu_common.hpp"

namespace dgbench::layers {

using scan::Lanes;
using scan::load;
using scan::multiply;
using scan::Scratch;
using scan::splat;
using scan::store;
using scan::Vec;

constexpr int64_t kBlock = 48;    // rows, as in the scans
constexpr int64_t kShards = 64;   // of all rows, shared out evenly among the T weights
constexpr double kFlopsPerThread = 2e6;

template <class R>
int64_t padded(int64_t width) {
  return (width + Lanes<R>::count - 1) / Lanes<R>::count * Lanes<R>::count;
}

template <class R>
Vec<R> relu(Vec<R> x) {
  return x < Vec<R>{} ? Vec<R>{} : x;  // NaN stays
}

// T weights for N rows each, cut into blocks and shards.
template <class R>
struct Layer {
  int64_t weights, rows, inputs, width;
  int64_t fp, hp;                   // padded rows of F and H
  int64_t blocks, shards;           // of one weight
  int team;

  Layer(int64_t t, int64_t n, int64_t f, int64_t h, int64_t threads)
      : weights(t), rows(n), inputs(f), width(h), fp(padded<R>(f)), hp(padded<R>(h)) {
    blocks = (n + kBlock - 1) / kBlock;
    shards = std::min(blocks, std::max<int64_t>(1, kShards / std::max<int64_t>(1, t)));
    const double flops = 2.0 * double(t * n) * double((f + 16) * hp);
    const auto useful = int64_t(std::min(flops / kFlopsPerThread, 4096.0));
    team = int(std::clamp<int64_t>(std::min(threads, t * shards), 1, std::max<int64_t>(1, useful)));
  }

  bool aligned() const { return hp == width; }
  int64_t units() const { return weights * shards; }
  int64_t sums() const { return (inputs + 1) * hp; }

  // Runs body(t, first row within t, rows, scratch) for every block of unit u.
  template <class Body>
  void each_block(int64_t u, Body&& body) const {
    const int64_t t = u / shards, s = u % shards;
    for (int64_t b = s * blocks / shards; b < (s + 1) * blocks / shards; ++b) {
      body(t, b * kBlock, std::min(kBlock, rows - b * kBlock));
    }
  }

  // Runs body(u, scratch) for all units on the team; scratch is kept for the next call.
  template <class Body>
  void each_unit(int64_t scratch_size, Body&& body) const {
    std::atomic<bool> failed{false};
#pragma omp parallel num_threads(team) if (team > 1)
    {
      static thread_local Scratch<R> scratch;
      R* memory = scratch.try_get(scratch_size);
      if (!memory) failed = true;
#pragma omp for schedule(static)
      for (int64_t u = 0; u < units(); ++u) {
        if (memory) body(u, memory);
      }
    }
    if (failed) throw std::bad_alloc();
  }

  // [T, F, H] -> [T, F, hp], and transposed [T, hp, fp].
  void pad(const R* w, R* out) const {
    scan::copy_in(w, weights * inputs, width, hp, out);
  }
  void transpose(const R* w, R* out) const {
    std::fill_n(out, weights * hp * fp, R(0));
    for (int64_t t = 0; t < weights; ++t) {
      for (int64_t i = 0; i < inputs; ++i) {
        for (int64_t j = 0; j < width; ++j) {
          out[(t * hp + j) * fp + i] = w[(t * inputs + i) * width + j];
        }
      }
    }
  }
};

// Rows of `in` as padded rows: themselves where they are whole vectors, else a copy.
template <class R>
const R* padded_rows(const R* in, int64_t row, int64_t rows, int64_t width, int64_t pitch, R* copy,
                     int64_t* step) {
  if (width == pitch) {
    *step = row;
    return in;
  }
  for (int64_t i = 0; i < rows; ++i) scan::copy_in(in + i * row, 1, width, pitch, copy + i * pitch);
  *step = pitch;
  return copy;
}

// grad_a = g w^T and sums += (a^T g, column sums of g) for one block; g is [rows, hp].
template <class R>
void block_gradients(const Layer<R>& l, const R* g, const R* a, int64_t rows, const R* transposed,
                     R* grad_a, R* spare, R* sums) {
  multiply<R, true>(l.inputs, l.hp / Lanes<R>::count, {a, l.inputs, g, l.hp, rows}, {}, sums, l.hp,
                    sums, l.hp);
  scan::add_column_sums(g, rows, l.hp, sums + l.inputs * l.hp);
  if (!grad_a) return;
  R* out = l.fp == l.inputs ? grad_a : spare;
  multiply<R>(rows, l.fp / Lanes<R>::count, {g, l.hp, transposed, l.fp, l.hp}, {}, nullptr, 0, out,
              l.fp);
  if (out == spare) scan::copy_out(spare, rows, l.inputs, l.fp, grad_a, l.inputs);
}

// Sums the shards of every weight, in order, into the first of them.
template <class R>
void join_shards(const Layer<R>& l, R* sums) {
  for (int64_t t = 0; t < l.weights; ++t) {
    R* total = sums + t * l.shards * l.sums();
    for (int64_t s = 1; s < l.shards; ++s) {
      for (int64_t i = 0; i < l.sums(); ++i) total[i] += total[s * l.sums() + i];
    }
  }
}

// Mean and variance of the columns, joined from block to block and shard to shard in float64
// (Chan, Golub, LeVeque 1983).
struct Moments {
  double count = 0;
  std::vector<double> mean, square;
  explicit Moments(int64_t width) : mean(std::size_t(width)), square(std::size_t(width)) {}

  template <class Mean, class Square>
  void join(double n, const Mean* m, const Square* s) {
    const double all = count + n;
    if (n == 0) return;
    for (std::size_t j = 0; j < mean.size(); ++j) {
      const double gap = double(m[j]) - mean[j];
      mean[j] += gap * (n / all);
      square[j] += double(s[j]) + gap * gap * (count * n / all);
    }
    count = all;
  }
};

// Column means and squared distances from them, of one block of padded rows.
template <class R>
void block_moments(const R* in, int64_t rows, int64_t pitch, R* mean, R* square) {
  for (int64_t j = 0; j < pitch; j += Lanes<R>::count) {
    Vec<R> sum{}, squares{};
    for (int64_t i = 0; i < rows; ++i) sum += load(in + i * pitch + j);
    const Vec<R> middle = sum / R(rows);
    for (int64_t i = 0; i < rows; ++i) {
      const Vec<R> gap = load(in + i * pitch + j) - middle;
      squares += gap * gap;
    }
    store(mean + j, middle);
    store(square + j, squares);
  }
}

// A float64 row as two padded rows of R whose sum it is, so that h - mean keeps its digits.
template <class R>
void split_row(const double* in, int64_t width, int64_t pitch, R* high, R* low) {
  std::fill_n(high, pitch, R(0));
  std::fill_n(low, pitch, R(0));
  for (int64_t j = 0; j < width; ++j) {
    high[j] = R(in[j]);
    low[j] = R(in[j] - double(high[j]));
  }
}

struct InOrder {
  int64_t operator()(int64_t i) const { return i; }
};

// Rows first .. first + rows of `in` as padded rows, from where they are placed.
template <class R, class Place>
const R* placed_rows(const Layer<R>& l, const R* in, int64_t row, int64_t first, int64_t rows,
                     R* copy, int64_t* step, Place&& place) {
  if constexpr (std::is_same_v<std::decay_t<Place>, InOrder>) {
    return padded_rows(in + first * row, row, rows, l.width, l.hp, copy, step);
  }
  for (int64_t i = 0; i < rows; ++i) {
    scan::copy_in(in + place(first + i) * row, 1, l.width, l.hp, copy + i * l.hp);
  }
  *step = l.hp;
  return copy;
}

// hidden = relu(a w + bias), y = hidden normalised over all rows, times gain plus shift; row i of y
// goes to place(i). stats [2, H]: mean and 1 / sqrt(var + eps).
template <class R, class Place>
void dense_norm_rows(const Layer<R>& l, const R* a, const R* w, const R* bias, const R* gain,
                     const R* shift, double eps, R* hidden, R* y, double* stats, Place&& place) {
  static thread_local Scratch<R> kept;
  R* weights = kept.get(1 + (l.inputs + 5) * l.hp);
  R* start = weights + l.inputs * l.hp;
  l.pad(w, weights);
  scan::copy_in(bias, 1, l.width, l.hp, start);
  std::vector<Moments> parts(std::size_t(l.shards), Moments(l.width));
  l.each_unit((kBlock + 2) * l.hp, [&](int64_t u, R* scratch) {
    R* mean = scratch + kBlock * l.hp;
    l.each_block(u, [&](int64_t, int64_t first, int64_t rows) {
      R* out = hidden + first * l.width;
      R* to = l.aligned() ? out : scratch;
      multiply<R>(rows, l.hp / Lanes<R>::count,
                  {a + first * l.inputs, l.inputs, weights, l.hp, l.inputs}, {}, start, 0,
                  to, l.hp);
      for (int64_t i = 0; i < rows * l.hp; i += Lanes<R>::count) {
        store(to + i, relu<R>(load(to + i)));
      }
      block_moments(to, rows, l.hp, mean, mean + l.hp);
      parts[std::size_t(u)].join(double(rows), mean, mean + l.hp);
      if (!l.aligned()) scan::copy_out(to, rows, l.width, l.hp, out, l.width);
    });
  });
  Moments all(l.width);
  for (const Moments& part : parts) all.join(part.count, part.mean.data(), part.square.data());
  double* middle = stats;
  double* scale = middle + l.width;
  for (int64_t j = 0; j < l.width; ++j) {
    middle[j] = all.mean[std::size_t(j)];
    scale[j] = 1.0 / std::sqrt(all.square[std::size_t(j)] / double(l.rows) + eps);
  }
  R* high = start + l.hp;
  R* low = high + l.hp;
  R* factor = low + l.hp;
  R* add = factor + l.hp;
  split_row(middle, l.width, l.hp, high, low);
  for (int64_t j = 0; j < l.width; ++j) {
    factor[j] = R(scale[j] * double(gain[j]));
    add[j] = shift[j];
  }
  l.each_unit(kBlock * l.hp, [&](int64_t u, R*) {
    l.each_block(u, [&](int64_t, int64_t first, int64_t rows) {
      for (int64_t i = first; i < first + rows; ++i) {
        const R* h = hidden + i * l.width;
        R* out = y + place(i) * l.width;
        for (int64_t j = 0; j < l.width; ++j) {
          out[j] = ((h[j] - high[j]) - low[j]) * factor[j] + add[j];
        }
      }
    });
  });
}

// Gradients of dense_norm_rows. Rows of grad lie grad_row apart, row i of all at place(i); grad_a may
// be null (not wanted) or a itself. Room for the gradients of w, bias, gain and shift.
template <class R, class Place>
void dense_norm_rows_backward(const Layer<R>& l, const R* grad, int64_t grad_row, const R* hidden,
                              const R* a, const R* w, const R* gain, const double* stats,
                              R* grad_a, R* grad_w, R* grad_bias, R* grad_gain, R* grad_shift,
                              Place&& place) {
  static thread_local Scratch<R> kept;
  R* transposed = kept.get(1 + l.hp * l.fp + 6 * l.hp + std::max<int64_t>(1, l.units()) * l.sums());
  R* high = transposed + l.hp * l.fp;
  R* low = high + l.hp;
  R* scale = low + l.hp;
  R* factor = scale + l.hp;
  R* from_shift = factor + l.hp;
  R* from_gain = from_shift + l.hp;
  R* sums = from_gain + l.hp;
  std::fill_n(sums, l.units() * l.sums(), R(0));
  l.transpose(w, transposed);
  const double* inverse = stats + l.width;
  split_row(stats, l.width, l.hp, high, low);
  std::fill_n(scale, 4 * l.hp, R(0));
  for (int64_t j = 0; j < l.width; ++j) scale[j] = R(inverse[j]);

  std::vector<double> totals(std::size_t(l.units() * 2 * l.width));
  l.each_unit(kBlock * 2 * l.hp + 2 * l.hp, [&](int64_t u, R* scratch) {
    double* total = totals.data() + u * 2 * l.width;
    R* part = scratch + kBlock * 2 * l.hp;
    l.each_block(u, [&](int64_t, int64_t first, int64_t rows) {
      int64_t dy_step, h_step;
      const R* dy = placed_rows(l, grad, grad_row, first, rows, scratch, &dy_step, place);
      const R* h = padded_rows(hidden + first * l.width, l.width, rows, l.width, l.hp,
                               scratch + kBlock * l.hp, &h_step);
      for (int64_t j = 0; j < l.hp; j += Lanes<R>::count) {
        const Vec<R> top = load(high + j), bottom = load(low + j), by = load(scale + j);
        Vec<R> plain{}, weighted{};
        for (int64_t i = 0; i < rows; ++i) {
          const Vec<R> g = load(dy + i * dy_step + j);
          plain += g;
          weighted += g * (((load(h + i * h_step + j) - top) - bottom) * by);
        }
        store(part + j, plain);
        store(part + l.hp + j, weighted);
      }
      for (int64_t j = 0; j < l.width; ++j) {
        total[j] += double(part[j]);
        total[l.width + j] += double(part[l.hp + j]);
      }
    });
  });
  for (int64_t j = 0; j < l.width; ++j) {
    double plain = 0, weighted = 0;
    for (int64_t u = 0; u < l.units(); ++u) {
      plain += totals[std::size_t(u * 2 * l.width + j)];
      weighted += totals[std::size_t((u * 2 + 1) * l.width + j)];
    }
    grad_shift[j] = R(plain);
    grad_gain[j] = R(weighted);
    factor[j] = R(inverse[j] * double(gain[j]));
    from_shift[j] = R(plain / double(l.rows));
    from_gain[j] = R(weighted / double(l.rows));
  }
  R* to = grad_a;
  l.each_unit(kBlock * (3 * l.hp + l.fp), [&](int64_t u, R* g) {
    R* copy = g + kBlock * l.hp;
    l.each_block(u, [&](int64_t, int64_t first, int64_t rows) {
      int64_t dy_step, h_step;
      const R* dy = placed_rows(l, grad, grad_row, first, rows, copy, &dy_step, place);
      const R* h = padded_rows(hidden + first * l.width, l.width, rows, l.width, l.hp,
                               copy + kBlock * l.hp, &h_step);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < l.hp; j += Lanes<R>::count) {
          const Vec<R> x = load(h + i * h_step + j);
          const Vec<R> unit = ((x - load(high + j)) - load(low + j)) * load(scale + j);
          const Vec<R> d = load(dy + i * dy_step + j) - load(from_shift + j) -
                           unit * load(from_gain + j);
          store(g + i * l.hp + j, x > Vec<R>{} ? d * load(factor + j) : Vec<R>{});
        }
      }
      block_gradients(l, g, a + first * l.inputs, rows, transposed,
                      to ? to + first * l.inputs : nullptr, copy + 2 * kBlock * l.hp,
                      sums + u * l.sums());
    });
  });
  if (l.shards == 0) {
    std::fill_n(sums, l.sums(), R(0));
  } else {
    join_shards(l, sums);
  }
  scan::copy_out(sums, l.inputs, l.width, l.hp, grad_w, l.width);
  scan::copy_out(sums + l.inputs * l.hp, 1, l.width, l.hp, grad_bias, l.width);
}

}  // namespace dgbench::layers
