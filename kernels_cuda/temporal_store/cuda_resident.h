// A temporal graph that lives on a device and is changed there: what an insert is given, and its
// launches as plain functions; 0 or the runtime's error. None waits for the device.
//
// A batch gives one half to the list of each vertex that an event is kept at. Halves are sorted by
// vertex, stably, so that each vertex has a segment of them in order of arrival; one pass over the
// segments plans where they go, as the host's store does, and decides whether the batch is taken;
// one writes records, fences, blocks and lines of vertices. Nothing is written of a batch that is
// refused, nor of any after it until the refusal was heard.
#pragma once

#include <cmath>
#include <cstdint>

#include "temporal_store/block_policy.hpp"
#include "temporal_store/layout.hpp"

namespace dgbench::temporal {

constexpr int kMostDigitBits = 11;  // of a vertex's number, in one pass of the sort
constexpr int kMostDigits = 1 << kMostDigitBits;
constexpr int64_t kSortTile = 4096;    // halves that a block of threads orders at a time
constexpr int64_t kPlanTile = 256;     // sorted halves that a block looks at, at a time
// Blocks of a pass and of the plan at most; few where they are played through one by one, so that
// small batches have runs of several tiles.
#if defined(DGBENCH_EMULATED_DEVICE)
constexpr int64_t kSortBlocks = 3, kPlanBlocks = 260;
#else
constexpr int64_t kSortBlocks = 128, kPlanBlocks = 1024;
#endif

// Why a batch was refused, in the order in which the host's store looks.
enum class Refusal : int32_t {
  None = 0,
  Source = 1,       // no vertex: `value`
  Destination = 2,  // likewise
  Time = 3,         // not finite: `t`
  Edge = 4,         // an edge id that the layout does not hold: `value`
  Compact = 5,      // a time that it does not hold: `t`
  Degree = 6,       // vertex `value` would have too many records
  Late = 7,         // `t` is older than `last`, the time of the newest record of vertex `value`
  Room = 8,         // the pools are too small; only where the host was not asked before
};

struct Refused {
  Refusal why;
  int64_t batch;  // taken before it
  int64_t event;
  int64_t value;
  double t;
  double last;
};

// Places in the pools.
struct Places {
  uint64_t slots;
  uint64_t fences;
  uint64_t blocks;
};

// One to a store, on the device.
struct ResidentState {
  Places used;
  Places begin;  // what was used before the batch at hand
  int64_t batches, events, records;  // taken
  int64_t first;                     // events before the batch at hand
  int32_t accepted;                  // whether the batch at hand is written
  uint32_t finished;                 // blocks of the plan
  // The least of what is wrong with the batch at hand, kRight where nothing is: an event and why;
  // an event whose time Compact does not hold; a half and its place in the order, for the last two.
  unsigned long long invalid, uneven, crowded, late;
  Refused refused;
};
constexpr unsigned long long kRight = ~0ull;

// An entry of the list of `owner` that event `half / 2` brings, or `half` where edges are directed.
struct alignas(8) Half {
  uint32_t owner;
  uint32_t half;
};

// Where the halves of one vertex go. Places of new ones are counted from the first of the run of
// the plan that the segment begins in.
struct alignas(64) Segment {
  uint64_t next;    // slot of the first record, of `left`; with `moved` counted from `fresh`
  uint64_t fresh;   // first new slot: blocks of `capacity` follow each other
  uint64_t fence;   // the vertex's fences, new ones with `refenced`
  uint32_t block;   // first new block
  uint32_t count;   // halves
  uint32_t left;    // of them that need no new block
  uint32_t capacity;  // 0: no new slots
  uint32_t tail;    // the vertex's newest block before
  uint32_t before;  // records before the new blocks
  uint32_t fences;  // fences before those of new blocks
  uint8_t moved;    // its only block goes to larger place
  uint8_t refenced;
};
static_assert(sizeof(Segment) == 64, "two sectors");

struct EventBatch {
  const int64_t* src;
  const int64_t* dst;
  const double* t;
  const int64_t* eid;  // null: numbers in order of insertion
  int64_t size;        // below 2^31
};

struct ResidentInsert {
  Vertex* vertices;
  Fence* fences;
  Block* blocks;
  void* records;
  Places room;
  int64_t num_vertices;
  BlockPolicy policy;
  Layout layout;
  bool undirected;
  double origin;
  ResidentState* state;
  EventBatch batch;
  // Scratch, for `halves()` of them.
  Half* halves_at[2];  // [halves]
  uint32_t* digits;    // [sort_digits(...)]
  uint32_t* heads;     // [halves] where the segment of each sorted one begins
  Segment* segments;   // [halves], those at heads
  Places* sums;        // [plan_blocks(halves)]

