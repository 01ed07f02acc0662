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

#include "common/check.hpp"
#include "layers/cpu_layers.hpp"

namespace dgbench {
namespace {

using layers::block_gradients;
using layers::dense_norm_rows;
using layers::dense_norm_rows_backward;
using layers::InOrder;
using layers::join_shards;
using layers::kBlock;
using layers::Layer;
using layers::padded_rows;
using layers::relu;
using scan::Lanes;
using scan::load;
using scan::multiply;
using scan::Scratch;
using scan::store;
using scan::Vec;

template <class R>
using Plane = nb::ndarray<const R, nb::ndim<2>, nb::device::cpu>;

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
  dense_norm_rows(l, a.data(), w.data(), bias.data(), gain.data(), shift.data(), eps,
                  hidden.data(), y.data(), stats.data(), InOrder{});
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
  dense_norm_rows_backward(l, grad.data(), int64_t(grad.stride(0)), hidden.data(), a.data(),
                           w.data(), gain.data(), stats.data(), grad_a ? grad_a->data() : nullptr,
                           grad_w.data(), grad_bias.data(), grad_gain.data(), grad_shift.data(),
                           InOrder{});
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
