// GRU and LSTM over time, forward: one launch for all T steps (see scan/cuda_tile.cuh).
#include "scan/cuda_launchers.h"
#include "scan/cuda_mma_forward.cuh"
#include "scan/cuda_tile.cuh"

namespace dgbench {
namespace {

// The tile's vertices and the pieces of shared memory that all forward kernels need.
template <int RT>
struct Tile {
  static constexpr int kRows = kTileGroups * RT;
  int64_t first;
  int rows;  // vertices of this tile that exist

  __device__ explicit Tile(const ScanArgs& a)
      : first(static_cast<int64_t>(blockIdx.x) * kRows),
        rows(static_cast<int>(a.vertices - first < kRows ? a.vertices - first : kRows)) {}

  // Rows past the last vertex are zero, so that no step has to ask.
  __device__ void load_x(const ScanArgs& a, int64_t t, float* to) const {
    for (int i = threadIdx.x; i < kRows * a.features; i += kBlock) {
      const int row = i / a.features;
      const int k = i % a.features;
      to[i] = row < rows ? a.x[t * a.x_step + (first + row) * a.x_row + k] : 0.0f;
    }
  }

  __device__ void load_state(const ScanArgs& a, const float* from, float* to) const {
    for (int i = threadIdx.x; i < kRows * a.hidden; i += kBlock) {
      const bool inside = from != nullptr && i < rows * a.hidden;
      to[i] = inside ? from[first * a.hidden + i] : 0.0f;
    }
  }

  // Replaces the state of vertices whose next sequence begins at step t.
  __device__ void begin(const ScanArgs& a, int64_t t, const float* starts, float* state) const {
    for (int i = threadIdx.x; i < rows * a.hidden; i += kBlock) {
      const int32_t from = a.begins[t * a.vertices + first + i / a.hidden];
      if (from != -1) state[i] = start_of(starts, from, a.hidden, i % a.hidden);
    }
  }

  __device__ void store_state(const ScanArgs& a, const float* from, float* to) const {
    for (int i = threadIdx.x; i < rows * a.hidden; i += kBlock) {
      to[first * a.hidden + i] = from[i];
    }
  }