  DGB_HD int64_t halves() const { return undirected ? 2 * batch.size : batch.size; }
  DGB_HD int64_t event_of(uint32_t half) const { return undirected ? half / 2 : half; }
  DGB_HD bool backwards(uint32_t half) const { return undirected && half % 2 == 1; }
  DGB_HD uint32_t owner_of(uint32_t half) const {
    const int64_t i = event_of(half);
    const int64_t v = backwards(half) ? batch.dst[i] : batch.src[i];
    return v >= 0 && v < num_vertices ? static_cast<uint32_t>(v) : 0;  // refused later
  }
  DGB_HD double time_of_half(uint32_t half) const { return batch.t[event_of(half)]; }
  DGB_HD int64_t edge_of(int64_t event, int64_t first) const {
    return batch.eid == nullptr ? first + event : batch.eid[event];
  }
};

struct SortShape {
  int passes;
  int bits;  // of each
};

DGB_HD SortShape sort_shape(int64_t num_vertices) {
  int bits = 0;
  while (int64_t{1} << bits < num_vertices) ++bits;
  const int passes = bits <= kMostDigitBits ? 1 : (bits + kMostDigitBits - 1) / kMostDigitBits;
  return {passes, (bits + passes - 1) / passes};
}
// Halves that each block takes, whole tiles, so that there are at most `blocks`.
DGB_HD int64_t run_length(int64_t halves, int64_t tile, int64_t blocks) {
  return (halves + tile * blocks - 1) / (tile * blocks) * tile;
}
DGB_HD int64_t run_count(int64_t halves, int64_t tile, int64_t blocks) {
  const int64_t run = run_length(halves, tile, blocks);
  return run == 0 ? 0 : (halves + run - 1) / run;
}
DGB_HD int64_t sort_digits(int64_t halves, int64_t num_vertices) {
  return run_count(halves, kSortTile, kSortBlocks) << sort_shape(num_vertices).bits;
}
DGB_HD int64_t plan_blocks(int64_t halves) { return run_count(halves, kPlanTile, kPlanBlocks); }

// What is wrong with an event by itself; None for all but these. Loads do not wait for each other.
DGB_HD Refusal refusal_of(const ResidentInsert& in, int64_t event) {
  const int64_t u = in.batch.src[event], v = in.batch.dst[event];
  const double t = in.batch.t[event], units = t - in.origin;
  const int64_t e = in.edge_of(event, in.state->events);
  const int64_t most = in.layout == Layout::Wide ? INT64_MAX : int64_t{kNone} - 1;
  const bool fits = units >= 0 && units < 4294967296.0 && units == floor(units);
  if (u < 0 || u >= in.num_vertices) return Refusal::Source;
  if (v < 0 || v >= in.num_vertices) return Refusal::Destination;
  if (!(t - t == 0.0)) return Refusal::Time;
  if (e < 0 || e > most) return Refusal::Edge;
  return in.layout == Layout::Compact && !fits ? Refusal::Compact : Refusal::None;
}

// Where the next `count` records of a vertex go, and what that needs.
DGB_HD Segment planned(const BlockPolicy& policy, const Vertex& v, uint32_t count, Places& need) {
  Segment to{};
  const uint64_t degree = uint64_t{v.before} + v.size + count;
  const uint32_t free = v.capacity - v.size;
  to.count = count;
  to.left = free < count ? free : count;
  to.next = v.first + v.size;
  to.fence = v.fence;
  to.tail = v.tail;
  to.before = v.before + v.size + to.left;
  to.fences = v.fences + (v.tail == kNone ? 0 : 1);
  const uint32_t rest = count - to.left;
  if (rest == 0) return to;
  const bool grows = policy.grows(v, degree);
  to.capacity = grows ? policy.grown(degree) : policy.capacity(degree, rest);
  if (grows && v.tail != kNone) {
    to.moved = 1;
    to.left = count;
    to.next = v.size;
    need.slots = to.capacity;
    return to;
  }
  const uint64_t blocks = (uint64_t{rest} + to.capacity - 1) / to.capacity;
  need.slots = blocks * to.capacity;
  need.blocks = blocks;
  const uint64_t room = FenceLengths::fitting(to.fences + blocks - 1);
  if (room > FenceLengths::fitting(v.fences)) {
    need.fences = room;
    to.refenced = 1;
  }
  return to;
}

extern "C" {
// All vertices without records, and a state without events; the batch and scratch are not looked
// at.
int dgb_resident_clear(const ResidentInsert* in, void* stream);
// Halves in the order of their owners, equal ones in order of arrival, at `dgb_resident_sorted`;
// notes events that cannot be taken. Two launches a pass.
int dgb_resident_sort(const ResidentInsert* in, void* stream);
const Half* dgb_resident_sorted(const ResidentInsert* in);
// Segments, and whether the batch is taken; one launch. Then what is written; one launch.
int dgb_resident_plan(const ResidentInsert* in, void* stream);
int dgb_resident_place(const ResidentInsert* in, void* stream);
// The next batch is looked at again after one was refused.
int dgb_resident_forgive(const ResidentInsert* in, void* stream);
}

}  // namespace dgbench::temporal
