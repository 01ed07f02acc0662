// Temporal sampling on a device (GNNFlow 4.2, Algorithm 1) as index arithmetic: `Locate` finds the
// window of each target and draws from it, `Emit` writes one neighbour per index. Between the two
// stands a prefix sum over the counts. The rules are those of temporal_sample/functors.hpp, so the
// samples are the host's bit for bit.
//
// Nothing is read back between hops: arrays have the capacity for the most there may be, and how
// many targets there are stands in the device's memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "common/host_device.hpp"
#include "temporal_sample/functors.hpp"

namespace dgbench::temporal {

enum class Search : int32_t {
  Binary = 0,  // among the fences over the vertex's blocks
  Linear = 1,  // along the list from the newest block to the older ones, as the paper prints it
};

constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr uint64_t kGuideStep = 8;  // records between two times of the guide

constexpr int64_t kScanTile = 2048;  // counts that a block sums up

// Up to this fan-out the thread that finds a window draws from it; beyond, a block of threads does, with
// a table in the device's memory of what was drawn.
constexpr int32_t kLongDraw = 64;
constexpr int64_t kTableWords = int64_t{1} << 24;  // of 4 bytes, for all blocks together

// Slots of a table: a power of two, at least twice the fan-out.
DGB_HD int64_t draw_slots(int64_t fanout) {
  int64_t slots = 1;
  while (slots < 2 * fanout) slots *= 2;
  return slots;
}
// Words of a table: the slots, and two bits for each draw.
DGB_HD int64_t draw_table(int64_t fanout) { return draw_slots(fanout) + 2 * ((fanout + 31) / 32); }
// Blocks that draw.
DGB_HD int64_t draw_blocks(int64_t targets, int64_t fanout) {
  if (fanout <= kLongDraw) return 0;
  const int64_t most = kTableWords / draw_table(fanout) + 1;
  return targets < most ? targets : most;
}
// Words that `Hop::chosen` has.
DGB_HD int64_t draw_words(int64_t targets, int64_t fanout) {
  return targets * fanout + draw_blocks(targets, fanout) * draw_table(fanout);
}

// One hop of one snapshot.
struct Hop {
  StoreView graph;
  const double* guide;  // times of the records at every eighth place, or null
  const int64_t* live;  // [1] targets, at most `capacity`
  int64_t capacity;
  const int64_t* nodes;      // [capacity]
  const double* times;       // [capacity]
  const int64_t* positions;  // [capacity]
  double length;             // of the window that ends at a target's time, or infinity
  bool closed;               // the window has its end, too
  int32_t fanout;
  Policy policy;
  Search search;
  bool replace;
  DrawKey key;
  const int64_t* draws;  // [1] added to the key's draw; null: 0
  int32_t* counts;   // [capacity] neighbours taken; 0 behind the last target
  uint32_t* firsts;  // [capacity] position of the first record of the window
  uint32_t* totals;  // [capacity] candidates in it
  uint32_t* chosen;  // [capacity, fanout] candidates drawn, then the tables; null for recent
  // What `Emit` reads and writes.
  const int64_t* offsets;  // [capacity + 1] prefix sum of `counts`
  int64_t max_neighbours;  // capacity; what does not fit is left out
  int64_t* neighbours;     // [max_neighbours]
  int64_t* eids;
  double* edge_times;
  // Targets of the next hop, [capacity + max_neighbours]; null after the last one. Neighbours are
  // asked for at the times of their edges, or with `prop_time` at the time of their target. Without
  // times it is only vertices that are named.
  bool prop_time;
  int64_t* next_live;
  int64_t* next_nodes;
  double* next_times;
  int64_t* next_positions;
};

// The key of a draw, with what the device adds to it.
DGB_HD DrawKey key_of(const Hop& hop) {
  DrawKey key = hop.key;
  if (hop.draws != nullptr) key.draw += static_cast<uint32_t>(*hop.draws);
  return key;
}

// Whether a record is no candidate: deleted, or its neighbour is.
template <class Record>
DGB_HD bool is_hidden(const StoreView& graph, const Record& record) {
  if (is_dead(record)) return true;
  return graph.deleted > 0 && is_deleted(graph.vertices[record.node]);
}

DGB_HD bool may_hide(const StoreView& graph, const Vertex& v) {
  return v.dead > 0 || graph.deleted > 0;
}

// Blocks of a vertex from the newest to the oldest, by the list.
struct ListWalk {
  const StoreView& graph;
  const Vertex& v;
  uint32_t block;
  uint32_t end;  // position behind the block's last record

