// GRU and LSTM over time, backward, in a fixed order of additions.
//
// One launch walks the steps backwards and leaves the gradients of the gates before their
// activations, dG [T, N, G H]; the recurrence needs nothing else. All other gradients are products
// of dG with things at hand (scan/cuda_tile_product.cuh): dx = dG W_in^T, and for the weights
// [x | h_prev | 1]^T dG, cut along T N into parts that are summed in order.
//
// Workspace: dG, then W_hid transposed [G H, H], then the parts [P, F + H + 1, G H].
#include "scan/cuda_launchers.h"
#include "scan/cuda_mma_backward.cuh"
#include "scan/cuda_mma_product.cuh"
#include "scan/cuda_tile.cuh"
#include "scan/cuda_tile_product.cuh"

namespace dgbench {
namespace {

// Columns of the weights' gradients [x | h_prev | 1]^T dG as they lie in the product: the GRU's
// candidate sees r * h_prev in h_prev's place and begins with a tile of its own.
struct Columns {
  int64_t width, plain, first;  // G H; how many see h_prev; column of the product where others begin

  __host__ __device__ Columns(int64_t gates, int64_t hidden)
      : width(gates * hidden),
        plain(gates == 3 ? 2 * hidden : width),
        first((plain + kTile - 1) / kTile * kTile) {}

  int64_t count() const { return plain == width ? width : first + width - plain; }
  // Gate column of column j of the product, -1 for what fills up a tile.
  __device__ int64_t gate(int64_t j) const {
    if (j < plain) return j;
    return j < first ? -1 : plain + j - first;
  }
};

int64_t weight_parts(int64_t vertex_steps, int64_t features, int64_t hidden, int64_t gates) {
  return parts_of(features + hidden + 1, Columns(gates, hidden).count(), vertex_steps);
}

struct Workspace {
  float *dg, *w_hid_t, *sums;

