// What the GRU and the LSTM scan share: shapes, packed weights, scratch, and the fixed cut of the
// vertices into blocks and shards.
//
// A block of vertices runs through all T steps while its state stays in cache. What the backward
// pass needs of a block is its record (states and gates of every step). The forward pass drops it
// and the backward pass makes it again, block by block, in cache: for T 16, N 20000, F 16, H 32
// writing and reading 164 MB of records saves 7 % of the time when that memory is warm and doubles
// it when its pages are fresh.
// Blocks and shards depend on the shapes only and shards are summed in order, so the result does
// not depend on the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "scan/cpu_gemm.hpp"
#include "scan/cpu_math.hpp"

namespace dgbench::scan {

constexpr int64_t kMaxShards = 16;
constexpr int64_t kMaxBlock = 48;      // rows; a multiple of the 4 and 6 rows of the kernels
constexpr int64_t kRecordBytes = 512 << 10;  // per block: half of a usual L2

template <class R>
struct Shape {
  int64_t steps, vertices, features, hidden;
  int64_t gates;                 // 3 (GRU) or 4 (LSTM)
  int64_t hv, fv;                // vectors to a padded row of H, of F
  int64_t hp, fp, gp;            // the same in elements: H, F, gates * H padded
  int64_t block, blocks, shards;
  int64_t record_rows;           // rows of hp elements in the record of one vertex

  Shape(int64_t t, int64_t n, int64_t f, int64_t h, int64_t g)
      : steps(t), vertices(n), features(f), hidden(h), gates(g) {
    constexpr int64_t lanes = Lanes<R>::count;
    hv = (h + lanes - 1) / lanes;
    fv = (f + lanes - 1) / lanes;
    hp = hv * lanes;
    fp = fv * lanes;
    gp = gates * hp;
    // GRU: h of T + 1 steps, z, r, c of T. LSTM: h and c of T + 1 steps, i, f, g, o of T.
    record_rows = g == 3 ? 4 * t + 1 : 6 * t + 2;
    const int64_t fit = kRecordBytes / std::max<int64_t>(1, record_rows * hp * int64_t(sizeof(R)));
    const int64_t spread = n / kMaxShards;
    block = std::clamp<int64_t>(std::min(fit, spread) / 12 * 12, 12, kMaxBlock);
    blocks = (n + block - 1) / block;
    shards = std::min(kMaxShards, blocks);
  }

  int64_t block_record() const { return block * record_rows * hp; }
  int64_t rows_of(int64_t b) const { return std::min(block, vertices - b * block); }
  int64_t shard_begin(int64_t s) const { return s * blocks / shards; }
};

// Grows and is kept for the next call of the same thread: fresh pages would cost a small scan more
// than its arithmetic.
template <class R>
class Scratch {
 public:
  // Null where there is no memory; inside a parallel region nothing may be thrown. Of nothing, too,
  // there is a place.
  R* try_get(int64_t count) {
    count = std::max<int64_t>(1, count);
    if (count > size_) {
      data_.reset();
      size_ = 0;
      const size_t bytes = (size_t(count) * sizeof(R) + 63) / 64 * 64;
      data_.reset(static_cast<R*>(std::aligned_alloc(64, bytes)));
      if (data_) size_ = count;
    }
    return data_.get();
  }

  R* get(int64_t count) {
    R* memory = try_get(count);
    if (!memory) throw std::bad_alloc();
    return memory;
  }

 private:
  struct Free {
    void operator()(R* p) const { std::free(p); }
  };
  std::unique_ptr<R, Free> data_;
  int64_t size_ = 0;
};

// Copies [rows, gates * hidden] with every gate padded to hp columns; `out` is [rows, gp].
template <class R>
void pad_gates(const Shape<R>& s, const R* in, int64_t rows, R* out) {
  std::fill_n(out, rows * s.gp, R(0));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t g = 0; g < s.gates; ++g) {
      std::copy_n(in + (i * s.gates + g) * s.hidden, s.hidden, out + i * s.gp + g * s.hp);
    }
  }
}

template <class R>
void unpad_gates(const Shape<R>& s, const R* in, int64_t rows, R* out) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t g = 0; g < s.gates; ++g) {
      std::copy_n(in + i * s.gp + g * s.hp, s.hidden, out + (i * s.gates + g) * s.hidden);
    }
  }
}

// The weights, padded; and transposed for the backward pass: row = gate column, column = input.
template <class R>
struct Packed {
  R *w_in, *w_hid, *bias, *w_in_t, *w_hid_t;

  static int64_t size(const Shape<R>& s) {
    return (s.features + s.hidden + 1) * s.gp + s.gp * (s.fp + s.hp);
  }

