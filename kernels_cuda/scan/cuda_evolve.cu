// EvolveGCN-O's weight evolution by a GRU cell over all steps, forward and backward; the mathematics
// is scan/cpu_evolve.hpp's: four columns of gates r, z, a, b, n = tanh(a + r b), w' = n + z (w - n).
//
// Rows of a weight are independent, so a block owns RT of them for all steps, with the packed gates
// in shared memory where they fit. A gate before its activation is shared out along its inputs
// where that gives idle threads work; pieces are added in order. Backward, four launches:
//   1. all weights [T M, O] are known, so gates of every step are made again at once, and kept as
//      what a weight's gradient dw is to be multiplied with: slopes of r, z, a, b, and z;
//   2. a block walks its rows backwards: slopes = dw * those (left in their place), and
//      dw before = grad + dw z + slopes [w_ih; w_hh];
//   3. slopes^T [w before | 1] in tiles and parts along T M (scan/cuda_tile_product.cuh);
//   4. the parts' sums, for w_ih and w_hh at once.
//
// Counted, not measured, T = 16, M = O = 32 (1.7 GHz): forward reads 25 kB in each of 32 blocks, writes
// 64 kB and does 2.1 M multiply-adds in 16 serial steps of two barriers. A step is 256 reads of
// shared memory by a block's warps, a sum of pieces, a sigmoid and a tanh: about 500 cycles, 5 us in
// all. Launch 2 is the same in reverse; 1, 3 and 4 have 128, 128 and 17 blocks without a serial step
// and take about 2 us each. With gaps between launches about 20 us a layer.
#include "scan/cuda_launchers.h"
#include "scan/cuda_tile.cuh"
#include "scan/cuda_tile_product.cuh"

namespace dgbench {
namespace {

constexpr int kFactors = 5;  // what dw is multiplied with for r, z, a, b, and past the gates

// How the inputs of a product are shared out: `parts` pieces of `length`, the last one shorter.
struct Pieces {
  int length, parts;

  Pieces(int64_t inputs, int64_t outputs) {
    const int64_t threads = kBlock / outputs;
    length = static_cast<int>(ceil_div(inputs, threads < 1 ? 1 : threads));
    parts = static_cast<int>(ceil_div(inputs, length));
  }
};

struct Walk {
  EvolveArgs a;
  Pieces pieces;
  const float* packed;  // gates in global memory, where they do not fit
  float* factors;       // [T M, 5, O]
};

// One value of each of a block's rows, side by side.
template <int RT>
struct alignas(4 * RT) Rows {
  float at[RT];
};

// Element i of the weights that the steps start from, [T, M, O].
__device__ __forceinline__ float before(const EvolveArgs& a, int64_t i) {
  const int64_t one = a.rows * a.width;
  return i < one ? a.initial[i] : a.weights[i - one];
}

// Gates r, z, a, b in columns [O + 1, 4 O], the biases last; rows are padded by one, so that columns
// can be written at once.
struct PackGates {
  EvolveArgs a;
  float* to;

  __host__ __device__ static int64_t pitch(int64_t width) { return 4 * width + 1; }
  __host__ __device__ static int64_t size(int64_t width) { return (width + 1) * pitch(width); }

  __device__ void operator()(int64_t i) const {
    const int inputs = a.width + 1;  // the bias included
    const int column = static_cast<int>(i) / inputs;
    const int k = static_cast<int>(i) % inputs;
    const int gate = column / a.width;
    const int row = gate == 3 ? column - a.width : column;
    const int64_t at = int64_t{row} * a.width + k;
    float value = 0.0f;
    if (gate != 3) value += k < a.width ? a.w_ih[at] : a.b_ih[row];
    if (gate != 2) value += k < a.width ? a.w_hh[at] : a.b_hh[row];
    to[k * pitch(a.width) + column] = value;
  }
};

// Gates in rows [4 O, O]; element i, which is (row, k).
struct GateRows {
  const float *w_ih, *w_hh;
  int64_t square;  // O O

