// All steps of EvolveGCN-O's weight evolution by a GRU cell (Pareja et al., AAAI 2020, section 3.3)
// in one call. The argument lists, with everything dense and of one type, float32 or float64:
//
//   evolve_gru_forward(initial, w_ih, w_hh, b_ih, b_hh, weights, threads)
//   evolve_gru_backward(initial, w_ih, w_hh, b_ih, b_hh, weights, grad, grad_initial, grad_w_ih,
//                       grad_w_hh, grad_b_ih, grad_b_hh, threads)
//
// initial [M, O], w_ih and w_hh [3 O, O] and b_ih and b_hh [3 O] with the gates r, z, n in rows,
// weights and grad [T, M, O]. Outputs are overwritten. Rows are independent; one thread does all of
// them, as there are only as many as a layer has inputs.
//
// The weight w is input and hidden state of the cell at once, so r and z need one product with
// w_ih + w_hh each, and four columns of gates r, z, a, b stand for the six of a general cell:
//   n = tanh(a + r b),  w' = n + z (w - n).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include "common/check.hpp"
#include "scan/cpu_common.hpp"

namespace dgbench {
namespace {

using scan::Lanes;
using scan::load;
using scan::multiply;
using scan::Scratch;
using scan::store;
using scan::Vec;

template <class R>
struct Evolution {
  int64_t steps, rows, width;
  int64_t vectors, pitch, gates;  // a padded row of `width`, in vectors and elements; four of them
  const R *initial, *w_ih, *w_hh, *b_ih, *b_hh;

  Evolution(const Matrix<const R>& first, const Array<const R>& in, const Array<const R>& hid,
            const Array<const R>& in_bias, const Array<const R>& hid_bias,
            const Cube<const R>& all)
      : steps(int64_t(all.shape(0))),
        rows(int64_t(first.shape(0))),
        width(int64_t(first.shape(1))),
        vectors((width + Lanes<R>::count - 1) / Lanes<R>::count),
        pitch(vectors * Lanes<R>::count),
        gates(4 * pitch),
        initial(first.data()),
        w_ih(in.data()),
        w_hh(hid.data()),
        b_ih(in_bias.data()),
        b_hh(hid_bias.data()) {
    check_size(all, std::size_t(steps * rows * width), "weights");
    check_size(in, std::size_t(3 * width * width), "w_ih");
    check_size(hid, std::size_t(3 * width * width), "w_hh");
    check_size(in_bias, std::size_t(3 * width), "b_ih");
    check_size(hid_bias, std::size_t(3 * width), "b_hh");
  }

  int64_t packed_size() const { return (width + 1) * gates; }

  // Weights [O, gates] with an input in a row, then biases [gates].
  void pack(R* out) const {
    std::fill_n(out, packed_size(), R(0));
    R* bias = out + width * gates;
    for (int64_t j = 0; j < width; ++j) {
      for (int64_t g = 0; g < 2; ++g) {
        const int64_t row = g * width + j;
        for (int64_t i = 0; i < width; ++i) {
          out[i * gates + g * pitch + j] = w_ih[row * width + i] + w_hh[row * width + i];
        }
        bias[g * pitch + j] = b_ih[row] + b_hh[row];
      }
      const int64_t row = 2 * width + j;
      for (int64_t i = 0; i < width; ++i) {
        out[i * gates + 2 * pitch + j] = w_ih[row * width + i];
        out[i * gates + 3 * pitch + j] = w_hh[row * width + i];
      }
      bias[2 * pitch + j] = b_ih[row];
      bias[3 * pitch + j] = b_hh[row];
    }
  }

  // Gates [rows, gates] of one step from the padded weight [rows, pitch] before it: r, z, n, b.
  void gates_of(const R* weight, const R* packed, R* out) const {
    multiply<R>(rows, 4 * vectors, {weight, pitch, packed, gates, width}, {}, packed + width * gates,
                0, out, gates);
    for (int64_t v = 0; v < rows; ++v) {
      for (int64_t j = 0; j < pitch; j += Lanes<R>::count) {
        R* gate = out + v * gates + j;
        const Vec<R> r = scan::sigmoid(load(gate));
        store(gate, r);
        store(gate + pitch, scan::sigmoid(load(gate + pitch)));
        store(gate + 2 * pitch, scan::tanh(load(gate + 2 * pitch) + r * load(gate + 3 * pitch)));
      }
    }
  }

  void forward(R* weights) const {
    static thread_local Scratch<R> scratch;
    R* packed = scratch.get(1 + packed_size() + rows * (gates + pitch));
    R* now = packed + packed_size();
    R* gate = now + rows * pitch;
    pack(packed);
    scan::copy_in(initial, rows, width, pitch, now);
    for (int64_t t = 0; t < steps; ++t) {
      gates_of(now, packed, gate);
      for (int64_t v = 0; v < rows; ++v) {
        for (int64_t j = 0; j < pitch; j += Lanes<R>::count) {
          const R* g = gate + v * gates + j;
          const Vec<R> n = load(g + 2 * pitch);
          store(now + v * pitch + j, n + load(g + pitch) * (load(now + v * pitch + j) - n));
        }
      }
      scan::copy_out(now, rows, width, pitch, weights + t * rows * width, width);
    }
  }