  DGB_HD ListWalk(const StoreView& graph, const Vertex& v)
      : graph(graph), v(v), block(v.tail), end(total(v)) {}
  DGB_HD bool there() const { return block != kNone; }
  DGB_HD bool newest() const { return block == v.tail; }
  DGB_HD uint32_t size() const { return newest() ? v.size : graph.blocks[block].size; }
  DGB_HD double t_min() const { return newest() ? v.t_min : graph.blocks[block].t_min; }
  DGB_HD double t_max() const { return newest() ? v.t_max : graph.blocks[block].t_max; }
  DGB_HD Piece piece() const {
    const uint32_t n = size();
    return {newest() ? v.first : graph.blocks[block].first, end - n, n};
  }
  DGB_HD void older() {
    end -= size();
    block = graph.blocks[block].prev;
  }
};

// Algorithm 1: the window of a vertex, block by block. It may end once `enough` records are found.
template <class Record>
DGB_HD Range window_by_list(const StoreView& graph, const Vertex& v, const Record* records,
                            double begin, double end, uint32_t enough) {
  Range found{0, 0};
  if (is_deleted(v) || total(v) == 0 || !(begin < end)) return found;
  for (ListWalk at(graph, v); at.there(); at.older()) {
    if (end <= at.t_min()) continue;  // all of it is newer
    if (begin > at.t_max()) break;    // this one and all before it are older
    const Piece piece = at.piece();
    const uint32_t last = older_in(records + piece.first, piece.size, end, graph.origin);
    const uint32_t first = older_in(records + piece.first, piece.size, begin, graph.origin);
    found = {piece.before + first, found.count + last - first};
    if (found.count >= enough) break;
  }
  return found;
}

// `older_in` for a block, by the guide first: the last records read stand beside each other.
template <class Record>
DGB_HD uint32_t older_by_guide(const Piece& piece, const double* guide, const Record* records,
                               double key, double origin) {
  const uint64_t stop = piece.first + piece.size;
  const uint64_t begin = (piece.first + kGuideStep - 1) / kGuideStep;
  const uint64_t end = (stop + kGuideStep - 1) / kGuideStep;
  uint64_t at = begin;  // the first time of the guide that is not older
  for (uint64_t n = end - begin; n > 0;) {
    const uint64_t half = n / 2;
    const bool older = guide[at + half] < key;
    at = older ? at + half + 1 : at;
    n = older ? n - half - 1 : half;
  }
  const uint64_t from = at == begin ? piece.first : (at - 1) * kGuideStep + 1;
  const uint64_t to = at == end ? stop : at * kGuideStep;
  return static_cast<uint32_t>(from - piece.first) +
         older_in(records + from, static_cast<uint32_t>(to - from), key, origin);
}

// `window_of` by the guide.
template <class Record>
DGB_HD Range window_by_guide(const Hop& hop, const Vertex& v, const Record* records, double begin,
                             double end) {
  if (is_deleted(v) || total(v) == 0 || !(begin < end)) return {0, 0};
  uint32_t older[2];
  for (int i = 0; i < 2; ++i) {
    const double key = i == 0 ? begin : end;
    if (v.size > 0 && v.t_max < key) {
      older[i] = total(v);
      continue;
    }
    const Piece piece = piece_of_time(v, hop.graph.fences, key);
    older[i] = piece.before;
    if (piece.size == 0) continue;
    older[i] += older_by_guide(piece, hop.guide, records, key, hop.graph.origin);
  }
  return {older[0], older[1] - older[0]};
}

template <class Record>
struct Locate {
  Hop hop;

  DGB_HD const Record* records() const { return static_cast<const Record*>(hop.graph.records); }

  DGB_HD const Record& record_at(const Vertex& v, uint32_t position) const {
    if (hop.search == Search::Binary) {
      const Piece piece = piece_of_position(v, hop.graph.fences, position);
      return records()[piece.first + (position - piece.before)];
    }
    ListWalk at(hop.graph, v);
    while (at.end - at.size() > position) at.older();
    const Piece piece = at.piece();
    return records()[piece.first + (position - piece.before)];
  }

