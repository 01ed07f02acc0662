// GRU and LSTM over time, forward, on tensor cores (see scan/cuda_mma_scan.cuh).
//
// The inputs of step t + 1 are on their way to shared memory while step t is worked on.
#pragma once

#include "scan/cuda_mma_scan.cuh"

namespace dgbench {

// Begins to copy x of step t; rows and columns that are not there stay what they are.
__device__ __forceinline__ void copy_inputs(const ScanArgs& a, const MmaLayout& layout,
                                            const MmaLane& own, int64_t t, float* to) {
  for (int row = own.warp; row < own.rows; row += layout.units * layout.tiles) {
    const float* const from = a.x + t * a.x_step + (own.first + row) * a.x_row;
    for (int k = own.lane; k < a.features; k += 32) {
      copy_float(to + place_in_a(row, k, layout.inputs), from + k);
    }
  }
}

template <int G>
__global__ void __launch_bounds__(kBlock) mma_forward(const ScanArgs a, const MmaLayout layout) {
#if DGBENCH_SPLIT_PRODUCTS
  extern __shared__ float shared[];
  const MmaLane own(a, layout);
  const int H = a.hidden;
  const int F = a.features;
  const int threads = 32 * layout.units * layout.tiles;
  const int x_floats = layout.tiles * layout.inputs * kAFloats;
  const int h_floats = layout.tiles * layout.units * kAFloats;
  float* const w_in = shared;
  float* const w_hid = w_in + layout.units * layout.inputs * G * kBFloats;
  float* const x = w_hid + layout.units * layout.units * G * kBFloats;
  float* h = x + 2 * x_floats;
  float* other = h + h_floats;  // GRU: r * h; LSTM: h of the next step
  copy_b(w_in, own, layout, F, G, H,
         [&](int k, int gate, int j) { return a.w_in + int64_t{k} * G * H + gate * H + j; });
  copy_b(w_hid, own, layout, H, G, H,
         [&](int k, int gate, int j) { return a.w_hid + int64_t{k} * G * H + gate * H + j; });
  for (int i = threadIdx.x; i < 2 * x_floats; i += threads) x[i] = 0.0f;

  float bias[G][2];
#pragma unroll
  for (int gate = 0; gate < G; ++gate) {
#pragma unroll
    for (int i = 0; i < 2; ++i) bias[gate][i] = own.j(i) < H ? a.bias[gate * H + own.j(i)] : 0.0f;
  }
  float state[4], cell[4];
  load_values(own, a, a.h0, H, state);
  load_values(own, a, a.c0, H, cell);
  const MmaBegins first(own, a, 0);
  first.apply(own, a, a.h_starts, state);
  if (G == 4) first.apply(own, a, a.c_starts, cell);
  const int mine = (own.tile * layout.units + own.unit) * kAFloats;  // in h and in `other`
  const float* const own_in = w_in + own.unit * layout.inputs * G * kBFloats;
  const float* const own_hid = w_hid + own.unit * layout.units * G * kBFloats;
  store_a(h + mine, own.lane, state);
  __syncthreads();  // what is copied must not be overwritten by zeros
  if (a.steps > 0) copy_inputs(a, layout, own, 0, x);
  wait_for_copies();
  __syncthreads();
  const int width = record_width(G);
  const bool paired = pairs(a, a.record) && pairs(a, a.h_all) && pairs(a, a.c_all);

  for (int64_t t = 0; t < a.steps; ++t) {
    if (t + 1 < a.steps) copy_inputs(a, layout, own, t + 1, x + (t + 1) % 2 * x_floats);
    const MmaBegins next(own, a, t + 1);
    MmaSum gate[G];
#pragma unroll
    for (int q = 0; q < G; ++q) gate[q].start(bias[q][0], bias[q][1]);
    __syncwarp();  // products are of whole warps
    const float* const rows = x + t % 2 * x_floats + own.tile * layout.inputs * kAFloats;
#pragma unroll 2
    for (int k = 0; k < layout.inputs; ++k) {
      const SplitA left = load_a(rows + k * kAFloats, own.lane);
#pragma unroll
      for (int q = 0; q < G; ++q) {
        gate[q].add(left, load_b(own_in + (k * G + q) * kBFloats, own.lane));
      }
    }
    constexpr int kOfState = G == 3 ? 2 : 4;  // gates that see h itself
#pragma unroll 2
    for (int k = 0; k < layout.units; ++k) {
      const SplitA left = load_a(h + (own.tile * layout.units + k) * kAFloats, own.lane);
#pragma unroll
      for (int q = 0; q < kOfState; ++q) {
        gate[q].add(left, load_b(own_hid + (k * G + q) * kBFloats, own.lane));
      }
    }
    float* const record =
        a.record == nullptr ? nullptr : a.record + t * a.vertices * width * H;
    const auto keep = [&](int place, const float(&values)[4]) {
      if (record == nullptr) return;
      store_values(own, a, record + place * H, width * H, paired, values);
    };
    if constexpr (G == 3) {
      float z[4], r[4], c[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        z[i] = sigmoid(gate[0].value(i));
        r[i] = sigmoid(gate[1].value(i));
        c[i] = r[i] * state[i];
      }
      store_a(other + mine, own.lane, c);
      keep(1, z);
      keep(2, r);
      __syncthreads();
#pragma unroll 2
      for (int k = 0; k < layout.units; ++k) {
        const SplitA left = load_a(other + (own.tile * layout.units + k) * kAFloats, own.lane);
        gate[2].add(left, load_b(own_hid + (k * G + 2) * kBFloats, own.lane));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        c[i] = tanhf(gate[2].value(i));
        state[i] = z[i] * state[i] + (1.0f - z[i]) * c[i];
      }
      keep(3, c);
    } else {
      float value[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        value[0][i] = sigmoid(gate[0].value(i));
        value[1][i] = sigmoid(gate[1].value(i));
        value[2][i] = tanhf(gate[2].value(i));
        value[3][i] = sigmoid(gate[3].value(i));
        cell[i] = value[1][i] * cell[i] + value[0][i] * value[2][i];
        state[i] = value[3][i] * tanhf(cell[i]);
      }
#pragma unroll
      for (int q = 0; q < 4; ++q) keep(1 + q, value[q]);
      keep(5, cell);
      if (a.c_all != nullptr) {
        store_values(own, a, a.c_all + t * a.vertices * H, H, paired, cell);
      }
    }
    keep(0, state);
    if (a.h_all != nullptr) {
      store_values(own, a, a.h_all + t * a.vertices * H, H, paired, state);
    }
    if (t + 1 == a.steps) break;
    next.apply(own, a, a.h_starts, state);
    if constexpr (G == 3) {
      store_a(h + mine, own.lane, state);
    } else {
      next.apply(own, a, a.c_starts, cell);
      store_a(other + mine, own.lane, state);
      float* const swap = h;
      h = other;
      other = swap;
    }
    wait_for_copies();
    __syncthreads();
  }
  store_values(own, a, a.h_last, H, pairs(a, a.h_last), state);
  if constexpr (G == 4) store_values(own, a, a.c_last, H, pairs(a, a.c_last), cell);
#endif
}

inline int launch_mma_forward(const ScanArgs& a, void* stream) {
  const auto bytes = [&](const MmaLayout& layout) { return mma_forward_bytes(layout, a.gates); };
  const MmaLayout layout = mma_layout(a, bytes);
  const auto kernel = a.gates == 3 ? &mma_forward<3> : &mma_forward<4>;
  return launch_mma(kernel, a, a.vertices, layout, bytes(layout), stream);
}

}  // namespace dgbench