  // Gates are made again from the weights, step by step backwards.
  void backward(const R* weights, const R* grad, R* grad_initial, R* grad_w_ih, R* grad_w_hh,
                R* grad_b_ih, R* grad_b_hh) const {
    static thread_local Scratch<R> scratch;
    const int64_t size = packed_size();
    R* packed = scratch.get(1 + 2 * size + gates * pitch + rows * (2 * gates + 2 * pitch));
    R* sums = packed + size;
    R* transposed = sums + size;
    R* before = transposed + gates * pitch;
    R* carry = before + rows * pitch;
    R* gate = carry + rows * pitch;
    R* slope = gate + rows * gates;
    pack(packed);
    std::fill_n(transposed, gates * pitch, R(0));
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t j = 0; j < gates; ++j) transposed[j * pitch + i] = packed[i * gates + j];
    }
    std::fill_n(sums, size, R(0));
    std::fill_n(carry, rows * pitch, R(0));
    for (int64_t t = steps - 1; t >= 0; --t) {
      const R* from = t > 0 ? weights + (t - 1) * rows * width : initial;
      scan::copy_in(from, rows, width, pitch, before);
      gates_of(before, packed, gate);
      scan::add_rows(grad + t * rows * width, rows, width, pitch, carry);
      for (int64_t v = 0; v < rows; ++v) {
        for (int64_t j = 0; j < pitch; j += Lanes<R>::count) {
          const R* g = gate + v * gates + j;
          R* d = slope + v * gates + j;
          const Vec<R> r = load(g), z = load(g + pitch), n = load(g + 2 * pitch);
          const Vec<R> from_hidden = load(g + 3 * pitch), dw = load(carry + v * pitch + j);
          const Vec<R> dn = dw * (R(1) - z) * (R(1) - n * n);
          store(d, dn * from_hidden * r * (R(1) - r));
          store(d + pitch, dw * (load(before + v * pitch + j) - n) * z * (R(1) - z));
          store(d + 2 * pitch, dn);
          store(d + 3 * pitch, dn * r);
          store(carry + v * pitch + j, dw * z);
        }
      }
      multiply<R>(rows, vectors, {slope, gates, transposed, pitch, gates}, {}, carry, pitch, carry,
                  pitch);
      multiply<R, true>(width, 4 * vectors, {before, pitch, slope, gates, rows}, {}, sums, gates,
                        sums, gates);
      scan::add_column_sums(slope, rows, gates, sums + width * gates);
    }
    scan::copy_out(carry, rows, width, pitch, grad_initial, width);
    unpack(sums, grad_w_ih, grad_w_hh, grad_b_ih, grad_b_hh);
  }

  // r and z have the same gradient for both weights; n has one of its own for each.
  void unpack(const R* sums, R* in, R* hid, R* in_bias, R* hid_bias) const {
    const R* bias = sums + width * gates;
    for (int64_t g = 0; g < 3; ++g) {
      const int64_t other = g == 2 ? 3 : g;
      for (int64_t j = 0; j < width; ++j) {
        const int64_t row = g * width + j;
        for (int64_t i = 0; i < width; ++i) {
          in[row * width + i] = sums[i * gates + g * pitch + j];
          hid[row * width + i] = sums[i * gates + other * pitch + j];
        }
        in_bias[row] = bias[g * pitch + j];
        hid_bias[row] = bias[other * pitch + j];
      }
    }
  }
};

template <class R>
void forward(Matrix<const R> initial, Array<const R> w_ih, Array<const R> w_hh,
             Array<const R> b_ih, Array<const R> b_hh, Cube<R> weights, int64_t /*threads*/) {
  const Evolution<R> e(initial, w_ih, w_hh, b_ih, b_hh, Cube<const R>(weights));
  nb::gil_scoped_release unlocked;
  e.forward(weights.data());
}

template <class R>
void backward(Matrix<const R> initial, Array<const R> w_ih, Array<const R> w_hh,
              Array<const R> b_ih, Array<const R> b_hh, Cube<const R> weights, Cube<const R> grad,
              Array<R> grad_initial, Array<R> grad_w_ih, Array<R> grad_w_hh, Array<R> grad_b_ih,
              Array<R> grad_b_hh, int64_t /*threads*/) {
  const Evolution<R> e(initial, w_ih, w_hh, b_ih, b_hh, weights);
  check_size(grad, weights.size(), "grad");
  check_size(grad_initial, initial.size(), "grad_initial");
  check_size(grad_w_ih, w_ih.size(), "grad_w_ih");
  check_size(grad_w_hh, w_hh.size(), "grad_w_hh");
  check_size(grad_b_ih, b_ih.size(), "grad_b_ih");
  check_size(grad_b_hh, b_hh.size(), "grad_b_hh");
  nb::gil_scoped_release unlocked;
  e.backward(weights.data(), grad.data(), grad_initial.data(), grad_w_ih.data(),
             grad_w_hh.data(), grad_b_ih.data(), grad_b_hh.data());
}

template <class R>
void bind_real(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };
  m.def("evolve_gru_forward", &forward<R>, in("initial"), in("w_ih"), in("w_hh"), in("b_ih"),
        in("b_hh"), in("weights"), nb::arg("threads"));
  m.def("evolve_gru_backward", &backward<R>, in("initial"), in("w_ih"), in("w_hh"), in("b_ih"),
        in("b_hh"), in("weights"), in("grad"), in("grad_initial"), in("grad_w_ih"),
        in("grad_w_hh"), in("grad_b_ih"), in("grad_b_hh"), nb::arg("threads"));
}

}  // namespace

void bind_evolve(nb::module_& m) {
  bind_real<float>(m);
  bind_real<double>(m);
}

}  // namespace dgbench
