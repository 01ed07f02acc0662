// The walk of GRU and LSTM back over the steps on tensor cores (see scan/cuda_mma_scan.cuh).
//
// What the forward pass left of step t - 1 is on its way to registers while products of step t run.
#pragma once

#include "scan/cuda_mma_scan.cuh"

namespace dgbench {

// What this lane needs of a step: its gates, what it began from and the gradients that come in.
template <int G>
struct MmaStep {
  float gate[G][4], before[4], up[4];  // before: GRU h, LSTM c
  float cell[G == 3 ? 1 : 4], up_cell[G == 3 ? 1 : 4];
  MmaBegins begins;

  __device__ void load(const MmaLane& own, const ScanGradArgs& g, int64_t t) {
    const ScanArgs& a = g.in;
    const int H = a.hidden;
    const int width = record_width(G) * H;
    const float* const saved = a.record + t * a.vertices * width;
#pragma unroll
    for (int q = 0; q < G; ++q) load_values(own, a, saved + (1 + q) * H, width, gate[q]);
    const int64_t step = t * a.vertices * H;
    load_values(own, a, g.grad_h_all == nullptr ? nullptr : g.grad_h_all + step, H, up);
    if constexpr (G == 4) {
      load_values(own, a, saved + 5 * H, width, cell);
      load_values(own, a, g.grad_c_all == nullptr ? nullptr : g.grad_c_all + step, H, up_cell);
    }
    if (t > 0) {
      load_values(own, a, saved + (G == 3 ? 0 : 5 * H) - a.vertices * width, width, before);
    } else {
      load_values(own, a, G == 3 ? a.h0 : a.c0, H, before);
    }
    begins = MmaBegins(own, a, t);
    begins.apply(own, a, G == 3 ? a.h_starts : a.c_starts, before);
  }
};

// The gradient of what rows of this lane began from goes to their starts and no further back.
__device__ __forceinline__ void leave_values(const MmaLane& own, const ScanArgs& a,
                                             const MmaBegins& begins, float* grad_starts,
                                             float (&grad)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int32_t from = begins.from[i / 2];
    if (from == -1) continue;
    if (from >= 0 && grad_starts != nullptr && own.j(i) < a.hidden) {
      grad_starts[int64_t{from} * a.hidden + own.j(i)] = grad[i];
    }
    grad[i] = 0.0f;
  }
}

