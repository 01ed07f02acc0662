#include "temporal_sample/cuda_batch.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/require.hpp"
#include "temporal_store/cuda_memory.h"

namespace dgbench::temporal {
namespace {

int64_t tiles_of(int64_t capacity) { return (capacity + kScanTile - 1) / kScanTile; }

// Words of 8 bytes that hold so many of 4.
int64_t halves(int64_t count) { return (count + 1) / 2; }

}  // namespace

void Batch::check() const {
  const std::size_t hops = fanouts.size();
  require(count >= 1 && hops >= 1 && snapshots >= 1, "a batch has roots, hops and snapshots");
  require(capacities.size() == hops && arrays.size() == hops * static_cast<std::size_t>(snapshots),
          "capacities and arrays must fit the fan-outs and snapshots");
  require(staged <= words, "the staging place is longer than the memory");
  const auto inside = [&](int64_t start, int64_t length, int64_t end) {
    require(start >= 1 && length >= 0 && start + length <= end, "an array leaves the memory");
  };
  for (std::size_t p = 0; p < arrays.size(); ++p) {
    const std::size_t h = p % hops;
    const HopOffsets& at = arrays[p];
    require(fanouts[h] >= 1, "a fan-out is below 1");
    require(capacities[h] == (h == 0 ? count : capacities[h - 1] * (1 + int64_t{fanouts[h - 1]})),
            "a hop has another capacity than the one before it fills");
    const int64_t end = h == 0 ? staged : words;
    for (const int64_t start : {at.nodes, at.times, at.positions})
      inside(start, capacities[h], end);
    inside(at.offsets, capacities[h] + 1, words);
    for (const int64_t start : {at.neighbours, at.eids, at.edge_times}) {
      inside(start, capacities[h] * fanouts[h], words);
    }
  }
  if (named != 0) inside(named, capacities.back() * (1 + int64_t{fanouts.back()}), words);
  require(named == 0 || snapshots == 1, "vertices are named of one snapshot");
}

int64_t Batch::scratch_words() const {
  int64_t capacity = 0;
  int64_t drawn = 0;
  for (std::size_t h = 0; h < capacities.size(); ++h) {
    capacity = std::max(capacity, capacities[h]);
    drawn = std::max(drawn, draw_words(capacities[h], fanouts[h]));
  }
  const auto every = static_cast<int64_t>(arrays.size());
  return 2 * every + tiles_of(capacity) + 3 * halves(capacity) +
         (how.policy == Policy::Uniform ? halves(drawn) : 0);
}

bool Batch::pack() const {
  bool right = true;
  staging[0] = count;
  for (std::size_t p = 0; p < arrays.size(); p += fanouts.size()) {
    const auto snapshot = static_cast<double>(p / fanouts.size());
    // The shift is rounded before it is taken away, as the host's sampler does it.
    const double shift = p == 0 ? 0.0 : snapshot * how.length;
    for (int64_t i = 0; i < count; ++i) {
      const double t = p == 0 ? times[i] : times[i] - shift;
      std::memcpy(staging + arrays[p].times + i, &t, sizeof(t));
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t node = nodes[i];
    right = right && node >= 0 && node < limit && !std::isnan(times[i]);
    staging[arrays[0].nodes + i] = node;
    staging[arrays[0].positions + i] = positions == nullptr ? i : positions[i];
  }
  return right;
}

int Batch::launch(void* stream) const {
  const std::size_t hops = fanouts.size();
  int64_t* const sums = scratch;
  int64_t* const lives = sums + arrays.size();
  int64_t* const tiles = lives + arrays.size();
  const int64_t capacity = *std::max_element(capacities.begin(), capacities.end());
  auto* const counts = reinterpret_cast<int32_t*>(tiles + tiles_of(capacity));
  const int64_t apart = 2 * halves(capacity);
  int status = 0;
  for (std::size_t p = 0; status == 0 && p < arrays.size(); ++p) {
    const std::size_t h = p % hops;
    const bool last = h + 1 == hops;
    const HopOffsets& at = arrays[p];
    Hop hop = how;
    hop.live = h == 0 ? memory : lives + p;
    hop.capacity = capacities[h];
    hop.nodes = memory + at.nodes;
    hop.times = reinterpret_cast<const double*>(memory + at.times);
    hop.positions = memory + at.positions;
    hop.fanout = fanouts[h];
    hop.key = draw_key(seed, static_cast<uint32_t>(h), static_cast<uint32_t>(p / hops), draw);
    hop.draws = draws;
    hop.counts = counts;
    hop.firsts = reinterpret_cast<uint32_t*>(counts + apart);
    hop.totals = reinterpret_cast<uint32_t*>(counts + 2 * apart);
    hop.chosen = how.policy == Policy::Uniform ? reinterpret_cast<uint32_t*>(counts + 3 * apart)
                                               : nullptr;
    hop.offsets = memory + at.offsets;
    hop.max_neighbours = capacities[h] * fanouts[h];
    hop.neighbours = memory + at.neighbours;
    hop.eids = memory + at.eids;
    hop.edge_times = reinterpret_cast<double*>(memory + at.edge_times);
    hop.next_live = !last ? lives + p + 1 : named != 0 ? memory + 1 : nullptr;
    hop.next_nodes = !last ? memory + arrays[p + 1].nodes : named != 0 ? memory + named : nullptr;
    hop.next_times = last ? nullptr : reinterpret_cast<double*>(memory + arrays[p + 1].times);
    hop.next_positions = last ? nullptr : memory + arrays[p + 1].positions;
    status = dgb_temporal_locate(&hop, stream);
    if (status == 0) {
      status =
          dgb_temporal_offsets(counts, hop.capacity, tiles, memory + at.offsets, sums + p, stream);
    }
    if (status == 0) status = dgb_temporal_emit(&hop, stream);
  }
  return status;
}

int Batch::run(std::vector<int64_t>& totals, void* stream) const {
  int64_t* const sums = scratch;
  int status = dgb_copy_in(memory, staging, static_cast<uint64_t>(staged) * 8, stream);
  if (status == 0) status = launch(stream);
  totals.resize(arrays.size());
  // The roots' place is free again: the copy home goes through it, page-locked as it is.
  if (status == 0 && static_cast<int64_t>(arrays.size()) <= staged) {
    status = dgb_copy_out(staging, sums, arrays.size() * 8, stream);
    const int waited = dgb_wait(stream);
    if (status == 0) status = waited;
    std::copy(staging, staging + arrays.size(), totals.begin());
    return status;
  }
  if (status == 0) status = dgb_copy_out(totals.data(), sums, arrays.size() * 8, stream);
  const int waited = dgb_wait(stream);
  return status == 0 ? waited : status;
}

}  // namespace dgbench::temporal