  __device__ float* record(const ScanArgs& a, int64_t t, int row, int j) const {
    return a.record +
           ((t * a.vertices + first + row) * record_width(a.gates)) * a.hidden + j;
  }
};

template <int RT, bool SHARED>
__global__ void __launch_bounds__(kBlock) gru_forward(const ScanArgs a) {
  extern __shared__ float shared[];
  const Tile<RT> tile(a);
  constexpr int kRows = Tile<RT>::kRows;
  const int H = a.hidden;
  const int F = a.features;
  const int GH = 3 * H;
  float* x = shared;             // [rows, F]
  float* h = x + kRows * F;    // [rows, H]
  float* z = h + kRows * H;    // [rows, H]
  float* rh = z + kRows * H;   // [rows, H], r * h
  float* place = rh + kRows * H;
  const float* w_in = weights_of<SHARED>(a.w_in, int64_t{F} * GH, place);
  const float* w_hid = weights_of<SHARED>(a.w_hid, int64_t{H} * GH, place + int64_t{F} * GH);
  tile.load_state(a, a.h0, h);

  for (int64_t t = 0; t < a.steps; ++t) {
    tile.load_x(a, t, x);
    if (a.begins != nullptr) tile.begin(a, t, a.h_starts, h);
    __syncthreads();
    for (int item = threadIdx.x; item < kTileGroups * H; item += kBlock) {
      const int j = item % H;
      const int row = item / H * RT;
      float az[RT], ar[RT];
#pragma unroll
      for (int i = 0; i < RT; ++i) {
        az[i] = a.bias[j];
        ar[i] = a.bias[H + j];
      }
      add_product<RT>(x + row * F, F, F, w_in + j, GH, az);
      add_product<RT>(x + row * F, F, F, w_in + H + j, GH, ar);
      add_product<RT>(h + row * H, H, H, w_hid + j, GH, az);
      add_product<RT>(h + row * H, H, H, w_hid + H + j, GH, ar);
#pragma unroll
      for (int i = 0; i < RT; ++i) {
        const int at = (row + i) * H + j;
        const float update = sigmoid(az[i]);
        const float reset = sigmoid(ar[i]);
        z[at] = update;
        rh[at] = reset * h[at];
        if (a.record != nullptr && row + i < tile.rows) {
          float* to = tile.record(a, t, row + i, j);
          to[H] = update;
          to[2 * H] = reset;
        }
      }
    }
    __syncthreads();
    for (int item = threadIdx.x; item < kTileGroups * H; item += kBlock) {
      const int j = item % H;
      const int row = item / H * RT;
      float ac[RT];
#pragma unroll
      for (int i = 0; i < RT; ++i) ac[i] = a.bias[2 * H + j];
      add_product<RT>(x + row * F, F, F, w_in + 2 * H + j, GH, ac);
      add_product<RT>(rh + row * H, H, H, w_hid + 2 * H + j, GH, ac);
#pragma unroll
      for (int i = 0; i < RT; ++i) {
        const int at = (row + i) * H + j;
        const float candidate = tanhf(ac[i]);
        const float next = z[at] * h[at] + (1.0f - z[at]) * candidate;
        h[at] = next;  // only this thread reads this h in this phase
        if (row + i >= tile.rows) continue;
        if (a.h_all != nullptr) a.h_all[(t * a.vertices + tile.first + row + i) * H + j] = next;
        if (a.record != nullptr) {
          float* to = tile.record(a, t, row + i, j);
          to[0] = next;
          to[3 * H] = candidate;
        }
      }
    }
    __syncthreads();
  }
  __syncthreads();  // for T = 0
  tile.store_state(a, h, a.h_last);
}

template <int RT, bool SHARED>
__global__ void __launch_bounds__(kBlock) lstm_forward(const ScanArgs a) {
  extern __shared__ float shared[];
  const Tile<RT> tile(a);
  constexpr int kRows = Tile<RT>::kRows;
  const int H = a.hidden;
  const int F = a.features;
  const int GH = 4 * H;
  float* x = shared;                // [rows, F]
  float* h = x + kRows * F;       // [rows, H]
  float* next = h + kRows * H;    // [rows, H], h of the next step
  float* c = next + kRows * H;    // [rows, H]
  float* place = c + kRows * H;
  const float* w_in = weights_of<SHARED>(a.w_in, int64_t{F} * GH, place);
  const float* w_hid = weights_of<SHARED>(a.w_hid, int64_t{H} * GH, place + int64_t{F} * GH);
  tile.load_state(a, a.h0, h);
  tile.load_state(a, a.c0, c);

  for (int64_t t = 0; t < a.steps; ++t) {
    tile.load_x(a, t, x);
    if (a.begins != nullptr) {
      tile.begin(a, t, a.h_starts, h);
      tile.begin(a, t, a.c_starts, c);
    }
    __syncthreads();
    for (int item = threadIdx.x; item < kTileGroups * H; item += kBlock) {
      const int j = item % H;
      const int row = item / H * RT;
      float gate[4][RT];
#pragma unroll
      for (int g = 0; g < 4; ++g) {
#pragma unroll
        for (int i = 0; i < RT; ++i) gate[g][i] = a.bias[g * H + j];
        add_product<RT>(x + row * F, F, F, w_in + g * H + j, GH, gate[g]);
        add_product<RT>(h + row * H, H, H, w_hid + g * H + j, GH, gate[g]);
      }
#pragma unroll
      for (int i = 0; i < RT; ++i) {
        const int at = (row + i) * H + j;
        const float in = sigmoid(gate[0][i]);
        const float forget = sigmoid(gate[1][i]);
        const float fresh = tanhf(gate[2][i]);
        const float out = sigmoid(gate[3][i]);
        const float cell = forget * c[at] + in * fresh;
        const float state = out * tanhf(cell);
        c[at] = cell;
        next[at] = state;
        if (row + i >= tile.rows) continue;
        if (a.h_all != nullptr) a.h_all[(t * a.vertices + tile.first + row + i) * H + j] = state;
        if (a.c_all != nullptr) a.c_all[(t * a.vertices + tile.first + row + i) * H + j] = cell;
        if (a.record != nullptr) {
          float* to = tile.record(a, t, row + i, j);
          to[0] = state;
          to[H] = in;
          to[2 * H] = forget;
          to[3 * H] = fresh;
          to[4 * H] = out;
          to[5 * H] = cell;
        }
      }
    }
    __syncthreads();
    float* swap = h;
    h = next;
    next = swap;
  }
  __syncthreads();
  tile.store_state(a, h, a.h_last);
  tile.store_state(a, c, a.c_last);
}

template <int RT, bool SHARED>
struct GruForward {
  static auto function() { return &gru_forward<RT, SHARED>; }
};
template <int RT, bool SHARED>
struct LstmForward {
  static auto function() { return &lstm_forward<RT, SHARED>; }
};

}  // namespace

extern "C" {

int64_t dgb_scan_record_size(int64_t steps, int64_t vertices, int64_t, int64_t hidden,
                             int64_t gates) {
  return steps * vertices * record_width(static_cast<int>(gates)) * hidden;
}

int dgb_scan_forward(const ScanArgs* args, void* stream) {
  if (args->vertices == 0 || args->hidden == 0) return 0;
  if (args->products == kSplitProducts &&
      dgb_scan_splits(args->features, args->hidden, args->gates)) {
    return launch_mma_forward(*args, stream);
  }
  const int64_t weight =
      int64_t{args->features + args->hidden} * args->gates * args->hidden;
  const int64_t state = args->features + int64_t{3} * args->hidden;
  if (args->gates == 3) {
    return launch_tiles<GruForward>(*args, args->vertices, state, weight, scan_tiling(), stream);
  }
  return launch_tiles<LstmForward>(*args, args->vertices, state, weight, scan_tiling(), stream);
}

}  // extern "C"

}  // namespace dgbench