  Workspace(const ScanArgs& a, float* shared)
      : dg(shared),
        w_hid_t(dg + a.steps * a.vertices * a.gates * a.hidden),
        sums(w_hid_t + int64_t{a.gates} * a.hidden * a.hidden) {}
};

// h that step t of vertex v started from, unit j.
__device__ __forceinline__ float previous(const ScanArgs& a, int64_t t, int64_t v, int j) {
  if (a.begins != nullptr) {
    const int32_t from = a.begins[t * a.vertices + v];
    if (from != -1) return start_of(a.h_starts, from, a.hidden, j);
  }
  if (t > 0) return a.record[((t - 1) * a.vertices + v) * record_width(a.gates) * a.hidden + j];
  return a.h0 != nullptr ? a.h0[v * a.hidden + j] : 0.0f;
}

// c likewise; `saved` is the record of step t at unit j.
__device__ __forceinline__ float previous_cell(const ScanArgs& a, int64_t t, int64_t v, int j,
                                               const float* saved) {
  if (a.begins != nullptr) {
    const int32_t from = a.begins[t * a.vertices + v];
    if (from != -1) return start_of(a.c_starts, from, a.hidden, j);
  }
  if (t > 0) return saved[5 * a.hidden - a.vertices * 6 * a.hidden];
  return a.c0 != nullptr ? a.c0[v * a.hidden + j] : 0.0f;
}

// The gradient of the state that step t of vertex v started from leaves to its start, if it has one.
__device__ __forceinline__ void leave(const ScanArgs& a, int64_t t, int64_t v, int j, float* grad,
                                      float* grad_starts) {
  if (a.begins == nullptr || v >= a.vertices) return;
  const int32_t from = a.begins[t * a.vertices + v];
  if (from == -1) return;
  if (from >= 0 && grad_starts != nullptr) grad_starts[int64_t{from} * a.hidden + j] = *grad;
  *grad = 0.0f;
}

template <int RT>
__device__ __forceinline__ void load_gradient(const ScanArgs& a, const float* from, float* to) {
  constexpr int kRows = kTileGroups * RT;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows * a.hidden;
  const int64_t count = a.vertices * a.hidden;
  for (int i = threadIdx.x; i < kRows * a.hidden; i += kBlock) {
    to[i] = from != nullptr && first + i < count ? from[first + i] : 0.0f;
  }
}

template <int RT>
__device__ __forceinline__ void store_gradient(const ScanArgs& a, const float* from, float* to) {
  constexpr int kRows = kTileGroups * RT;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows * a.hidden;
  const int64_t count = a.vertices * a.hidden;
  if (to == nullptr) return;
  for (int i = threadIdx.x; i < kRows * a.hidden; i += kBlock) {
    if (first + i < count) to[first + i] = from[i];
  }
}

template <int RT, bool SHARED>
__global__ void __launch_bounds__(kBlock) gru_backward(const StepArgs args) {
  extern __shared__ float shared[];
  const ScanGradArgs& g = args.a;
  const ScanArgs& a = g.in;
  constexpr int kRows = kTileGroups * RT;
  const int H = a.hidden;
  const int GH = 3 * H;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows;
  float* dh = shared;              // [rows, H]
  float* da = dh + kRows * H;    // [rows, 3 H], gradients of the gates before activation
  const float* w = weights_of<SHARED>(args.w_hid_t, int64_t{GH} * H, da + kRows * GH);
  load_gradient<RT>(a, g.grad_h_last, dh);

  for (int64_t t = a.steps - 1; t >= 0; --t) {
    __syncthreads();
    for (int i = threadIdx.x; i < kRows * H; i += kBlock) {
      const int row = i / H;
      const int j = i % H;
      const int64_t v = first + row;
      float daz = 0.0f, dac = 0.0f;
      if (v < a.vertices) {
        const int64_t step = t * a.vertices + v;
        const float* saved = a.record + step * 4 * H + j;
        const float z = saved[H];
        const float c = saved[3 * H];
        float grad = dh[i];
        if (g.grad_h_all != nullptr) grad += g.grad_h_all[step * H + j];
        daz = grad * (previous(a, t, v, j) - c) * z * (1.0f - z);
        dac = grad * (1.0f - z) * (1.0f - c * c);
        dh[i] = grad * z;
        args.dg[step * GH + j] = daz;
        args.dg[step * GH + 2 * H + j] = dac;
      }
      da[row * GH + j] = daz;
      da[row * GH + 2 * H + j] = dac;
    }
    __syncthreads();
    for (int item = threadIdx.x; item < kTileGroups * H; item += kBlock) {
      const int j = item % H;
      const int row = item / H * RT;
      float drh[RT] = {};
      add_product<RT>(da + row * GH + 2 * H, GH, H, w + int64_t{2} * H * H + j, H, drh);
#pragma unroll
      for (int i = 0; i < RT; ++i) {
        const int64_t v = first + row + i;
        float dar = 0.0f;
        if (v < a.vertices) {
          const int64_t step = t * a.vertices + v;
          const float r = a.record[step * 4 * H + 2 * H + j];
          dar = drh[i] * previous(a, t, v, j) * r * (1.0f - r);
          dh[(row + i) * H + j] += drh[i] * r;
          args.dg[step * GH + H + j] = dar;
        }
        da[(row + i) * GH + H + j] = dar;
      }
    }
    __syncthreads();
    for (int item = threadIdx.x; item < kTileGroups * H; item += kBlock) {
      const int j = item % H;
      const int row = item / H * RT;
      float sum[RT] = {};
      add_product<RT>(da + row * GH, GH, 2 * H, w + j, H, sum);
#pragma unroll
      for (int i = 0; i < RT; ++i) {
        const int at = (row + i) * H + j;
        dh[at] += sum[i];
        leave(a, t, first + row + i, j, dh + at, g.grad_h_starts);
      }
    }
  }
  __syncthreads();
  store_gradient<RT>(a, dh, g.grad_h0);
}

template <int RT, bool SHARED>
__global__ void __launch_bounds__(kBlock) lstm_backward(const StepArgs args) {
  extern __shared__ float shared[];
  const ScanGradArgs& g = args.a;
  const ScanArgs& a = g.in;
  constexpr int kRows = kTileGroups * RT;
  const int H = a.hidden;
  const int GH = 4 * H;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows;
  float* dh = shared;              // [rows, H]
  float* dc = dh + kRows * H;    // [rows, H]
  float* da = dc + kRows * H;    // [rows, 4 H]
  const float* w = weights_of<SHARED>(args.w_hid_t, int64_t{GH} * H, da + kRows * GH);
  load_gradient<RT>(a, g.grad_h_last, dh);
  load_gradient<RT>(a, g.grad_c_last, dc);

  for (int64_t t = a.steps - 1; t >= 0; --t) {
    __syncthreads();
    for (int i = threadIdx.x; i < kRows * H; i += kBlock) {
      const int row = i / H;
      const int j = i % H;
      const int64_t v = first + row;
      float grad[4] = {};
      if (v < a.vertices) {
        const int64_t step = t * a.vertices + v;
        const float* saved = a.record + step * 6 * H + j;
        const float in = saved[H], forget = saved[2 * H], fresh = saved[3 * H];
        const float out = saved[4 * H];
        const float squashed = tanhf(saved[5 * H]);
        const float before = previous_cell(a, t, v, j, saved);
        float grad_h = dh[i];
        if (g.grad_h_all != nullptr) grad_h += g.grad_h_all[step * H + j];
        float grad_c = dc[i] + grad_h * out * (1.0f - squashed * squashed);
        if (g.grad_c_all != nullptr) grad_c += g.grad_c_all[step * H + j];
        grad[0] = grad_c * fresh * in * (1.0f - in);
        grad[1] = grad_c * before * forget * (1.0f - forget);
        grad[2] = grad_c * in * (1.0f - fresh * fresh);
        grad[3] = grad_h * squashed * out * (1.0f - out);
        dc[i] = grad_c * forget;
#pragma unroll
        for (int q = 0; q < 4; ++q) args.dg[step * GH + q * H + j] = grad[q];
      }
#pragma unroll
      for (int q = 0; q < 4; ++q) da[row * GH + q * H + j] = grad[q];
    }
    __syncthreads();
    for (int item = threadIdx.x; item < kTileGroups * H; item += kBlock) {
      const int j = item % H;
      const int row = item / H * RT;
      float sum[RT] = {};
      add_product<RT>(da + row * GH, GH, GH, w + j, H, sum);
#pragma unroll
      for (int i = 0; i < RT; ++i) {
        const int at = (row + i) * H + j;
        dh[at] = sum[i];
        leave(a, t, first + row + i, j, dh + at, g.grad_h_starts);
        leave(a, t, first + row + i, j, dc + at, g.grad_c_starts);
      }
    }
  }
  __syncthreads();
  store_gradient<RT>(a, dh, g.grad_h0);
  store_gradient<RT>(a, dc, g.grad_c0);
}

template <int RT, bool SHARED>
struct GruBackward {
  static auto function() { return &gru_backward<RT, SHARED>; }
};
template <int RT, bool SHARED>
struct LstmBackward {
  static auto function() { return &lstm_backward<RT, SHARED>; }
};

struct Transpose {
  const float* from;  // [rows, columns]
  float* to;
  int64_t rows, columns;

