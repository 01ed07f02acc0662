// Recurrent scans as plain functions, in the manner of common/launchers.h.
#pragma once

#include <cstdint>

namespace dgbench {

struct ScanArgs {
  int64_t steps, vertices;
  int32_t features, hidden, gates;
  const float* x;  // [T, N, F] with strides x_step and x_row
  int64_t x_step, x_row;
  const float *w_in, *w_hid, *bias;
  const float *h0, *c0;                       // [N, H] or null
  float *h_all, *h_last, *c_last, *record;    // h_all, record may be null
  // Packed rows, as on the CPU; each may be null.
  const int32_t* begins;             // [T, N]: -1 goes on, -2 from zero, k from row k of the starts
  const float *h_starts, *c_starts;  // [S, H]
  float* c_all;                      // [T, N, H]
  // kPlainProducts, or kSplitProducts, which are plain where dgb_scan_splits says no.
  int32_t products;
};

constexpr int32_t kPlainProducts = 0;  // float32
constexpr int32_t kSplitProducts = 1;  // 3xTF32 on tensor cores, see scan/cuda_mma.cuh

struct ScanGradArgs {
  ScanArgs in;  // record is read; h_all, h_last, c_last are not used
  const float *grad_h_all, *grad_h_last, *grad_c_last;  // each may be null
  float* grad_x;                                        // strides below; may be null
  int64_t grad_x_step, grad_x_row;
  float *grad_w_in, *grad_w_hid, *grad_bias, *grad_h0, *grad_c0;  // each may be null
  float* workspace;
  const float* grad_c_all;
  float *grad_h_starts, *grad_c_starts;
};

// A GRU cell whose input and hidden state are one weight [M, O]; w_ih, w_hh [3 O, O] and b_ih, b_hh
// [3 O] have gates r, z, n in rows. The backward pass reads `weights` and what begins with `grad`.
struct EvolveArgs {
  int64_t steps, rows;
  int32_t width;
  const float *initial, *w_ih, *w_hh, *b_ih, *b_hh;
  float* weights;     // [T, M, O]
  const float* grad;  // [T, M, O]
  float *grad_initial, *grad_w_ih, *grad_w_hh, *grad_b_ih, *grad_b_hh;
  float* workspace;
};

extern "C" {
// Elements of float32 that the scans need beside their results.
int64_t dgb_scan_record_size(int64_t steps, int64_t vertices, int64_t features, int64_t hidden,
                             int64_t gates);
int64_t dgb_scan_workspace_size(int64_t steps, int64_t vertices, int64_t features, int64_t hidden,
                                int64_t gates);
// Whether split products run on the current device for these sizes, forward and backward.
bool dgb_scan_splits(int64_t features, int64_t hidden, int64_t gates);
int dgb_scan_forward(const ScanArgs* args, void* stream);
int dgb_scan_backward(const ScanGradArgs* args, void* stream);

int64_t dgb_evolve_workspace_size(int64_t steps, int64_t rows, int64_t width, bool backward);
int dgb_evolve_forward(const EvolveArgs* args, void* stream);
int dgb_evolve_backward(const EvolveArgs* args, void* stream);
}

}  // namespace dgbench
