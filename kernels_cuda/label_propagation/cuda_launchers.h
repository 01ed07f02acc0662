// Label propagation as a plain function; see common/launchers.h for what holds of all of them.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

struct LabelSweep {
  const int64_t* indptr;
  const int32_t* indices;
  const int32_t* edge_weight;    // null: 1 each
  const int32_t* vertex_weight;  // null: 1 each
  int32_t* labels;
  int64_t* loads;
  uint8_t* active;  // null: all are looked at
  int64_t vertices, cap;
  uint32_t salt, rounds;
  int64_t block;
  // Scratch of one round, by place in the block; `arrivals` by label, zero before and after.
  int32_t* wished;     // label, -1 for none
  int64_t* gains;
  int32_t* verdicts;   // kNone, kGranted, kContested
  int32_t* contested;  // [2 queue_capacity()]: places whose label has not room for all
  int64_t* arrivals;   // [vertices]
  int64_t* counts;     // [3]: moved, looked at, contested; zero before

  DGB_HD int64_t queue_capacity() const { return block < vertices ? block : vertices; }
};

extern "C" {
// One sweep over all blocks and rounds; the same labels as the CPU's operator of that name.
int dgb_label_sweep(const LabelSweep* args, void* stream);
}

}  // namespace dgbench