  DGB_HD void operator()(int64_t i) const {
    const int64_t node = i < *hop.live ? hop.nodes[i] : -1;
    if (node < 0 || node >= hop.graph.num_vertices) {
      hop.counts[i] = 0;
      return;
    }
    const Vertex& v = hop.graph.vertices[node];
    const auto fanout = static_cast<uint32_t>(hop.fanout);
    const bool hides = may_hide(hop.graph, v);
    // Half open; a closed end is the number after it.
    const double t = hop.times[i];
    const double begin = hop.length == kForever ? -kForever : t - hop.length;
    const double end = hop.closed ? nextafter(t, kForever) : t;
    Range window;
    if (hop.search == Search::Binary && hop.guide != nullptr) {
      window = window_by_guide(hop, v, records(), begin, end);
    } else if (hop.search == Search::Binary) {
      window = window_of(v, hop.graph.fences, records(), begin, end, hop.graph.origin);
    } else {
      const uint32_t enough = hop.policy == Policy::Recent && !hides ? fanout : kNone;
      window = window_by_list(hop.graph, v, records(), begin, end, enough);
    }
    uint32_t n = window.count;
    if (hides) {
      n = 0;
      for (uint32_t p = 0; p < window.count; ++p) {
        n += is_hidden(hop.graph, record_at(v, window.first + p)) ? 0 : 1;
      }
    }
    hop.counts[i] = static_cast<int32_t>(taken(n, fanout, hop.replace, hop.policy));
    hop.firsts[i] = window.first;
    hop.totals[i] = n;
    if (hop.policy == Policy::Uniform && hop.fanout <= kLongDraw) {
      draw_uniform(n, fanout, hop.replace, key_of(hop), static_cast<uint64_t>(hop.positions[i]),
                   hop.chosen + i * fanout);
    }
  }
};

template <class Record>
struct Emit {
  Locate<Record> of;

  // The record of a candidate by number; hidden ones have none.
  DGB_HD const Record& candidate(const Vertex& v, uint32_t first, uint32_t number) const {
    const StoreView& graph = of.hop.graph;
    if (!may_hide(graph, v)) return of.record_at(v, first + number);
    for (uint32_t p = first;; ++p) {
      const Record& record = of.record_at(v, p);
      if (!is_hidden(graph, record) && number-- == 0) return record;
    }
  }

  DGB_HD void operator()(int64_t index) const {
    const Hop& hop = of.hop;
    const int64_t live = *hop.live;
    const auto fanout = static_cast<int64_t>(hop.fanout);
    const int64_t i = index / fanout;
    const auto slot = static_cast<int32_t>(index % fanout);
    if (i >= live) return;
    const bool goes_on = hop.next_live != nullptr;
    if (goes_on && slot == 0) {
      hop.next_nodes[i] = hop.nodes[i];
      if (hop.next_times != nullptr) {
        hop.next_times[i] = hop.times[i];
        hop.next_positions[i] = child_position(hop.positions[i], fanout, 0);
      }
      if (i == 0) *hop.next_live = live + hop.offsets[live];
    }
    const int32_t count = hop.counts[i];
    if (slot >= count) return;
    const Vertex& v = hop.graph.vertices[hop.nodes[i]];
    const uint32_t number = hop.policy == Policy::Uniform
                                ? hop.chosen[i * fanout + slot]
                                : hop.totals[i] - static_cast<uint32_t>(count - slot);
    const Record& record = candidate(v, hop.firsts[i], number);
    const int64_t out = hop.offsets[i] + slot;
    if (out >= hop.max_neighbours) return;
    const double t = time_of(record, hop.graph.origin);
    hop.neighbours[out] = static_cast<int64_t>(record.node);
    hop.eids[out] = static_cast<int64_t>(record.eid);
    hop.edge_times[out] = t;
    if (!goes_on) return;
    hop.next_nodes[live + out] = static_cast<int64_t>(record.node);
    if (hop.next_times == nullptr) return;
    hop.next_times[live + out] = hop.prop_time ? hop.times[i] : t;
    hop.next_positions[live + out] = child_position(hop.positions[i], fanout, 1 + slot);
  }
};

extern "C" {
// Windows and draws of all targets; then, with the prefix sums, their neighbours.
int dgb_temporal_locate(const Hop* hop, void* stream);
int dgb_temporal_emit(const Hop* hop, void* stream);
// Between the two: offsets[count + 1] of the counts, and their sum. `sums` takes one number per
// kScanTile counts.
int dgb_temporal_offsets(const int32_t* counts, int64_t count, int64_t* sums, int64_t* offsets,
                         int64_t* total, void* stream);
}

}  // namespace dgbench::temporal
