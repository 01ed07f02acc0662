// The attention operators as plain functions; see common/launchers.h for what holds of all of them.
#pragma once

#include <cstdint>

#include "attention/functors.hpp"

namespace dgbench {

extern "C" {
// Columns of a head at most.
int dgb_attend_rows_width();
int dgb_packed_attention_width();
int dgb_attend_rows(const AttendRows* args, void* stream);
int dgb_attend_rows_backward(const AttendRowsGrad* args, void* stream);

// `wanted` is first[sequences], which lies on the device.
int dgb_packed_attention(const PackedAttention* args, int64_t wanted, void* stream);
// `stats` float[wanted, heads, 3] is scratch.
int dgb_packed_attention_backward(const PackedAttention* args, int64_t wanted, int64_t steps,
                                  float* stats, void* stream);
}

}  // namespace dgbench