template <int G>
__global__ void __launch_bounds__(kBlock)
    mma_backward(const StepArgs args, const MmaLayout layout) {
#if DGBENCH_SPLIT_PRODUCTS
  extern __shared__ float shared[];
  const ScanGradArgs& g = args.a;
  const ScanArgs& a = g.in;
  const MmaLane own(a, layout);
  const int H = a.hidden;
  const int GH = G * H;
  const int floats = layout.tiles * layout.units * kAFloats;  // of one gate's gradients
  float* const w = shared;
  float* da = w + layout.units * layout.units * G * kBFloats;
  float* other = da + 4 * floats;  // LSTM: of the next step
  copy_b(w, own, layout, H, G, H, [&](int k, int gate, int j) {
    return a.w_hid + int64_t{j} * GH + gate * H + k;
  });
  const int mine = (own.tile * layout.units + own.unit) * kAFloats;
  const float* const own_w = w + own.unit * layout.units * G * kBFloats;
  const bool paired = pairs(a, args.dg);
  const auto keep = [&](int64_t t, int gate, const float(&values)[4]) {
    store_a(da + gate * floats + mine, own.lane, values);
    store_values(own, a, args.dg + t * a.vertices * GH + gate * H, GH, paired, values);
  };
  const auto add = [&](MmaSum& sum, int gate, int k) {
    const float* const left = da + gate * floats + (own.tile * layout.units + k) * kAFloats;
    sum.add(load_a(left, own.lane), load_b(own_w + (k * G + gate) * kBFloats, own.lane));
  };

  float dh[4], dc[4];
  load_values(own, a, g.grad_h_last, H, dh);
  if constexpr (G == 4) load_values(own, a, g.grad_c_last, H, dc);
  MmaStep<G> step;
  if (a.steps > 0) step.load(own, g, a.steps - 1);
  wait_for_copies();
  __syncthreads();
  for (int64_t t = a.steps - 1; t >= 0; --t) {
    const MmaBegins begins = step.begins;
    MmaSum sum[2];
    sum[0].start(0.0f, 0.0f);
    sum[1].start(0.0f, 0.0f);
    if constexpr (G == 3) {
      float daz[4], dac[4], reset[4], slope[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float z = step.gate[0][i], r = step.gate[1][i], c = step.gate[2][i];
        const float grad = dh[i] + step.up[i];
        daz[i] = grad * (step.before[i] - c) * z * (1.0f - z);
        dac[i] = grad * (1.0f - z) * (1.0f - c * c);
        dh[i] = grad * z;
        reset[i] = r;
        slope[i] = step.before[i] * r * (1.0f - r);
      }
      keep(t, 0, daz);
      keep(t, 2, dac);
      if (t > 0) step.load(own, g, t - 1);
      __syncthreads();
#pragma unroll 2
      for (int k = 0; k < layout.units; ++k) {
        add(sum[0], 0, k);
        add(sum[1], 2, k);
      }
      float dar[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float drh = sum[1].value(i);
        dar[i] = drh * slope[i];
        dh[i] += drh * reset[i];
      }
      keep(t, 1, dar);
      __syncthreads();
#pragma unroll 2
      for (int k = 0; k < layout.units; ++k) add(sum[0], 1, k);
#pragma unroll
      for (int i = 0; i < 4; ++i) dh[i] += sum[0].value(i);
    } else {
      float grad[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float in = step.gate[0][i], forget = step.gate[1][i], fresh = step.gate[2][i];
        const float out = step.gate[3][i];
        const float squashed = tanhf(step.cell[i]);
        const float grad_h = dh[i] + step.up[i];
        const float grad_c =
            dc[i] + grad_h * out * (1.0f - squashed * squashed) + step.up_cell[i];
        grad[0][i] = grad_c * fresh * in * (1.0f - in);
        grad[1][i] = grad_c * step.before[i] * forget * (1.0f - forget);
        grad[2][i] = grad_c * in * (1.0f - fresh * fresh);
        grad[3][i] = grad_h * squashed * out * (1.0f - out);
        dc[i] = grad_c * forget;
      }
#pragma unroll
      for (int q = 0; q < 4; ++q) keep(t, q, grad[q]);
      if (t > 0) step.load(own, g, t - 1);
      __syncthreads();
#pragma unroll 1
      for (int k = 0; k < layout.units; ++k) {
#pragma unroll
        for (int q = 0; q < 4; ++q) add(sum[q % 2], q, k);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) dh[i] = sum[0].value(i) + sum[1].value(i);
      leave_values(own, a, begins, g.grad_c_starts, dc);
      float* const swap = da;
      da = other;
      other = swap;
    }
    leave_values(own, a, begins, g.grad_h_starts, dh);
  }
  if (g.grad_h0 != nullptr) store_values(own, a, g.grad_h0, H, pairs(a, g.grad_h0), dh);
  if (G == 4 && g.grad_c0 != nullptr) {
    store_values(own, a, g.grad_c0, H, pairs(a, g.grad_c0), dc);
  }
#endif
}

inline int launch_mma_backward(const StepArgs& args, void* stream) {
  const ScanArgs& a = args.a.in;
  const auto bytes = [&](const MmaLayout& layout) { return mma_backward_bytes(layout, a.gates); };
  const MmaLayout layout = mma_layout(a, bytes);
  const auto kernel = a.gates == 3 ? &mma_backward<3> : &mma_backward<4>;
  return launch_mma(kernel, args, a.vertices, layout, bytes(layout), stream);
}

}  // namespace dgbench