  __device__ void operator()(int64_t i) const {
    to[i % columns * rows + i / columns] = from[i];
  }
};

struct GateGradient {  // dG as the right side of a product over vertex-steps
  const float* dg;
  Columns columns;

  __device__ float operator()(int64_t step, int64_t j) const {
    const int64_t m = columns.gate(j);
    return m < 0 ? 0.0f : dg[step * columns.width + m];
  }
};

// [x | h_prev | 1], or [x | r * h_prev | 1] for the columns of the GRU's candidate.
struct Inputs {
  ScanArgs a;
  int64_t reset_from;

  __device__ float operator()(int64_t k, int64_t step, int64_t j0) const {
    const int64_t t = step / a.vertices;
    const int64_t v = step % a.vertices;
    if (k < a.features) return a.x[t * a.x_step + v * a.x_row + k];
    const int j = static_cast<int>(k - a.features);
    if (j == a.hidden) return 1.0f;
    const float h = previous(a, t, v, j);
    return j0 >= reset_from ? h * a.record[step * 4 * a.hidden + 2 * a.hidden + j] : h;
  }
};

struct StorePart {
  float* sums;  // [P, rows, width]
  int64_t rows;
  Columns columns;

  __device__ void operator()(int part, int64_t k, int64_t j, float value) const {
    const int64_t m = columns.gate(j);
    if (m >= 0) sums[(part * rows + k) * columns.width + m] = value;
  }
};

// Adds the parts of one weight in their order.
struct AddParts {
  const float* sums;
  int64_t parts, rows, width, features, hidden;
  float *w_in, *w_hid, *bias;

