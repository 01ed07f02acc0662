// All hops of all snapshots of a batch of roots in one go: one copy in, four launches a hop, and one
// look by the host at the end (GNNFlow 4.2).
#pragma once

#include <cstdint>
#include <vector>

#include "temporal_sample/cuda_launchers.h"

namespace dgbench::temporal {

// Offsets of a hop's arrays, in words of 8 bytes from the beginning of the batch's memory.
struct HopOffsets {
  int64_t nodes, times, positions;  // [capacity] of its targets
  int64_t offsets;                  // [capacity + 1]
  int64_t neighbours, eids, edge_times;  // [capacity * fanout]
};

struct Batch {
  // Of the host: roots, and a page-locked place from which they are copied.
  const int64_t* nodes;
  const double* times;
  const int64_t* positions;  // null: 0, 1, 2, ...
  int64_t count;             // at least 1
  int64_t* staging;          // [staged], words from the beginning of `memory`
  int64_t staged;
  int64_t limit;  // vertices

  std::vector<int32_t> fanouts;  // by hop
  std::vector<int64_t> capacities;  // targets by hop
  int64_t named;  // where all that the farthest hop names goes, and their number to word 1; or 0
  std::vector<HopOffsets> arrays;  // snapshots one after the other, their hops inside
  int32_t snapshots;

  int64_t* memory;   // of the device; word 0 becomes the number of roots
  int64_t words;     // of it
  int64_t* scratch;  // of the device, scratch_words()

  Hop how;  // graph, guide, policy, search, replace, length, closed and prop_time
  uint64_t seed;
  uint32_t draw;
  const int64_t* draws;  // of the device, [1] added to `draw`; or null

  // Throws std::invalid_argument for arrays that leave the memory.
  void check() const;
  int64_t scratch_words() const;
  // Roots to the staging place; false where one is no vertex or its time is no number.
  bool pack() const;
  // All launches, with the roots in the memory; `totals` stay in front of the scratch. Status of the
  // first one that failed.
  int launch(void* stream) const;
  // From the staging place to the end, which the host waits for. `totals`: neighbours by snapshot and
  // hop.
  int run(std::vector<int64_t>& totals, void* stream) const;
};

}  // namespace dgbench::temporal
