// All steps of EvolveGCN-O's weight evolution by a GRU cell (Pareja et al., AAAI 2020, section 3.3).
//
// The weight w is input and hidden state of the cell at once, so r and z need one product with
// w_ih + w_hh each, and four columns of gates r, z, a, b stand for the six of a general cell:
//   n = tanh(a + r b),  w' = n + z (w - n).
#pragma once

#include "scan/cpu_common.hpp"

namespace dgbench::scan {

// `rows` rows of a weight, each of them a batch of the cell: rows do not depend on each other.
template <class R>
struct Evolution {
  int64_t steps, rows, width;
  int64_t vectors, pitch, gates;  // a padded row of `width`, in vectors and elements; four of them
  const R *initial, *w_ih, *w_hh, *b_ih, *b_hh;

  Evolution(int64_t steps_, int64_t rows_, int64_t width_, const R* first, const R* in,
            const R* hid, const R* in_bias, const R* hid_bias)
      : steps(steps_),
        rows(rows_),
        width(width_),
        vectors((width + Lanes<R>::count - 1) / Lanes<R>::count),
        pitch(vectors * Lanes<R>::count),
        gates(4 * pitch),
        initial(first),
        w_ih(in),
        w_hh(hid),
        b_ih(in_bias),
        b_hh(hid_bias) {}

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
        const Vec<R> r = sigmoid(load(gate));
        store(gate, r);
        store(gate + pitch, sigmoid(load(gate + pitch)));
        store(gate + 2 * pitch, tanh(load(gate + 2 * pitch) + r * load(gate + 3 * pitch)));
      }
    }
  }

  // The weight [rows, pitch] of a step from the one before it and the gates; may be the same memory.
  void advance(const R* gate, const R* before, R* after) const {
    for (int64_t v = 0; v < rows; ++v) {
      for (int64_t j = 0; j < pitch; j += Lanes<R>::count) {
        const R* g = gate + v * gates + j;
        const Vec<R> n = load(g + 2 * pitch);
        store(after + v * pitch + j, n + load(g + pitch) * (load(before + v * pitch + j) - n));
      }
    }
  }

  // Gradients of a step's gates before their activations, which may take the gates' place; `carry`
  // becomes from the gradient of its weight the part that reaches the weight before past the gates.
  void slopes(const R* gate, const R* before, R* carry, R* slope) const {
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
  }

  // Packed weights with a gate in a row, [gates, pitch].
  void transpose(const R* packed, R* out) const {
    std::fill_n(out, gates * pitch, R(0));
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t j = 0; j < gates; ++j) out[j * pitch + i] = packed[i * gates + j];
    }
  }

  void forward(R* weights) const {
    static thread_local Scratch<R> scratch;
    R* packed = scratch.get(1 + packed_size() + rows * (gates + pitch));
    R* now = packed + packed_size();
    R* gate = now + rows * pitch;
    pack(packed);
    copy_in(initial, rows, width, pitch, now);
    for (int64_t t = 0; t < steps; ++t) {
      gates_of(now, packed, gate);
      advance(gate, now, now);
      copy_out(now, rows, width, pitch, weights + t * rows * width, width);
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
    transpose(packed, transposed);
    std::fill_n(sums, size, R(0));
    std::fill_n(carry, rows * pitch, R(0));
    for (int64_t t = steps - 1; t >= 0; --t) {
      const R* from = t > 0 ? weights + (t - 1) * rows * width : initial;
      copy_in(from, rows, width, pitch, before);
      gates_of(before, packed, gate);
      add_rows(grad + t * rows * width, rows, width, pitch, carry);
      slopes(gate, before, carry, slope);
      multiply<R>(rows, vectors, {slope, gates, transposed, pitch, gates}, {}, carry, pitch, carry,
                  pitch);
      multiply<R, true>(width, 4 * vectors, {before, pitch, slope, gates, rows}, {}, sums, gates,
                        sums, gates);
      add_column_sums(slope, rows, gates, sums + width * gates);
    }
    copy_out(carry, rows, width, pitch, grad_initial, width);
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

}  // namespace dgbench::scan
