// One LSTM over all steps of a block of vertices, forward and back, for the whole steps. Gates i, f, g,
// o: c' = f * c + i * g, h' = o * tanh(c'). States begin at zero.
#pragma once

#include "steps/cpu_common.hpp"

namespace dgbench::steps {

template <class R>
struct Lstm {
  int64_t inputs, hidden;
  int64_t hv, hp, gp, ip;           // a padded row of H, four of them, of the inputs
  R *w_in, *w_hid, *bias;           // [in, gp], [H, gp], [gp]
  R *w_in_t, *w_hid_t;              // [gp, ip], [gp, hp]

  Lstm(int64_t in, int64_t h)
      : inputs(in), hidden(h), hv(padded<R>(h) / Lanes<R>::count), hp(padded<R>(h)), gp(4 * hp),
        ip(padded<R>(in)) {}

  // Tensors of torch.nn.LSTM one behind the other: weight_ih, weight_hh, bias_ih, bias_hh.
  int64_t size() const { return 4 * hidden * (inputs + hidden + 2); }
  int64_t packed() const { return (inputs + hidden + 1) * gp + gp * (ip + hp); }
  int64_t sums() const { return (inputs + hidden + 1) * gp; }
  int64_t record(int64_t steps) const { return 2 * (steps + 1) * hp + steps * gp; }  // of one row

  void pack(const R* p, R* memory) {
    std::fill_n(memory, packed(), R(0));
    w_in = memory;
    w_hid = w_in + inputs * gp;
    bias = w_hid + hidden * gp;
    w_in_t = bias + gp;
    w_hid_t = w_in_t + gp * ip;
    const R* hid = p + 4 * hidden * inputs;
    const R* b_in = hid + 4 * hidden * hidden;
    const R* b_hid = b_in + 4 * hidden;
    for (int64_t g = 0; g < 4; ++g) {
      for (int64_t j = 0; j < hidden; ++j) {
        const int64_t row = g * hidden + j, column = g * hp + j;
        std::copy_n(p + row * inputs, inputs, w_in_t + column * ip);
        std::copy_n(hid + row * hidden, hidden, w_hid_t + column * hp);
        for (int64_t i = 0; i < inputs; ++i) w_in[i * gp + column] = p[row * inputs + i];
        for (int64_t i = 0; i < hidden; ++i) w_hid[i * gp + column] = hid[row * hidden + i];
        bias[column] = b_in[row] + b_hid[row];
      }
    }
  }

  void unpack(const R* sums, R* grads) const {
    R* hid = grads + 4 * hidden * inputs;
    R* b_in = hid + 4 * hidden * hidden;
    R* b_hid = b_in + 4 * hidden;
    const R* of_hid = sums + inputs * gp;
    const R* of_bias = of_hid + hidden * gp;
    for (int64_t g = 0; g < 4; ++g) {
      for (int64_t j = 0; j < hidden; ++j) {
        const int64_t row = g * hidden + j, column = g * hp + j;
        for (int64_t i = 0; i < inputs; ++i) grads[row * inputs + i] = sums[i * gp + column];
        for (int64_t i = 0; i < hidden; ++i) hid[row * hidden + i] = of_hid[i * gp + column];
        b_in[row] = b_hid[row] = of_bias[column];
      }
    }
  }

  // h and c [T + 1, rows, hp] and gates [T, rows, gp] of a block whose inputs are [T, rows, x_row].
  void forward(int64_t steps, int64_t rows, const R* x, int64_t x_row, R* h, R* c,
               R* gates) const {
    constexpr int64_t lanes = Lanes<R>::count;
    std::fill_n(h, rows * hp, R(0));
    std::fill_n(c, rows * hp, R(0));
    for (int64_t t = 0; t < steps; ++t, x += rows * x_row, gates += rows * gp) {
      const R* before = c + t * rows * hp;
      R* next_c = c + (t + 1) * rows * hp;
      R* next_h = h + (t + 1) * rows * hp;
      multiply<R>(rows, 4 * hv, {x, x_row, w_in, gp, inputs},
                  {h + t * rows * hp, hp, w_hid, gp, t ? hidden : 0}, bias, 0, gates, gp);
      for (int64_t v = 0; v < rows; ++v) {
        for (int64_t j = 0; j < hp; j += lanes) {
          R* gate = gates + v * gp + j;
          const Vec<R> i = scan::sigmoid(load(gate)), f = scan::sigmoid(load(gate + hp));
          const Vec<R> g = scan::tanh(load(gate + 2 * hp));
          const Vec<R> o = scan::sigmoid(load(gate + 3 * hp));
          store(gate, i);
          store(gate + hp, f);
          store(gate + 2 * hp, g);
          store(gate + 3 * hp, o);
          const Vec<R> cell = f * load(before + v * hp + j) + i * g;
          store(next_c + v * hp + j, cell);
          store(next_h + v * hp + j, o * scan::tanh(cell));
        }
      }
    }
  }

  // Gates become their gradients. `dh` [rows, hp] holds the gradient of the last state and is used
  // up, as `dc` is; `dh_all` [T, rows, hp] are gradients of all states besides, or null.
  void backward(int64_t steps, int64_t rows, const R* c, R* gates, R* dh, R* dc,
                const R* dh_all) const {
    constexpr int64_t lanes = Lanes<R>::count;
    std::fill_n(dc, rows * hp, R(0));
    for (int64_t t = steps - 1; t >= 0; --t) {
      R* here = gates + t * rows * gp;
      const R* before = c + t * rows * hp;
      const R* more = dh_all ? dh_all + t * rows * hp : nullptr;
      for (int64_t v = 0; v < rows; ++v) {
        for (int64_t j = 0; j < hp; j += lanes) {
          R* gate = here + v * gp + j;
          const int64_t at = v * hp + j;
          const Vec<R> i = load(gate), f = load(gate + hp);
          const Vec<R> g = load(gate + 2 * hp), o = load(gate + 3 * hp);
          const Vec<R> old = load(before + at);
          const Vec<R> squashed = scan::tanh(load(before + rows * hp + at));
          Vec<R> grad_h = load(dh + at);
          if (more) grad_h += load(more + at);
          const Vec<R> grad_c = load(dc + at) + grad_h * o * (R(1) - squashed * squashed);
          store(gate, grad_c * g * i * (R(1) - i));
          store(gate + hp, grad_c * old * f * (R(1) - f));
          store(gate + 2 * hp, grad_c * i * (R(1) - g * g));
          store(gate + 3 * hp, grad_h * squashed * o * (R(1) - o));
          store(dc + at, grad_c * f);
        }
      }
      if (t > 0) {
        multiply<R>(rows, hv, {here, gp, w_hid_t, hp, gp}, {}, nullptr, 0, dh, hp);
      }
    }
  }

  // Sums of the weights' gradients [in + H + 1, gp] from the gates' gradients.
  void add_sums(int64_t steps, int64_t rows, const R* x, int64_t x_row, const R* h, const R* gates,
                R* sums) const {
    const int64_t all = steps * rows, later = all - rows;  // the first state is zero
    add_products(inputs, 4 * hv, x, x_row, gates, gp, all, sums, gp);
    add_products(hidden, 4 * hv, h + rows * hp, hp, gates + rows * gp, gp, later,
                 sums + inputs * gp, gp);
    for (int64_t i = 0; i < all; i += kLongestSum) {
      scan::add_column_sums(gates + i * gp, std::min(kLongestSum, all - i), gp,
                            sums + (inputs + hidden) * gp);
    }
  }
};

}  // namespace dgbench::steps
