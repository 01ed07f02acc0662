// What a batch of a stream needs on a device beside its sample: its roots, the distinct vertices
// that the sample names, their rows of features and memory, and the messages that it leaves. How
// many there are stands in the device's memory and is never read back.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

// Sources, destinations and others of a batch as roots, all at the times of their events. Index 0
// also adds 1 to `draws`.
struct RootsOf {
  const int64_t* ends;  // [3, count] sources, destinations, others
  const double* t;      // [count]
  int64_t count;
  int64_t* nodes;  // [3 count]
  double* times;   // [3 count]
  int64_t* draws;  // [1]

  DGB_HD void operator()(int64_t i) const {
    if (i == 0) ++*draws;
    nodes[i] = ends[i];
    times[i] = t[i % count];
  }
};

// 32 numbers of a set, and how many smaller ones are in it.
struct alignas(8) RankedWord {
  uint32_t before;
  uint32_t bits;
};

// Of a set that a block sums up at a time, and blocks that do so at most; few where they are played
// through one by one.
constexpr int64_t kSetTile = 256;
#if defined(DGBENCH_EMULATED_DEVICE)
constexpr int64_t kSetBlocks = 3, kLiveBlocks = 5;
#else
constexpr int64_t kSetBlocks = 1024, kLiveBlocks = 2048;
#endif

DGB_HD int64_t set_words(int64_t num_ids) { return num_ids < 1 ? 1 : (num_ids + 31) / 32; }
// Words that each block takes, whole tiles.
DGB_HD int64_t set_run(int64_t num_ids) {
  return (set_words(num_ids) + kSetTile * kSetBlocks - 1) / (kSetTile * kSetBlocks) * kSetTile;
}
DGB_HD int64_t set_sums(int64_t num_ids) {
  return (set_words(num_ids) + set_run(num_ids) - 1) / set_run(num_ids);
}

// The distinct ones of the first *live ids, ascending, and the place of each id among them; -1 for
// what is none of 0 .. num_ids - 1. Nothing is written behind the last of either.
struct DistinctIds {
  const int64_t* ids;   // [capacity]
  const int64_t* live;  // [1]
  int64_t capacity;     // below 2^31
  int64_t num_ids;
  uint32_t* set;      // [set_words(num_ids)] zero, before and after
  uint32_t* sums;     // [set_sums(num_ids)]
  RankedWord* ranks;  // [set_words(num_ids)]
  int64_t* distinct;  // [min(capacity, num_ids)]
  int64_t* count;     // [1]
  int64_t* place;     // [capacity]
};

// Rows of `words` times 4 bytes, read from one table and written to another.
struct RowTable {
  const void* from;  // [rows]; may be page-locked memory of the host
  void* to;          // [capacity]
  int32_t words;
};
constexpr int kMostTables = 6;

// Row ids[i] of every table to row i, for the first *live ids; those out of range are left out.
struct GatherByCount {
  const int64_t* ids;   // [capacity]
  const int64_t* live;  // [1]
  int64_t capacity;
  int64_t rows;  // of the shortest table
  int32_t tables;
  RowTable at[kMostTables];
};

// Both ends of a batch's events keep their memory and the message of their last event there, which
// is [own memory | the other's | row of the edge]; one that is older than what waits is dropped.
// Row r of what was read belongs to vertex distinct[r]. Lengths are in words of 4 bytes.
struct LeaveMessages {
  const int64_t* place;     // [2 count or more] rows of sources, then of destinations; -1 for none
  const double* t;          // [count]
  int64_t count;            // below 2^30
  const int64_t* distinct;  // [capacity]
  const float* memories;    // [capacity, width], messages taken in
  const double* updated;    // [capacity], as read
  const double* mail_time;  // [capacity], as read
  const float* edges;       // [count, edge_width]; not looked at where that is 0
  int32_t* last;            // [capacity] -1, before and after
  int64_t width, edge_width;
  // Of all vertices.
  float* to_memory;
  double* to_updated;
  float* to_mail;  // [.., 2 width + edge_width]
  double* to_mail_time;

  // Entry 2 i is the source of event i, 2 i + 1 its destination.
  DGB_HD int64_t row_of(int64_t entry) const {
    return place[(entry % 2 == 0 ? 0 : count) + entry / 2];
  }
  DGB_HD bool has_both(int64_t entry) const { return row_of(entry) >= 0 && row_of(entry ^ 1) >= 0; }
};

extern "C" {
int dgb_roots_of(const RootsOf* functor, void* stream);  // one launch
int dgb_distinct_ids(const DistinctIds* in, void* stream);  // four
int dgb_gather_by_count(const GatherByCount* in, void* stream);  // one
int dgb_leave_messages(const LeaveMessages* in, void* stream);  // two
}

}  // namespace dgbench