  __device__ float operator()(int64_t i) const {
    if (i >= 3 * square) return w_hh[i - square];
    return i >= 2 * square ? w_ih[i] : w_ih[i] + w_hh[i];
  }
};

// Writes pieces of sum over k of left[k] weight(k * pitch + column) to out [parts, outputs].
template <int RT, class Weight>
__device__ __forceinline__ void multiply(int inputs, int outputs, Pieces pieces,
                                         const Rows<RT>* left, const Weight& weight, int pitch,
                                         Rows<RT>* out) {
  const int part = static_cast<int>(threadIdx.x) / outputs;
  if (part >= pieces.parts) return;
  const int begin = part * pieces.length;
  const int end = begin + pieces.length < inputs ? begin + pieces.length : inputs;
  for (int column = threadIdx.x % outputs; column < outputs; column += kBlock) {
    Rows<RT> sum = {};
#pragma unroll 8
    for (int k = begin; k < end; ++k) {
      const float w = weight(int64_t{k} * pitch + column);
      const Rows<RT> value = left[k];
#pragma unroll
      for (int i = 0; i < RT; ++i) sum.at[i] += value.at[i] * w;
    }
    out[part * outputs + column] = sum;
  }
}

template <int RT>
__device__ __forceinline__ float add_pieces(const Rows<RT>* sums, int parts, int outputs, int column,
                                            int row, float sum) {
#pragma unroll 8
  for (int p = 0; p < parts; ++p) sum += sums[p * outputs + column].at[row];
  return sum;
}

// With FACTORS, rows are those of all T steps, which go one step and leave factors.
template <int RT, bool SHARED, bool FACTORS>
__global__ void __launch_bounds__(kBlock, 4) evolve_forward(const Walk walk) {
  extern __shared__ float shared[];
  const EvolveArgs& a = walk.a;
  const int O = a.width;
  const int outputs = 4 * O;
  const int64_t steps = FACTORS ? 1 : a.steps;
  const int64_t rows = FACTORS ? a.steps * a.rows : a.rows;
  Rows<RT>* const state = reinterpret_cast<Rows<RT>*>(shared);  // [O]
  Rows<RT>* const sums = state + O;                             // [parts, 4 O]
  float* const place = reinterpret_cast<float*>(sums + walk.pieces.parts * outputs);
  const float* const gates = SHARED ? place : walk.packed;
  const int pitch = static_cast<int>(PackGates::pitch(O));
  if constexpr (SHARED) {
    const PackGates pack{a, place};
    for (int i = threadIdx.x; i < outputs * (O + 1); i += kBlock) pack(i);
  }
  const float* const bias = gates + int64_t{O} * pitch;
  const int row = threadIdx.x % RT;
  const int tiles = static_cast<int>((rows + RT - 1) / RT);

  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t v = int64_t{tile} * RT + row;
    for (int j = threadIdx.x / RT; j < O; j += kBlock / RT) {
      state[j].at[row] = v < rows ? before(a, v * O + j) : 0.0f;
    }
    for (int64_t t = 0; t < steps; ++t) {
      __syncthreads();
      multiply<RT>(O, outputs, walk.pieces, state, [gates](int64_t i) { return gates[i]; }, pitch,
                   sums);
      __syncthreads();
      for (int j = threadIdx.x / RT; j < O; j += kBlock / RT) {
        float gate[4];
#pragma unroll
        for (int g = 0; g < 4; ++g) {
          gate[g] = add_pieces<RT>(sums, walk.pieces.parts, outputs, g * O + j, row, bias[g * O + j]);
        }
        const float r = sigmoid(gate[0]);
        const float z = sigmoid(gate[1]);
        const float n = tanhf(gate[2] + r * gate[3]);
        const float w = state[j].at[row];
        if constexpr (FACTORS) {
          if (v >= rows) continue;
          float* const to = walk.factors + v * kFactors * O + j;
          const float candidate = (1.0f - z) * (1.0f - n * n);
          to[0] = candidate * gate[3] * r * (1.0f - r);
          to[O] = (w - n) * z * (1.0f - z);
          to[2 * O] = candidate;
          to[3 * O] = candidate * r;
          to[4 * O] = z;
        } else {
          const float next = n + z * (w - n);
          state[j].at[row] = next;  // only this thread reads this w in this phase
          if (v < rows) a.weights[(t * rows + v) * O + j] = next;
        }
      }
    }
  }
}

// The factors of one row's unit at a step, and the gradient that comes in there.
struct Incoming {
  float factor[kFactors], grad;

