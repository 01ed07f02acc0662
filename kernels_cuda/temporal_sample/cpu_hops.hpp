// All hops of a batch in one array, for any sampler of a single hop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/philox.hpp"
#include "common/require.hpp"
#include "temporal_sample/cpu_runs.hpp"
#include "temporal_sample/functors.hpp"

namespace dgbench::temporal {

// Targets of one hop, their windows, and what is drawn for them. `begins` may be null: then windows
// are `length` long.
struct HopRequest {
  const int64_t* nodes;
  const double* ends;
  const double* begins;
  const int64_t* positions;
  int64_t targets;
  uint32_t fanout;
  DrawKey key;
};

// Roots of a batch and the hops around them.
//
// The targets of a hop are those of the hop before and then their neighbours, so all hops share one
// array of vertices and one of times, of which each hop reads a longer part. An array of words of 8
// bytes holds for each snapshot, with c the most targets by hop and n the most of all vertices:
//
//   vertices[n] | times[n] | edge ids[n - roots] | with prop_time: times of targets[last c] |
//   by hop: offsets[c + 1] | positions[c]
//
// Times are those of the roots and then those of the edges.
struct HopsRequest {
  const int64_t* nodes;
  const double* ends;
  const double* begins;      // null, or of a single hop of a single snapshot
  const int64_t* positions;  // null: 0, 1, ...
  int64_t roots;
  double length;
  bool prop_time;
  uint32_t snapshots;
  uint64_t seed;
  uint32_t draw;
  uint32_t hop;       // number of the first hop
  uint32_t snapshot;  // and of the first snapshot
  const std::vector<uint32_t>& fanouts;
  const std::vector<int64_t>& capacities;  // neighbours of a hop at most

  // Words of the array; refuses what it cannot be for.
  int64_t words(uint32_t largest_fanout) const {
    constexpr int64_t kMost = int64_t{1} << 40;
    require(!fanouts.empty() && fanouts.size() <= 256, "fanouts must be 1 to 256");
    require(capacities.size() == fanouts.size(), "capacities and fanouts must be as many");
    require(snapshots >= 1 && snapshots <= 256, "snapshots must be 1 to 256");
    require(hop + fanouts.size() <= 256 && snapshot <= 256 - snapshots,
            "hop and snapshot must stay below 256");
    require(begins == nullptr || (fanouts.size() == 1 && snapshots == 1),
            "begins are for one hop of one snapshot");
    require(length >= 0, "length must be at least 0");
    int64_t targets = roots;
    int64_t by_hop = 0;
    for (std::size_t h = 0; h < fanouts.size(); ++h) {
      require(fanouts[h] >= 1 && fanouts[h] <= largest_fanout, "fanouts out of their range");
      require(capacities[h] >= 0 && capacities[h] <= kMost, "capacities out of their range");
      by_hop += 2 * targets + 1;
      if (prop_time && h + 1 == fanouts.size()) by_hop += targets;
      targets += capacities[h];
    }
    return snapshots * (3 * targets - roots + by_hop);
  }
};

// Positions of the targets of the hop that follows: the targets themselves, then their neighbours.
inline void child_positions(const HopRequest& hop, const int64_t* offsets, int64_t* children) {
  int64_t* child = children + hop.targets;
  for (int64_t r = 0; r < hop.targets; ++r) {
    const int64_t own = child_position(hop.positions[r], hop.fanout, 0);
    const int64_t count = offsets[r + 1] - offsets[r];
    children[r] = own;
    for (int64_t k = 1; k <= count; ++k) *child++ = own + k;
  }
}

// Samples every hop of every snapshot into `out`. `sample_hop(request, output, capacity)` writes one
// and returns the number of its neighbours, more than the capacity where it wrote none, or less than
// 0 where a target cannot be asked for.
//
// Returns these numbers by snapshot and hop. Only the last may be such a one; nothing follows it.
template <class SampleHop>
std::vector<int64_t> sample_hops(const HopsRequest& batch, int64_t* out, SampleHop&& sample_hop) {
  const std::size_t hops = batch.fanouts.size();
  std::vector<int64_t> most(1, batch.roots);  // vertices before each hop, and behind the last
  for (const int64_t capacity : batch.capacities) most.push_back(most.back() + capacity);
  std::vector<int64_t> counts;
  counts.reserve(hops * batch.snapshots);
  for (uint32_t s = 0; s < batch.snapshots; ++s) {
    int64_t* const nodes = out;
    auto* const times = reinterpret_cast<double*>(nodes + most[hops]);
    int64_t* const eids = out + 2 * most[hops];
    out = eids + most[hops] - batch.roots;
    double* ends = times;
    if (batch.prop_time) {
      ends = reinterpret_cast<double*>(out);
      out += most[hops - 1];
    }
    std::copy(batch.nodes, batch.nodes + batch.roots, nodes);
    const double shift = s == 0 ? 0.0 : s * batch.length;  // rounded before it is taken away
    for (int64_t r = 0; r < batch.roots; ++r) {
      ends[r] = s == 0 ? batch.ends[r] : batch.ends[r] - shift;
    }
    HopRequest hop{};
    const int64_t* before = nullptr;  // offsets of the hop before
    int64_t live = batch.roots;
    for (std::size_t h = 0; h < hops; ++h) {
      int64_t* const offsets = out;
      int64_t* const positions = offsets + most[h] + 1;
      out = positions + most[h];
      if (before) {
        child_positions(hop, before, positions);
        if (batch.prop_time) {
          for (int64_t r = 0; r < hop.targets; ++r) {
            std::fill(ends + hop.targets + before[r], ends + hop.targets + before[r + 1], ends[r]);
          }
        }
      } else {
        for (int64_t r = 0; r < live; ++r) positions[r] = batch.positions ? batch.positions[r] : r;
      }
      hop = {nodes, ends, batch.begins, positions, live, batch.fanouts[h],
             draw_key(batch.seed, batch.hop + static_cast<uint32_t>(h), batch.snapshot + s,
                      batch.draw)};
      const SampleOutput found{offsets, nodes + live, eids + live - batch.roots, times + live};
      counts.push_back(sample_hop(hop, found, batch.capacities[h]));
      if (counts.back() < 0 || counts.back() > batch.capacities[h]) return counts;
      before = offsets;
      live += counts.back();
    }
  }
  return counts;
}

}  // namespace dgbench::temporal
