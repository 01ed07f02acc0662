// The LSTM, all steps of a block of vertices. Gates i, f, g, o from x W + h U + b:
//   c' = f * c + i * g, h' = o * tanh(c').
#pragma once

#include "scan/cpu_common.hpp"

namespace dgbench::scan {

// Record of a block: h and c [T + 1, block, hp] each, then gates i f g o [T, block, gp]. tanh(c)
// is made again in the backward pass, which costs less than carrying it; c' too, because in packed
// rows the record holds what the next step starts from in its place.
template <class R>
struct LstmRecord {
  R *h, *c, *gates;
  int64_t h_step, gate_step;
  LstmRecord(const Shape<R>& s, R* memory)
      : h(memory),
        c(h + (s.steps + 1) * s.block * s.hp),
        gates(c + (s.steps + 1) * s.block * s.hp),
        h_step(s.block * s.hp),
        gate_step(s.block * s.gp) {}
};

template <class R>
void lstm_block_forward(const Shape<R>& s, const ForwardArgs<R>& a, const Packed<R>& w, int64_t b,
                        R* memory, bool outputs) {
  constexpr int64_t lanes = Lanes<R>::count;
  const int64_t rows = s.rows_of(b), first = b * s.block, hp = s.hp, gp = s.gp;
  const LstmRecord<R> record(s, memory);
  copy_in(a.h0 ? a.h0 + first * s.hidden : nullptr, rows, s.hidden, hp, record.h);
  copy_in(a.c0 ? a.c0 + first * s.hidden : nullptr, rows, s.hidden, hp, record.c);
  for (int64_t t = 0; t < s.steps; ++t) {
    const R* x = a.x + t * a.x_step + first * a.x_row;
    if (t + 1 < s.steps) prefetch_rows(x + a.x_step, rows, a.x_row, s.features);
    R* h = record.h + t * record.h_step;
    R* c = record.c + t * record.h_step;
    if (a.begins) {
      const int32_t* begins = a.begins + t * s.vertices + first;
      begin_rows(begins, a.h_starts, rows, s.hidden, hp, h);
      begin_rows(begins, a.c_starts, rows, s.hidden, hp, c);
    }
    R* next_h = record.h + (t + 1) * record.h_step;
    R* next_c = record.c + (t + 1) * record.h_step;
    R* gates = record.gates + t * record.gate_step;
    multiply<R>(rows, 4 * s.hv, {x, a.x_row, w.w_in, gp, s.features}, {h, hp, w.w_hid, gp, s.hidden},
                w.bias, 0, gates, gp);
    for (int64_t v = 0; v < rows; ++v) {
      for (int64_t j = 0; j < hp; j += lanes) {
        R* gate = gates + v * gp + j;
        const Vec<R> i = sigmoid(load(gate)), f = sigmoid(load(gate + hp));
        const Vec<R> g = tanh(load(gate + 2 * hp)), o = sigmoid(load(gate + 3 * hp));
        store(gate, i);
        store(gate + hp, f);
        store(gate + 2 * hp, g);
        store(gate + 3 * hp, o);
        const Vec<R> cell = f * load(c + v * hp + j) + i * g;
        store(next_c + v * hp + j, cell);
        store(next_h + v * hp + j, o * tanh(cell));
      }
    }
    if (outputs && a.h_all) {
      copy_out(next_h, rows, s.hidden, hp, a.h_all + (t * s.vertices + first) * s.hidden, s.hidden);
    }
    if (outputs && a.c_all) {
      copy_out(next_c, rows, s.hidden, hp, a.c_all + (t * s.vertices + first) * s.hidden, s.hidden);
    }
  }
  if (outputs) {
    copy_out(record.h + s.steps * record.h_step, rows, s.hidden, hp, a.h_last + first * s.hidden,
             s.hidden);
    copy_out(record.c + s.steps * record.h_step, rows, s.hidden, hp, a.c_last + first * s.hidden,
             s.hidden);
  }
}

// Scratch: dh, dc [block, hp], dg [block, gp], dx [block, fp].
template <class R>
int64_t lstm_backward_scratch(const Shape<R>& s) {
  return s.block * (2 * s.hp + s.gp + s.fp);
}

template <class R>
void lstm_block_backward(const Shape<R>& s, const BackwardArgs<R>& a, const Packed<R>& w, int64_t b,
                         R* memory, R* scratch, R* sums_memory) {
  constexpr int64_t lanes = Lanes<R>::count;
  const int64_t rows = s.rows_of(b), first = b * s.block, hp = s.hp, gp = s.gp;
  const ForwardArgs<R>& in = a.forward;
  const LstmRecord<R> record(s, memory);
  R* dh = scratch;
  R* dc = dh + s.block * hp;
  R* dg = dc + s.block * hp;
  R* dx = dg + s.block * gp;
  const WeightSums<R> sums(s, sums_memory);
  const bool weights = a.weights();
  copy_in(a.grad_h_last ? a.grad_h_last + first * s.hidden : nullptr, rows, s.hidden, hp, dh);
  copy_in(a.grad_c_last ? a.grad_c_last + first * s.hidden : nullptr, rows, s.hidden, hp, dc);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    const R* x = in.x + t * in.x_step + first * in.x_row;
    if (t > 0) prefetch_rows(x - in.x_step, rows, in.x_row, s.features);
    const R* h = record.h + t * record.h_step;
    const R* c = record.c + t * record.h_step;
    const R* gates = record.gates + t * record.gate_step;
    if (a.grad_h_all) {
      add_rows(a.grad_h_all + (t * s.vertices + first) * s.hidden, rows, s.hidden, hp, dh);
    }
    if (a.grad_c_all) {
      add_rows(a.grad_c_all + (t * s.vertices + first) * s.hidden, rows, s.hidden, hp, dc);
    }
    for (int64_t v = 0; v < rows; ++v) {
      for (int64_t j = 0; j < hp; j += lanes) {
        const R* gate = gates + v * gp + j;
        const Vec<R> i = load(gate), f = load(gate + hp);
        const Vec<R> g = load(gate + 2 * hp), o = load(gate + 3 * hp);
        const Vec<R> before = load(c + v * hp + j);
        const Vec<R> squashed = tanh(f * before + i * g);
        const Vec<R> grad_h = load(dh + v * hp + j);
        const Vec<R> grad_c =
            load(dc + v * hp + j) + grad_h * o * (R(1) - squashed * squashed);
        R* out = dg + v * gp + j;
        store(out, grad_c * g * i * (R(1) - i));
        store(out + hp, grad_c * before * f * (R(1) - f));
        store(out + 2 * hp, grad_c * i * (R(1) - g * g));
        store(out + 3 * hp, grad_h * squashed * o * (R(1) - o));
        store(dc + v * hp + j, grad_c * f);
      }
    }
    multiply<R>(rows, s.hv, {dg, gp, w.w_hid_t, hp, gp}, {}, nullptr, 0, dh, hp);
    if (weights) {
      multiply<R, true>(s.features, 4 * s.hv, {x, in.x_row, dg, gp, rows}, {}, sums.w_in, gp,
                        sums.w_in, gp);
      multiply<R, true>(s.hidden, 4 * s.hv, {h, hp, dg, gp, rows}, {}, sums.w_hid, gp, sums.w_hid,
                        gp);
      add_column_sums(dg, rows, gp, sums.bias);
    }
    if (a.grad_x) {
      multiply<R>(rows, s.fv, {dg, gp, w.w_in_t, s.fp, gp}, {}, nullptr, 0, dx, s.fp);
      copy_out(dx, rows, s.features, s.fp, a.grad_x + t * a.grad_x_step + first * a.grad_x_row,
               a.grad_x_row);
    }
    if (in.begins) {
      const int32_t* begins = in.begins + t * s.vertices + first;
      begin_rows_backward(begins, rows, s.hidden, hp, dh, a.grad_h_starts);
      begin_rows_backward(begins, rows, s.hidden, hp, dc, a.grad_c_starts);
    }
  }
  if (a.grad_h0) copy_out(dh, rows, s.hidden, hp, a.grad_h0 + first * s.hidden, s.hidden);
  if (a.grad_c0) copy_out(dc, rows, s.hidden, hp, a.grad_c0 + first * s.hidden, s.hidden);
}

template <class R>
void lstm_forward(const Shape<R>& s, const ForwardArgs<R>& a) {
  static thread_local Scratch<R> packed;
  const Packed<R> w(s, packed.get(Packed<R>::size(s)), a.w_in, a.w_hid, a.bias, false);
  for_blocks(s, a.threads, s.block_record(),
             [&](int64_t b, R* scratch) { lstm_block_forward(s, a, w, b, scratch, true); });
}

template <class R>
void lstm_backward(const Shape<R>& s, const BackwardArgs<R>& a) {
  static thread_local Scratch<R> packed;
  const ForwardArgs<R>& in = a.forward;
  const Packed<R> w(s, packed.get(Packed<R>::size(s)), in.w_in, in.w_hid, in.bias, true);
  const int64_t own = s.block_record();
  for_shards(s, a, own + lstm_backward_scratch(s), [&](int64_t b, R* scratch, R* sums) {
    lstm_block_forward(s, in, w, b, scratch, false);
    lstm_block_backward(s, a, w, b, scratch, scratch + own, sums);
  });
}

}  // namespace dgbench::scan
