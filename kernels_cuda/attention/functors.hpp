// What the attention operators of every device share: arguments and the formulas of one entry.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

// Additive attention over the rows of a matrix, and over each row itself ("own loop").
struct AttendRows {
  const std::int64_t* indptr;   // [rows + 1]
  const std::int32_t* indices;  // columns 0 .. rows - 1 are the rows themselves
  std::int64_t rows, columns;
  std::int32_t heads, width;
  const float* values;  // [columns, heads, width], rows `values_row` apart
  std::int64_t values_row;
  const float* source;  // [columns, heads], rows `source_row` apart
  std::int64_t source_row;
  const float* target;  // [rows, heads]
  float slope;
  float* out;    // [rows, heads, width]
  float* stats;  // [rows, heads, 3] or null: largest score, 1 / sum, positive share; see below
  // Of rows with neighbours: the part of `out` that came over positive scores.
  const std::int32_t* place;  // [rows]: which row of `positive`
  float* positive;            // [rows with neighbours, heads, width]
};

// `in` as it was, with the matrix transposed: `indptr` is [columns + 1], `indices` are rows.
struct AttendRowsGrad {
  AttendRows in;
  const std::int64_t* receivers_ptr;
  const std::int32_t* receivers;
  const float* grad;  // [rows, heads, width]
  float* entry;       // [rows, heads, 4], scratch: target, largest score, 1 / sum, grad . out
  float *grad_values, *grad_source, *grad_target;  // dense
};

// The derivative to a target needs the sum over u of share_uv (grad_v . value_u - grad_v . out_v) f,
// f = 1 over positive scores and `slope` over others. Without f the sum is 0, so what is left is
// (1 - slope) (grad_v . positive_v - share of positive scores * grad_v . out_v): no second pass over
// the neighbours. Where all scores of a row have one sign the share is kept as kOneSign: the sum is 0.
constexpr float kOneSign = -1.0f;

// Scaled dot-product attention inside sequences that stand in rows of steps. A tensor of steps is
// [steps, rows, heads * width] with any stride between steps and between rows.
struct StepRows {
  const float* data;
  std::int64_t step, row;
};

struct PackedAttention {
  std::int64_t sequences;
  const std::int32_t* sequence;    // [sequences, 3]: row, first step, length
  const std::int64_t* first;       // [sequences + 1]: of its wanted steps
  const std::int32_t* wanted;      // steps counted from the sequence's first, ascending
  std::int64_t rows;               // of the dense results below
  std::int32_t heads, width, causal;
  float scale;
  StepRows q, k, v;
  float* out;    // dense, written at wanted steps
  StepRows grad;
  float *grad_q, *grad_k, *grad_v;  // dense; q's written at wanted steps, the others at every step
};

DGB_HD float leaky(float score, float slope) { return score > 0.0f ? score : slope * score; }

}  // namespace dgbench