  Packed(const Shape<R>& s, R* memory, const R* in, const R* hid, const R* b, bool backward) {
    w_in = memory;
    w_hid = w_in + s.features * s.gp;
    bias = w_hid + s.hidden * s.gp;
    w_in_t = bias + s.gp;
    w_hid_t = w_in_t + s.gp * s.fp;
    pad_gates(s, in, s.features, w_in);
    pad_gates(s, hid, s.hidden, w_hid);
    pad_gates(s, b, 1, bias);
    if (!backward) return;
    transpose(s, w_in, s.features, s.fp, w_in_t);
    transpose(s, w_hid, s.hidden, s.hp, w_hid_t);
  }

 private:
  static void transpose(const Shape<R>& s, const R* in, int64_t rows, int64_t pitch, R* out) {
    std::fill_n(out, s.gp * pitch, R(0));
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < s.gp; ++j) out[j * pitch + i] = in[i * s.gp + j];
    }
  }
};

// Arguments of a scan as plain pointers; null where absent. x and grad_x may have any distance
// between steps and between vertices; the features of one row are adjacent. All else is dense.
template <class R>
struct ForwardArgs {
  const R* x;
  int64_t x_step, x_row;
  const R *w_in, *w_hid, *bias, *h0, *c0;
  R *h_all, *h_last, *c_last;
  int threads;
  // Packed rows (see begin_rows); null where every row is one sequence.
  const int32_t* begins;            // [T, N]
  const R *h_starts, *c_starts;     // [S, H]
  R* c_all;                         // [T, N, H]
};

template <class R>
struct BackwardArgs {
  ForwardArgs<R> forward;
  const R *grad_h_all, *grad_h_last, *grad_c_last;
  R* grad_x;
  int64_t grad_x_step, grad_x_row;
  R *grad_w_in, *grad_w_hid, *grad_bias, *grad_h0, *grad_c0;
  const R* grad_c_all;
  R *grad_h_starts, *grad_c_starts;  // [S, H]; rows that no sequence starts from stay as they are
  bool weights() const { return grad_w_in || grad_w_hid || grad_bias; }
};

// Rows between a dense [*, width] array and padded [*, pitch] rows of the scratch.
template <class R>
void copy_in(const R* in, int64_t rows, int64_t width, int64_t pitch, R* out) {
  for (int64_t b = 0; b < rows; ++b) {
    R* row = out + b * pitch;
    if (in) {
      std::memcpy(row, in + b * width, size_t(width) * sizeof(R));
      std::fill(row + width, row + pitch, R(0));
    } else {
      std::fill_n(row, pitch, R(0));
    }
  }
}

template <class R>
void copy_out(const R* in, int64_t rows, int64_t width, int64_t pitch, R* out, int64_t out_row) {
  for (int64_t b = 0; b < rows; ++b) {
    std::memcpy(out + b * out_row, in + b * pitch, size_t(width) * sizeof(R));
  }
}

template <class R>
void add_rows(const R* in, int64_t rows, int64_t width, int64_t pitch, R* out) {
  for (int64_t b = 0; b < rows; ++b) {
    for (int64_t j = 0; j < width; ++j) out[b * pitch + j] += in[b * width + j];
  }
}

// Several sequences may stand one behind the other in a row. `begins` says for each vertex of a
// step where its state comes from: kContinues from the step before, kFromZero from nothing, and
// k >= 0 from row k of `starts`. The state is replaced where it lies, before anything reads it, so
// that no gate and no mixing sees across the seam (DGC, section 5.1.2, masks it in every use).
constexpr int32_t kContinues = -1;
constexpr int32_t kFromZero = -2;

template <class R>
void begin_rows(const int32_t* begins, const R* starts, int64_t rows, int64_t width, int64_t pitch,
                R* state) {
  for (int64_t b = 0; b < rows; ++b) {
    if (begins[b] == kContinues) continue;
    std::fill_n(state + b * pitch, pitch, R(0));  // the padding too, which may hold a NaN
    if (begins[b] >= 0 && starts) {
      std::memcpy(state + b * pitch, starts + begins[b] * width, size_t(width) * sizeof(R));
    }
  }
}

// The reverse: the gradient of a state leaves to its start and goes no further back.
template <class R>
void begin_rows_backward(const int32_t* begins, int64_t rows, int64_t width, int64_t pitch,
                         R* grad, R* grad_starts) {
  for (int64_t b = 0; b < rows; ++b) {
    if (begins[b] == kContinues) continue;
    if (begins[b] >= 0 && grad_starts) {
      std::memcpy(grad_starts + begins[b] * width, grad + b * pitch, size_t(width) * sizeof(R));
    }
    std::fill_n(grad + b * pitch, pitch, R(0));
  }
}