  __device__ void operator()(int64_t i) const {
    const float sum = add_parts(sums + i, parts, rows * width);
    const int64_t k = i / width;
    const int64_t m = i % width;
    if (k < features) {
      if (w_in != nullptr) w_in[k * width + m] = sum;
    } else if (k < features + hidden) {
      if (w_hid != nullptr) w_hid[(k - features) * width + m] = sum;
    } else if (bias != nullptr) {
      bias[m] = sum;
    }
  }
};

struct RowOfGates {
  const float* dg;
  int64_t width;

  __device__ float operator()(int64_t step, int64_t m, int64_t) const {
    return dg[step * width + m];
  }
};

struct TransposedWeight {
  const float* w_in;  // [F, G H]
  int64_t width;

  __device__ float operator()(int64_t m, int64_t f) const { return w_in[f * width + m]; }
};

struct StoreX {
  float* grad;
  int64_t step_stride, row_stride, vertices;

  __device__ void operator()(int, int64_t step, int64_t f, float value) const {
    grad[step / vertices * step_stride + step % vertices * row_stride + f] = value;
  }
};

bool split_products(const ScanArgs& a) {
  return a.products == kSplitProducts && mma_fits(a.features, a.hidden, a.gates);
}

int walk_back(const ScanGradArgs& g, const Workspace& w, void* stream) {
  const ScanArgs& a = g.in;
  const StepArgs steps{g, w.dg, w.w_hid_t};
  if (split_products(a)) return launch_mma_backward(steps, stream);
  const int64_t width = int64_t{a.gates} * a.hidden;
  const int64_t weight = width * a.hidden;
  const int status =
      for_each(weight, Transpose{a.w_hid, w.w_hid_t, a.hidden, width}, stream);
  if (status != 0) return status;
  if (a.gates == 3) {
    return launch_tiles<GruBackward>(steps, a.vertices, 4 * int64_t{a.hidden}, weight,
                                     scan_tiling(), stream);
  }
  return launch_tiles<LstmBackward>(steps, a.vertices, 6 * int64_t{a.hidden}, weight,
                                    scan_tiling(), stream);
}

int weight_gradients(const ScanGradArgs& g, const Workspace& w, void* stream) {
  const ScanArgs& a = g.in;
  const Columns columns(a.gates, a.hidden);
  const int64_t width = columns.width;
  const int64_t rows = int64_t{a.features} + a.hidden + 1;
  const int64_t depth = a.steps * a.vertices;
  const int64_t parts = weight_parts(depth, a.features, a.hidden, a.gates);
  const int64_t reset_from = a.gates == 3 ? columns.first : columns.count();
  const int status = launch_product<true, true>(
      split_products(a), rows, columns.count(), depth, parts, Inputs{a, reset_from},
      GateGradient{w.dg, columns}, StorePart{w.sums, rows, columns}, stream);
  if (status != 0) return status;
  return for_each(rows * width,
                  AddParts{w.sums, parts, rows, width, a.features, a.hidden, g.grad_w_in,
                           g.grad_w_hid, g.grad_bias},
                  stream);
}

}  // namespace

extern "C" {

int64_t dgb_scan_workspace_size(int64_t steps, int64_t vertices, int64_t features, int64_t hidden,
                                int64_t gates) {
  const int64_t width = gates * hidden;
  return steps * vertices * width + width * hidden +
         weight_parts(steps * vertices, features, hidden, gates) * (features + hidden + 1) * width;
}

bool dgb_scan_splits(int64_t features, int64_t hidden, int64_t gates) {
  return mma_fits(static_cast<int>(features), static_cast<int>(hidden), static_cast<int>(gates));
}

int dgb_scan_backward(const ScanGradArgs* args, void* stream) {
  const ScanArgs& a = args->in;
  if (a.hidden == 0) return 0;
  const Workspace w(a, args->workspace);
  const int64_t width = int64_t{a.gates} * a.hidden;
  int status = a.vertices > 0 ? walk_back(*args, w, stream) : 0;
  if (status != 0) return status;
  if (args->grad_w_in != nullptr || args->grad_w_hid != nullptr || args->grad_bias != nullptr) {
    status = weight_gradients(*args, w, stream);
    if (status != 0) return status;
  }
  if (args->grad_x == nullptr) return 0;
  return launch_product<false, false>(
      split_products(a), a.steps * a.vertices, a.features, width, 1, RowOfGates{w.dg, width},
      TransposedWeight{a.w_in, width},
      StoreX{args->grad_x, args->grad_x_step, args->grad_x_row, a.vertices}, stream);
}

}  // extern "C"

}  // namespace dgbench