  __device__ Incoming(const Walk& walk, int64_t t, int64_t v, int j) : factor{}, grad(0.0f) {
    const EvolveArgs& a = walk.a;
    if (t < 0 || v >= a.rows || j >= a.width) return;
    const int64_t at = t * a.rows + v;
    const float* const from = walk.factors + at * kFactors * a.width + j;
#pragma unroll
    for (int g = 0; g < kFactors; ++g) factor[g] = from[g * a.width];
    grad = a.grad[at * a.width + j];
  }
};

template <int RT, bool SHARED>
__global__ void __launch_bounds__(kBlock, 4) evolve_backward(const Walk walk) {
  extern __shared__ float shared[];
  const EvolveArgs& a = walk.a;
  const int O = a.width;
  const int parts = walk.pieces.parts;
  Rows<RT>* const slopes = reinterpret_cast<Rows<RT>*>(shared);  // [4 O]
  Rows<RT>* const kept = slopes + 4 * O;                         // [O], dw past the gates
  Rows<RT>* const sums = kept + O;                               // [parts, O]
  float* const place = reinterpret_cast<float*>(sums + parts * O);
  const GateRows gates{a.w_ih, a.w_hh, int64_t{O} * O};
  if constexpr (SHARED) {
    for (int i = threadIdx.x; i < 4 * O * O; i += kBlock) place[i] = gates(i);
  }
  const int row = threadIdx.x % RT;
  const int own = threadIdx.x / RT;
  const int tiles = static_cast<int>((a.rows + RT - 1) / RT);

  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t v = int64_t{tile} * RT + row;
    // What a thread reads first is on its way while the step after is multiplied.
    Incoming ahead(walk, a.steps - 1, v, own);
    for (int64_t t = a.steps - 1; t >= 0; --t) {
      for (int j = own; j < O; j += kBlock / RT) {
        const Incoming in = j == own ? ahead : Incoming(walk, t, v, j);
        float dw = in.grad;
        if (t < a.steps - 1) dw += add_pieces<RT>(sums, parts, O, j, row, kept[j].at[row]);
        float* const to = walk.factors + (t * a.rows + v) * kFactors * O + j;
#pragma unroll
        for (int g = 0; g < 4; ++g) {
          const float slope = dw * in.factor[g];
          slopes[g * O + j].at[row] = slope;
          if (v < a.rows) to[g * O] = slope;
        }
        kept[j].at[row] = dw * in.factor[4];
      }
      ahead = Incoming(walk, t - 1, v, own);
      __syncthreads();
      if constexpr (SHARED) {
        multiply<RT>(4 * O, O, walk.pieces, slopes, [place](int64_t i) { return place[i]; }, O, sums);
      } else {
        multiply<RT>(4 * O, O, walk.pieces, slopes, gates, O, sums);
      }
      __syncthreads();
    }
    for (int j = own; j < O && v < a.rows; j += kBlock / RT) {
      a.grad_initial[v * O + j] =
          a.steps > 0 ? add_pieces<RT>(sums, parts, O, j, row, kept[j].at[row]) : 0.0f;
    }
  }
}

template <int RT, bool SHARED>
struct Forward {
  static auto function() { return &evolve_forward<RT, SHARED, false>; }
};
template <int RT, bool SHARED>
struct Factors {
  static auto function() { return &evolve_forward<RT, SHARED, true>; }
};
template <int RT, bool SHARED>
struct Backward {
  static auto function() { return &evolve_backward<RT, SHARED>; }
};

// Floats of shared memory that one row takes.
int64_t forward_state(int64_t width, const Pieces& p) { return width + p.parts * 4 * width; }
int64_t backward_state(int64_t width, const Pieces& p) { return 5 * width + p.parts * width; }

// Blocks of one row each up to `per_processor` rows a processor, of four rows beyond.
Tiling tiling(int64_t per_processor) {
  return {1, per_processor * processors(), int64_t{8} * processors()};
}

