// The dense half of a GCN layer over a whole frame, with what follows it, in passes over blocks of
// rows that stay in cache. All of one type R, float32 or float64, and dense but for `grad`, whose
// rows may lie apart; H is the layer's width:
//
//   frame_dense_forward(a [T, N, F], w [T, F, H], relu, out [T, N, H], threads)
//   frame_dense_backward(grad [T, N, H], out, a, w, relu, grad_a, grad_w, threads)
//   dense_norm_forward(a [M, F], w [F, H], bias [H], gain [H], shift [H], eps, hidden [M, H],
//                      y [M, H], stats, threads)
//   dense_norm_backward(grad [M, H], hidden, a, w, gain, stats, grad_a, grad_w, grad_bias,
//                       grad_gain, grad_shift, threads)
//
// frame_dense: out_t = relu(a_t w_t). dense_norm: hidden = relu(a w + bias), y = hidden normalised
// over all rows, times gain plus shift; stats float64 [2, H] holds mean and 1 / sqrt(var + eps).
// grad_a may be None (not wanted). Outputs are overwritten. Rows are cut into shards by the shapes
// only and shards are summed in order: results do not depend on the number of threads.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cmath>

#include "common/check.hpp"
#include "scan/cpu_common.hpp"

namespace dgbench {
namespace {

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
using Plane = nb::ndarray<const R, nb::ndim<2>, nb::device::cpu>;

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
      R* memory = scratch.try_get(std::max<int64_t>(1, scratch_size));
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

template <class R>
void frame_dense_forward(Cube<const R> a, Cube<const R> w, bool with_relu, Cube<R> out,
                         int64_t threads) {
  const Layer<R> l(int64_t(a.shape(0)), int64_t(a.shape(1)), int64_t(a.shape(2)),
                   int64_t(w.shape(2)), threads);
  check_size(w, std::size_t(l.weights * l.inputs * l.width), "w");
  check_size(out, std::size_t(l.weights * l.rows * l.width), "out");
  nb::gil_scoped_release unlocked;
  static thread_local Scratch<R> packed;
  const R* weights = w.data();
  if (!l.aligned()) {
    R* copy = packed.get(1 + l.weights * l.inputs * l.hp);
    l.pad(weights, copy);
    weights = copy;
  }
  const R* in = a.data();
  R* result = out.data();
  l.each_unit(kBlock * l.hp, [&](int64_t u, R* scratch) {
    l.each_block(u, [&](int64_t t, int64_t first, int64_t rows) {
      const int64_t at = t * l.rows + first;
      R* to = l.aligned() ? result + at * l.width : scratch;
      multiply<R>(rows, l.hp / Lanes<R>::count,
                  {in + at * l.inputs, l.inputs, weights + t * l.inputs * l.hp, l.hp, l.inputs}, {},
                  nullptr, 0, to, l.hp);
      if (with_relu) {
        for (int64_t i = 0; i < rows * l.hp; i += Lanes<R>::count) {
          store(to + i, relu<R>(load(to + i)));
        }
      }
      if (!l.aligned()) scan::copy_out(to, rows, l.width, l.hp, result + at * l.width, l.width);
    });
  });
}

template <class R>
void frame_dense_backward(Cube<const R> grad, Cube<const R> out, Cube<const R> a, Cube<const R> w,
                          bool with_relu, std::optional<Cube<R>> grad_a, Cube<R> grad_w,
                          int64_t threads) {
  const Layer<R> l(int64_t(a.shape(0)), int64_t(a.shape(1)), int64_t(a.shape(2)),
                   int64_t(w.shape(2)), threads);
  check_size(w, std::size_t(l.weights * l.inputs * l.width), "w");
  check_size(grad, std::size_t(l.weights * l.rows * l.width), "grad");
  check_size(out, grad.size(), "out");
  check_size(grad_w, w.size(), "grad_w");
  check_optional(grad_a, a.size(), "grad_a");
  nb::gil_scoped_release unlocked;
  static thread_local Scratch<R> kept;
  R* transposed = kept.get(1 + l.weights * l.hp * l.fp + l.units() * l.sums());
  R* sums = transposed + l.weights * l.hp * l.fp;
  std::fill_n(sums, l.units() * l.sums(), R(0));
  l.transpose(w.data(), transposed);
  R* to = grad_a ? grad_a->data() : nullptr;
  l.each_unit(kBlock * (2 * l.hp + l.fp), [&](int64_t u, R* g) {
    R* copy = g + kBlock * l.hp;
    l.each_block(u, [&](int64_t t, int64_t first, int64_t rows) {
      const int64_t at = t * l.rows + first;
      scan::copy_in(grad.data() + at * l.width, rows, l.width, l.hp, g);
      if (with_relu) {
        int64_t step;
        const R* y = padded_rows(out.data() + at * l.width, l.width, rows, l.width, l.hp, copy,
                                 &step);
        for (int64_t i = 0; i < rows * l.hp; i += Lanes<R>::count) {
          store(g + i, load(y + i) > Vec<R>{} ? load(g + i) : Vec<R>{});
        }
      }
      block_gradients(l, g, a.data() + at * l.inputs, rows, transposed + t * l.hp * l.fp,
                      to ? to + at * l.inputs : nullptr, copy + kBlock * l.hp, sums + u * l.sums());
    });
  });
  join_shards(l, sums);
  for (int64_t t = 0; t < l.weights; ++t) {
    R* into = grad_w.data() + t * l.inputs * l.width;
    if (l.shards == 0) {
      std::fill_n(into, l.inputs * l.width, R(0));
    } else {
      scan::copy_out(sums + t * l.shards * l.sums(), l.inputs, l.width, l.hp, into, l.width);
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

template <class R>
void dense_norm_forward(Matrix<const R> a, Matrix<const R> w, Array<const R> bias,
                        Array<const R> gain, Array<const R> shift, double eps, Matrix<R> hidden,
                        Matrix<R> y, Array<double> stats, int64_t threads) {
  const Layer<R> l(1, int64_t(a.shape(0)), int64_t(a.shape(1)), int64_t(w.shape(1)), threads);
  check_size(w, std::size_t(l.inputs * l.width), "w");
  check_size(bias, std::size_t(l.width), "bias");
  check_size(gain, std::size_t(l.width), "gain");
  check_size(shift, std::size_t(l.width), "shift");
  check_size(hidden, std::size_t(l.rows * l.width), "hidden");
  check_size(y, hidden.size(), "y");
  check_size(stats, std::size_t(2 * l.width), "stats");
  nb::gil_scoped_release unlocked;
  static thread_local Scratch<R> kept;
  R* weights = kept.get(1 + (l.inputs + 5) * l.hp);
  R* start = weights + l.inputs * l.hp;
  l.pad(w.data(), weights);
  scan::copy_in(bias.data(), 1, l.width, l.hp, start);
  std::vector<Moments> parts(std::size_t(l.shards), Moments(l.width));
  l.each_unit((kBlock + 2) * l.hp, [&](int64_t u, R* scratch) {
    R* mean = scratch + kBlock * l.hp;
    l.each_block(u, [&](int64_t, int64_t first, int64_t rows) {
      R* out = hidden.data() + first * l.width;
      R* to = l.aligned() ? out : scratch;
      multiply<R>(rows, l.hp / Lanes<R>::count,
                  {a.data() + first * l.inputs, l.inputs, weights, l.hp, l.inputs}, {}, start, 0,
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
  double* middle = stats.data();
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
    factor[j] = R(scale[j] * double(gain.data()[j]));
    add[j] = shift.data()[j];
  }
  l.each_unit(kBlock * l.hp, [&](int64_t u, R*) {
    l.each_block(u, [&](int64_t, int64_t first, int64_t rows) {
      for (int64_t i = first; i < first + rows; ++i) {
        const R* h = hidden.data() + i * l.width;
        R* out = y.data() + i * l.width;
        for (int64_t j = 0; j < l.width; ++j) {
          out[j] = ((h[j] - high[j]) - low[j]) * factor[j] + add[j];
        }
      }
    });
  });
}

template <class R>
void dense_norm_backward(Plane<R> grad, Matrix<const R> hidden, Matrix<const R> a,
                         Matrix<const R> w, Array<const R> gain, Array<const double> stats,
                         std::optional<Matrix<R>> grad_a, Matrix<R> grad_w, Array<R> grad_bias,
                         Array<R> grad_gain, Array<R> grad_shift, int64_t threads) {
  const Layer<R> l(1, int64_t(a.shape(0)), int64_t(a.shape(1)), int64_t(w.shape(1)), threads);
  check_size(w, std::size_t(l.inputs * l.width), "w");
  check_size(hidden, std::size_t(l.rows * l.width), "hidden");
  if (grad.shape(0) != hidden.shape(0) || grad.shape(1) != hidden.shape(1) ||
      (grad.size() > 0 && l.width > 1 && grad.stride(1) != 1)) {
    reject("grad must have the shape of hidden and adjacent columns");
  }
  check_size(gain, std::size_t(l.width), "gain");
  check_size(stats, std::size_t(2 * l.width), "stats");
  check_optional(grad_a, a.size(), "grad_a");
  check_size(grad_w, w.size(), "grad_w");
  check_size(grad_bias, std::size_t(l.width), "grad_bias");
  check_size(grad_gain, std::size_t(l.width), "grad_gain");
  check_size(grad_shift, std::size_t(l.width), "grad_shift");
  nb::gil_scoped_release unlocked;
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
  l.transpose(w.data(), transposed);
  const double* inverse = stats.data() + l.width;
  split_row(stats.data(), l.width, l.hp, high, low);
  std::fill_n(scale, 4 * l.hp, R(0));
  for (int64_t j = 0; j < l.width; ++j) scale[j] = R(inverse[j]);

  std::vector<double> totals(std::size_t(l.units() * 2 * l.width));
  const int64_t grad_row = grad.stride(0);
  l.each_unit(kBlock * 2 * l.hp + 2 * l.hp, [&](int64_t u, R* scratch) {
    double* total = totals.data() + u * 2 * l.width;
    R* part = scratch + kBlock * 2 * l.hp;
    l.each_block(u, [&](int64_t, int64_t first, int64_t rows) {
      int64_t dy_step, h_step;
      const R* dy = padded_rows(grad.data() + first * grad_row, grad_row, rows, l.width, l.hp,
                                scratch, &dy_step);
      const R* h = padded_rows(hidden.data() + first * l.width, l.width, rows, l.width, l.hp,
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
    grad_shift.data()[j] = R(plain);
    grad_gain.data()[j] = R(weighted);
    factor[j] = R(inverse[j] * double(gain.data()[j]));
    from_shift[j] = R(plain / double(l.rows));
    from_gain[j] = R(weighted / double(l.rows));
  }
  R* to = grad_a ? grad_a->data() : nullptr;
  l.each_unit(kBlock * (3 * l.hp + l.fp), [&](int64_t u, R* g) {
    R* copy = g + kBlock * l.hp;
    l.each_block(u, [&](int64_t, int64_t first, int64_t rows) {
      int64_t dy_step, h_step;
      const R* dy = padded_rows(grad.data() + first * grad_row, grad_row, rows, l.width, l.hp,
                                copy, &dy_step);
      const R* h = padded_rows(hidden.data() + first * l.width, l.width, rows, l.width, l.hp,
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
      block_gradients(l, g, a.data() + first * l.inputs, rows, transposed,
                      to ? to + first * l.inputs : nullptr, copy + 2 * kBlock * l.hp,
                      sums + u * l.sums());
    });
  });
  if (l.shards == 0) {
    std::fill_n(sums, l.sums(), R(0));
  } else {
    join_shards(l, sums);
  }
  scan::copy_out(sums, l.inputs, l.width, l.hp, grad_w.data(), l.width);
  scan::copy_out(sums + l.inputs * l.hp, 1, l.width, l.hp, grad_bias.data(), l.width);
}

template <class R>
void bind_real(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };
  const auto maybe = [](const char* name) { return nb::arg(name).noconvert().none(); };
  m.def("frame_dense_forward", &frame_dense_forward<R>, in("a"), in("w"), nb::arg("relu"),
        in("out"), nb::arg("threads"));
  m.def("frame_dense_backward", &frame_dense_backward<R>, in("grad"), in("out"), in("a"), in("w"),
        nb::arg("relu"), maybe("grad_a"), in("grad_w"), nb::arg("threads"));
  m.def("dense_norm_forward", &dense_norm_forward<R>, in("a"), in("w"), in("bias"), in("gain"),
        in("shift"), nb::arg("eps"), in("hidden"), in("y"), in("stats"), nb::arg("threads"));
  m.def("dense_norm_backward", &dense_norm_backward<R>, in("grad"), in("hidden"), in("a"), in("w"),
        in("gain"), in("stats"), maybe("grad_a"), in("grad_w"), in("grad_bias"), in("grad_gain"),
        in("grad_shift"), nb::arg("threads"));
}

}  // namespace

void bind_layers(nb::module_& m) {
  bind_real<float>(m);
  bind_real<double>(m);
}

}  // namespace dgbench
