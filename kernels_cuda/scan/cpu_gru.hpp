// The GRU of the temporal graph convolutional network (T-GCN), all steps of a block of vertices:
//   z = sigmoid(x Wz + h Uz + bz), r likewise, c = tanh(x Wc + (r * h) Uc + bc),
//   h' = z * h + (1 - z) * c.
#pragma once

#include "scan/cpu_common.hpp"

namespace dgbench::scan {

// Record of a block: h [T + 1, block, hp], then gates z r c [T, block, gp].
template <class R>
struct GruRecord {
  R *h, *gates;
  int64_t h_step, gate_step;
  GruRecord(const Shape<R>& s, R* memory)
      : h(memory),
        gates(memory + (s.steps + 1) * s.block * s.hp),
        h_step(s.block * s.hp),
        gate_step(s.block * s.gp) {}
};

template <class R>
void gru_block_forward(const Shape<R>& s, const ForwardArgs<R>& a, const Packed<R>& w, int64_t b,
                       R* memory, R* rh, bool outputs) {
  constexpr int64_t lanes = Lanes<R>::count;
  const int64_t rows = s.rows_of(b), first = b * s.block, hp = s.hp, gp = s.gp;
  const GruRecord<R> record(s, memory);
  copy_in(a.h0 ? a.h0 + first * s.hidden : nullptr, rows, s.hidden, hp, record.h);
  for (int64_t t = 0; t < s.steps; ++t) {
    const R* x = a.x + t * a.x_step + first * a.x_row;
    if (t + 1 < s.steps) prefetch_rows(x + a.x_step, rows, a.x_row, s.features);
    R* h = record.h + t * record.h_step;
    if (a.begins) {
      begin_rows(a.begins + t * s.vertices + first, a.h_starts, rows, s.hidden, hp, h);
    }
    R* next = record.h + (t + 1) * record.h_step;
    R* gates = record.gates + t * record.gate_step;
    multiply<R>(rows, 2 * s.hv, {x, a.x_row, w.w_in, gp, s.features}, {h, hp, w.w_hid, gp, s.hidden},
                w.bias, 0, gates, gp);
    for (int64_t v = 0; v < rows; ++v) {
      for (int64_t j = 0; j < hp; j += lanes) {
        const Vec<R> z = sigmoid(load(gates + v * gp + j));
        const Vec<R> r = sigmoid(load(gates + v * gp + hp + j));
        store(gates + v * gp + j, z);
        store(gates + v * gp + hp + j, r);
        store(rh + v * hp + j, r * load(h + v * hp + j));
      }
    }
    multiply<R>(rows, s.hv, {x, a.x_row, w.w_in + 2 * hp, gp, s.features},
                {rh, hp, w.w_hid + 2 * hp, gp, s.hidden}, w.bias + 2 * hp, 0, gates + 2 * hp, gp);
    for (int64_t v = 0; v < rows; ++v) {
      for (int64_t j = 0; j < hp; j += lanes) {
        const Vec<R> c = tanh(load(gates + v * gp + 2 * hp + j));
        store(gates + v * gp + 2 * hp + j, c);
        store(next + v * hp + j, c + load(gates + v * gp + j) * (load(h + v * hp + j) - c));
      }
    }
    if (outputs && a.h_all) {
      copy_out(next, rows, s.hidden, hp, a.h_all + (t * s.vertices + first) * s.hidden, s.hidden);
    }
  }
  if (outputs) {
    copy_out(record.h + s.steps * record.h_step, rows, s.hidden, hp, a.h_last + first * s.hidden,
             s.hidden);
  }
}

// Scratch: dh, drh, rh [block, hp], dg [block, gp], dx [block, fp].
template <class R>
int64_t gru_backward_scratch(const Shape<R>& s) {
  return s.block * (3 * s.hp + s.gp + s.fp);
}

template <class R>
void gru_block_backward(const Shape<R>& s, const BackwardArgs<R>& a, const Packed<R>& w, int64_t b,
                        R* memory, R* scratch, R* sums_memory) {
  constexpr int64_t lanes = Lanes<R>::count;
  const int64_t rows = s.rows_of(b), first = b * s.block, hp = s.hp, gp = s.gp;
  const ForwardArgs<R>& in = a.forward;
  const GruRecord<R> record(s, memory);
  R* dh = scratch;
  R* drh = dh + s.block * hp;
  R* rh = drh + s.block * hp;
  R* dg = rh + s.block * hp;
  R* dx = dg + s.block * gp;
  const WeightSums<R> sums(s, sums_memory);
  const bool weights = a.weights();
  copy_in(a.grad_h_last ? a.grad_h_last + first * s.hidden : nullptr, rows, s.hidden, hp, dh);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    const R* x = in.x + t * in.x_step + first * in.x_row;
    if (t > 0) prefetch_rows(x - in.x_step, rows, in.x_row, s.features);
    const R* h = record.h + t * record.h_step;
    const R* gates = record.gates + t * record.gate_step;
    if (a.grad_h_all) {
      add_rows(a.grad_h_all + (t * s.vertices + first) * s.hidden, rows, s.hidden, hp, dh);
    }
    for (int64_t v = 0; v < rows; ++v) {
      for (int64_t j = 0; j < hp; j += lanes) {
        const R* g = gates + v * gp + j;
        const Vec<R> z = load(g), c = load(g + 2 * hp);
        const Vec<R> grad = load(dh + v * hp + j);
        store(dg + v * gp + 2 * hp + j, grad * (R(1) - z) * (R(1) - c * c));
        store(dg + v * gp + j, grad * (load(h + v * hp + j) - c) * z * (R(1) - z));
        store(dh + v * hp + j, grad * z);
      }
    }
    multiply<R>(rows, s.hv, {dg + 2 * hp, gp, w.w_hid_t + 2 * hp * hp, hp, hp}, {}, nullptr, 0, drh,
                hp);
    for (int64_t v = 0; v < rows; ++v) {
      for (int64_t j = 0; j < hp; j += lanes) {
        const Vec<R> r = load(gates + v * gp + hp + j), previous = load(h + v * hp + j);
        const Vec<R> grad = load(drh + v * hp + j);
        store(dg + v * gp + hp + j, grad * previous * r * (R(1) - r));
        store(dh + v * hp + j, load(dh + v * hp + j) + grad * r);
        store(rh + v * hp + j, r * previous);
      }
    }
    multiply<R>(rows, s.hv, {dg, gp, w.w_hid_t, hp, 2 * hp}, {}, dh, hp, dh, hp);
    if (weights) {
      multiply<R, true>(s.features, 3 * s.hv, {x, in.x_row, dg, gp, rows}, {}, sums.w_in, gp,
                        sums.w_in, gp);
      multiply<R, true>(s.hidden, 2 * s.hv, {h, hp, dg, gp, rows}, {}, sums.w_hid, gp, sums.w_hid,
                        gp);
      multiply<R, true>(s.hidden, s.hv, {rh, hp, dg + 2 * hp, gp, rows}, {}, sums.w_hid + 2 * hp,
                        gp, sums.w_hid + 2 * hp, gp);
      add_column_sums(dg, rows, gp, sums.bias);
    }
    if (a.grad_x) {
      multiply<R>(rows, s.fv, {dg, gp, w.w_in_t, s.fp, gp}, {}, nullptr, 0, dx, s.fp);
      copy_out(dx, rows, s.features, s.fp, a.grad_x + t * a.grad_x_step + first * a.grad_x_row,
               a.grad_x_row);
    }
    if (in.begins) {
      begin_rows_backward(in.begins + t * s.vertices + first, rows, s.hidden, hp, dh,
                          a.grad_h_starts);
    }
  }
  if (a.grad_h0) {
    copy_out(dh, rows, s.hidden, hp, a.grad_h0 + first * s.hidden, s.hidden);
  }
}

template <class R>
void gru_forward(const Shape<R>& s, const ForwardArgs<R>& a) {
  static thread_local Scratch<R> packed;
  const Packed<R> w(s, packed.get(Packed<R>::size(s)), a.w_in, a.w_hid, a.bias, false);
  const int64_t own = s.block_record();
  for_blocks(s, a.threads, own + s.block * s.hp, [&](int64_t b, R* scratch) {
    gru_block_forward(s, a, w, b, scratch, scratch + own, true);
  });
}

template <class R>
void gru_backward(const Shape<R>& s, const BackwardArgs<R>& a) {
  static thread_local Scratch<R> packed;
  const ForwardArgs<R>& in = a.forward;
  const Packed<R> w(s, packed.get(Packed<R>::size(s)), in.w_in, in.w_hid, in.bias, true);
  const int64_t own = s.block_record();
  for_shards(s, a, own + gru_backward_scratch(s), [&](int64_t b, R* scratch, R* sums) {
    gru_block_forward(s, in, w, b, scratch, scratch + own, false);
    gru_block_backward(s, a, w, b, scratch, scratch + own, sums);
  });
}

}  // namespace dgbench::scan