// Rows that the next step reads; they lie a whole snapshot away, where no prefetcher looks.
template <class R>
void prefetch_rows(const R* p, int64_t rows, int64_t row_stride, int64_t width) {
  for (int64_t b = 0; b < rows; ++b) {
    for (int64_t j = 0; j < width; j += 64 / int64_t(sizeof(R))) {
      __builtin_prefetch(p + b * row_stride + j);
    }
  }
}

// Gradients of the weights of one shard, padded: [F + H + 1, gp] in the order w_in, w_hid, bias.
template <class R>
struct WeightSums {
  R *w_in, *w_hid, *bias;
  static int64_t size(const Shape<R>& s) { return (s.features + s.hidden + 1) * s.gp; }
  WeightSums(const Shape<R>& s, R* memory)
      : w_in(memory), w_hid(w_in + s.features * s.gp), bias(w_hid + s.hidden * s.gp) {}
};

template <class R>
void add_column_sums(const R* in, int64_t rows, int64_t pitch, R* out) {
  constexpr int64_t lanes = Lanes<R>::count;
  for (int64_t j = 0; j < pitch; j += lanes) {
    Vec<R> sum{};
    for (int64_t b = 0; b < rows; ++b) sum += load(in + b * pitch + j);
    store(out + j, load(out + j) + sum);
  }
}

// A thread that has less than this to do costs more than it brings.
constexpr double kFlopsPerThread = 6e6;

// How many threads to use; `passes` is the arithmetic in units of one forward pass.
template <class R>
int team_size(const Shape<R>& s, int threads, int64_t pieces, double passes) {
  const double flops =
      passes * 2.0 * double(s.steps * s.vertices) * double((s.features + s.hidden) * s.gp);
  const int64_t useful = int64_t(std::min(flops / kFlopsPerThread, 4096.0));
  return int(std::clamp<int64_t>(std::min<int64_t>(threads, pieces), 1,
                                 std::max<int64_t>(1, useful)));
}

// Runs `block(index, scratch)` for every block of the forward pass.
template <class R, class Block>
void for_blocks(const Shape<R>& s, int threads, int64_t scratch_size, Block&& block) {
  const int team = team_size(s, threads, s.blocks, 1.0);
  std::atomic<bool> failed{false};
#pragma omp parallel num_threads(team) if (team > 1)
  {
    static thread_local Scratch<R> scratch;
    R* memory = scratch.try_get(scratch_size);
    if (!memory) failed = true;
#pragma omp for schedule(dynamic, 1)
    for (int64_t b = 0; b < s.blocks; ++b) {
      if (memory) block(b, memory);
    }
  }
  if (failed) throw std::bad_alloc();
}

// Runs `block(index, scratch, sums)` for every block and gives the summed weight gradients. A
// block's sums are kept apart until it ends: three short sums lose fewer digits than a long one.
template <class R, class Block>
void for_shards(const Shape<R>& s, const BackwardArgs<R>& a, int64_t scratch_size, Block&& block) {
  const int team = team_size(s, a.forward.threads, s.shards, a.grad_x ? 4.0 : 3.0);
  const int64_t size = a.weights() ? WeightSums<R>::size(s) : 0;
  static thread_local Scratch<R> shard_sums;
  R* sums = shard_sums.get(std::max<int64_t>(1, s.shards * size));
  std::atomic<bool> failed{false};
#pragma omp parallel num_threads(team) if (team > 1)
  {
    static thread_local Scratch<R> scratch;
    R* memory = scratch.try_get(scratch_size + size);
    if (!memory) failed = true;
    R* own = memory + scratch_size;
#pragma omp for schedule(dynamic, 1)
    for (int64_t shard = 0; shard < s.shards; ++shard) {
      if (!memory) continue;
      R* total = sums + shard * size;
      std::fill_n(total, size, R(0));
      for (int64_t b = s.shard_begin(shard); b < s.shard_begin(shard + 1); ++b) {
        std::fill_n(own, size, R(0));
        block(b, memory, own);
        for (int64_t i = 0; i < size; ++i) total[i] += own[i];
      }
    }
  }
  if (failed) throw std::bad_alloc();
  if (!a.weights()) return;
  std::vector<R> zero;
  R* total = sums;
  if (s.shards == 0) {
    zero.assign(size_t(size), R(0));
    total = zero.data();
  }
  for (int64_t shard = 1; shard < s.shards; ++shard) {
    for (int64_t i = 0; i < size; ++i) total[i] += sums[shard * size + i];
  }
  const WeightSums<R> out(s, total);
  if (a.grad_w_in) unpad_gates(s, out.w_in, s.features, a.grad_w_in);
  if (a.grad_w_hid) unpad_gates(s, out.w_hid, s.hidden, a.grad_w_hid);
  if (a.grad_bias) unpad_gates(s, out.bias, 1, a.grad_bias);
}

}  // namespace dgbench::scan