// Packs the gates in global memory where a block cannot hold them.
int pack_large(const Walk& walk, float* packed, void* stream) {
  const int64_t width = walk.a.width;
  const int64_t needed = forward_state(width, walk.pieces) + PackGates::size(width);
  if (needed <= shared_limit() / 4) return 0;
  return for_each(4 * width * (width + 1), PackGates{walk.a, packed}, stream);
}

struct Slopes {  // as the left side of a product over the rows of all steps
  const float* factors;
  int64_t pitch;

  __device__ float operator()(int64_t column, int64_t step, int64_t) const {
    return factors[step * pitch + column];
  }
};

struct WeightsBefore {  // [w before | 1]
  EvolveArgs a;

  __device__ float operator()(int64_t step, int64_t k) const {
    return k < a.width ? before(a, step * a.width + k) : 1.0f;
  }
};

struct StoreSums {
  float* sums;  // [P, 4 O, O + 1]
  int64_t width;

  __device__ void operator()(int part, int64_t column, int64_t k, float value) const {
    sums[(part * 4 * width + column) * (width + 1) + k] = value;
  }
};

// Adds the parts in their order. r and z have one gradient for both weights, n one for each.
struct AddSums {
  EvolveArgs a;
  const float* sums;
  int64_t parts;

  __device__ void operator()(int64_t i) const {
    const int64_t inputs = a.width + 1;
    const int64_t column = i / inputs;
    const int64_t k = i % inputs;
    const int64_t gate = column / a.width;
    const int64_t row = gate == 3 ? column - a.width : column;
    const float sum = add_parts(sums + i, parts, 4 * a.width * inputs);
    const bool weight = k < a.width;
    const int64_t at = row * a.width + k;
    if (gate != 3) (weight ? a.grad_w_ih[at] : a.grad_b_ih[row]) = sum;
    if (gate != 2) (weight ? a.grad_w_hh[at] : a.grad_b_hh[row]) = sum;
  }
};

int64_t weight_parts(int64_t steps, int64_t rows, int64_t width) {
  return parts_of(4 * width, width + 1, steps * rows);
}

}  // namespace

extern "C" {

int64_t dgb_evolve_workspace_size(int64_t steps, int64_t rows, int64_t width, bool backward) {
  const int64_t packed = PackGates::size(width);
  if (!backward) return packed;
  return packed + steps * rows * kFactors * width +
         weight_parts(steps, rows, width) * 4 * width * (width + 1);
}

int dgb_evolve_forward(const EvolveArgs* args, void* stream) {
  const int64_t width = args->width;
  if (args->steps == 0 || args->rows == 0 || width == 0) return 0;
  const Walk walk{*args, Pieces(width, 4 * width), args->workspace, nullptr};
  const int status = pack_large(walk, args->workspace, stream);
  if (status != 0) return status;
  return launch_tiles<Forward>(walk, args->rows, forward_state(width, walk.pieces),
                               PackGates::size(width), tiling(8), stream);
}

int dgb_evolve_backward(const EvolveArgs* args, void* stream) {
  const int64_t width = args->width;
  if (width == 0) return 0;
  const int64_t depth = args->steps * args->rows;
  float* const factors = args->workspace + PackGates::size(width);
  float* const sums = factors + depth * kFactors * width;
  if (args->rows > 0) {
    const Walk ahead{*args, Pieces(width, 4 * width), args->workspace, factors};
    int status = pack_large(ahead, args->workspace, stream);
    if (status == 0 && depth > 0) {
      status = launch_tiles<Factors>(ahead, depth, forward_state(width, ahead.pieces),
                                     PackGates::size(width), tiling(2), stream);
    }
    if (status != 0) return status;
    const Walk back{*args, Pieces(4 * width, width), nullptr, factors};
    status = launch_tiles<Backward>(back, args->rows, backward_state(width, back.pieces),
                                    4 * width * width, tiling(8), stream);
    if (status != 0) return status;
  }
  const int64_t parts = weight_parts(args->steps, args->rows, width);
  const int status = launch_tile_product<true, true>(
      4 * width, width + 1, depth, parts, Slopes{factors, kFactors * width}, WeightsBefore{*args},
      StoreSums{sums, width}, stream);
  if (status != 0) return status;
  return for_each(4 * width * (width + 1), AddSums{*args, sums, parts}, stream);
}

}  // extern "C"

}  // namespace dgbench
