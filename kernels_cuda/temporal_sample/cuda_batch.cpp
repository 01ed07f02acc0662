#include "temporal_sample/cuda_batch.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/require.hpp"
#include "temporal_store/cuda_memory.h"

namespace dgbench::temporal {
namespace {

int64_t tiles_of(int64_t room) { return (room + kScanTile - 1) / kScanTile; }

// Words of 8 bytes that hold so many of 4.
int64_t halves(int64_t count) { return (count + 1) / 2; }

}  // namespace

void Batch::check() const {
  const std::size_t hops = fanouts.size();
  require(count >= 1 && hops >= 1 && snapshots >= 1, "a batch has roots, hops and snapshots");
  require(rooms.size() == hops && places.size() == hops * static_cast<std::size_t>(snapshots),
          "rooms and places must fit the fan-outs and snapshots");
  require(staged <= words, "the staging place is longer than the memory");
  const auto inside = [&](int64_t start, int64_t length, int64_t end) {
    require(start >= 1 && length >= 0 && start + length <= end, "an array leaves the memory");
  };
  for (std::size_t p = 0; p < places.size(); ++p) {
    const std::size_t h = p % hops;
    const HopPlaces& at = places[p];
    require(fanouts[h] >= 1, "a fan-out is below 1");
    require(rooms[h] == (h == 0 ? count : rooms[h - 1] * (1 + int64_t{fanouts[h - 1]})),
            "a hop has another room than the one before it fills");
    const int64_t end = h == 0 ? staged : words;
    for (const int64_t start : {at.nodes, at.times, at.positions}) inside(start, rooms[h], end);
    inside(at.offsets, rooms[h] + 1, words);
    for (const int64_t start : {at.neighbours, at.eids, at.edge_times}) {
      inside(start, rooms[h] * fanouts[h], words);
    }
  }
}

int64_t Batch::scratch_words() const {
  int64_t room = 0;
  int64_t drawn = 0;
  for (std::size_t h = 0; h < rooms.size(); ++h) {
    room = std::max(room, rooms[h]);
    drawn = std::max(drawn, draw_words(rooms[h], fanouts[h]));
  }
  const auto every = static_cast<int64_t>(places.size());
  return 2 * every + tiles_of(room) + 3 * halves(room) +
         (how.policy == Policy::Uniform ? halves(drawn) : 0);
}

bool Batch::pack() const {
  bool right = true;
  staging[0] = count;
  for (std::size_t p = 0; p < places.size(); p += fanouts.size()) {
    const auto snapshot = static_cast<double>(p / fanouts.size());
    // The shift is rounded before it is taken away, as the host's sampler does it.
    const double shift = p == 0 ? 0.0 : snapshot * how.length;
    for (int64_t i = 0; i < count; ++i) {
      const double t = p == 0 ? times[i] : times[i] - shift;
      std::memcpy(staging + places[p].times + i, &t, sizeof(t));
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t node = nodes[i];
    right = right && node >= 0 && node < limit && !std::isnan(times[i]);
    staging[places[0].nodes + i] = node;
    staging[places[0].positions + i] = positions == nullptr ? i : positions[i];
  }
  return right;
}

int Batch::run(std::vector<int64_t>& totals, void* stream) const {
  const std::size_t hops = fanouts.size();
  int64_t* const sums = scratch;
  int64_t* const lives = sums + places.size();
  int64_t* const tiles = lives + places.size();
  const int64_t room = *std::max_element(rooms.begin(), rooms.end());
  auto* const counts = reinterpret_cast<int32_t*>(tiles + tiles_of(room));
  const int64_t apart = 2 * halves(room);
  int status = dgb_copy_in(memory, staging, static_cast<uint64_t>(staged) * 8, stream);
  for (std::size_t p = 0; status == 0 && p < places.size(); ++p) {
    const std::size_t h = p % hops;
    const bool last = h + 1 == hops;
    const HopPlaces& at = places[p];
    Hop hop = how;
    hop.live = h == 0 ? memory : lives + p;
    hop.room = rooms[h];
    hop.nodes = memory + at.nodes;
    hop.times = reinterpret_cast<const double*>(memory + at.times);
    hop.positions = memory + at.positions;
    hop.fanout = fanouts[h];
    hop.key = draw_key(seed, static_cast<uint32_t>(h), static_cast<uint32_t>(p / hops), draw);
    hop.counts = counts;
    hop.firsts = reinterpret_cast<uint32_t*>(counts + apart);
    hop.totals = reinterpret_cast<uint32_t*>(counts + 2 * apart);
    hop.chosen = how.policy == Policy::Uniform ? reinterpret_cast<uint32_t*>(counts + 3 * apart)
                                               : nullptr;
    hop.offsets = memory + at.offsets;
    hop.places = rooms[h] * fanouts[h];
    hop.neighbours = memory + at.neighbours;
    hop.eids = memory + at.eids;
    hop.edge_times = reinterpret_cast<double*>(memory + at.edge_times);
    hop.next_live = last ? nullptr : lives + p + 1;
    hop.next_nodes = last ? nullptr : memory + places[p + 1].nodes;
    hop.next_times = last ? nullptr : reinterpret_cast<double*>(memory + places[p + 1].times);
    hop.next_positions = last ? nullptr : memory + places[p + 1].positions;
    status = dgb_temporal_locate(&hop, stream);
    if (status == 0) {
      status = dgb_temporal_offsets(counts, hop.room, tiles, memory + at.offsets, sums + p, stream);
    }
    if (status == 0) status = dgb_temporal_emit(&hop, stream);
  }
  totals.resize(places.size());
  // The roots' place is free again: the copy home goes through it, page-locked as it is.
  if (status == 0 && static_cast<int64_t>(places.size()) <= staged) {
    status = dgb_copy_out(staging, sums, places.size() * 8, stream);
    const int waited = dgb_wait(stream);
    if (status == 0) status = waited;
    std::copy(staging, staging + places.size(), totals.begin());
    return status;
  }
  if (status == 0) status = dgb_copy_out(totals.data(), sums, places.size() * 8, stream);
  const int waited = dgb_wait(stream);
  return status == 0 ? waited : status;
}

}  // namespace dgbench::temporal
