// A temporal graph in blocks (GNNFlow 4.1): what the store writes and every sampler reads, on the
// host and on a device. Places are indices into pools, so that they mean the same wherever a pool
// lies: ordinary, pinned or managed memory, or a device's own.
//
// A vertex owns blocks of records in time order, oldest first. Its last block is described in the
// vertex's own cache line; the others by fences that stand next to each other, oldest first, so that
// a time is found by one search. The same blocks are also a doubly linked list, as in the paper.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench::temporal {

constexpr uint32_t kNone = 0xffffffffu;

// How a record holds a neighbour, the id of the edge and its time. `Packed` is exact for ids below
// 2^32 - 1; `Compact` also wants times that are whole units from `StoreView::origin`, below 2^32;
// `Wide` takes any id. A deleted edge keeps its place and time, its neighbour is the largest value.
enum class Layout : int32_t { Packed = 0, Compact = 1, Wide = 2 };

struct alignas(16) Packed {  // 16 bytes
  uint32_t node;
  uint32_t eid;
  double t;
};

struct Compact {  // 12 bytes
  uint32_t node;
  uint32_t eid;
  uint32_t t;
};

struct alignas(8) Wide {  // 24 bytes
  uint64_t node;
  uint64_t eid;
  double t;
};

// One line for each vertex: its last (newest) block, and how many records stand before it. A vertex
// without records has size 0, no fences, t_min = inf, t_max = -inf and head = tail = kNone.
struct alignas(64) Vertex {
  uint64_t first;     // place of the last block's records in the pool
  uint32_t size;      // records in it, deleted ones included
  uint32_t capacity;  // slots in it
  double t_min;       // time of its first record
  double t_max;       // time of its last record
  uint32_t before;    // records in all older blocks; at most 2^32 - 1 for one vertex
  uint32_t fences;    // number of older blocks
  uint64_t fence;     // place of their fences in the fence pool
  uint32_t head;      // oldest and newest block in the block pool, kNone when there is none
  uint32_t tail;
  uint32_t dead;      // deleted records among all
  uint32_t flags;     // kDeleted
};
static_assert(sizeof(Vertex) == 64, "a vertex is one cache line");

constexpr uint32_t kDeleted = 1u;

// An older block of a vertex, in the array that a search walks.
struct Fence {
  double t_min;
  uint64_t first;
  uint32_t before;  // records in blocks older than this one
  uint32_t size;
};
static_assert(sizeof(Fence) == 24, "three words");

// The block as a member of a list, as the paper describes it (its own record takes 72 bytes). The
// size and the times of a vertex's last block are current in the vertex's line only; they are
// written here when the next block follows. Links, place, owner and `dead` are always current.
struct Block {
  uint64_t first;
  uint32_t capacity;
  uint32_t size;
  double t_min;
  double t_max;
  uint32_t prev;
  uint32_t next;
  uint32_t owner;
  uint32_t dead;
};
static_assert(sizeof(Block) == 48, "six words");

// What a sampler is given. Pointers are to pools of one place.
struct StoreView {
  const Vertex* vertices;
  const Fence* fences;
  const Block* blocks;
  const void* records;  // Packed, Compact or Wide by `layout`
  int64_t num_vertices;
  double origin;  // time of Compact's zero
  Layout layout;
  int64_t deleted;  // vertices that carry kDeleted. While there are any, a record whose neighbour
                    // is one of them is hidden too; with none no neighbour's line need be read.
  uint64_t num_slots;  // places in use in each pool, for whoever copies it
  uint64_t num_fences;
  uint64_t num_blocks;
};

inline std::size_t record_size(Layout layout) {
  return layout == Layout::Packed ? sizeof(Packed)
                                  : layout == Layout::Compact ? sizeof(Compact) : sizeof(Wide);
}

// Time, neighbour and edge id of a record, the same for all layouts.
DGB_HD double time_of(const Packed& r, double) { return r.t; }
DGB_HD double time_of(const Compact& r, double origin) { return origin + static_cast<double>(r.t); }
DGB_HD double time_of(const Wide& r, double) { return r.t; }
DGB_HD bool is_dead(const Packed& r) { return r.node == kNone; }
DGB_HD bool is_dead(const Compact& r) { return r.node == kNone; }
DGB_HD bool is_dead(const Wide& r) { return r.node == ~uint64_t{0}; }
DGB_HD void write_record(Packed& r, int64_t node, int64_t eid, double t, double) {
  r = {static_cast<uint32_t>(node), static_cast<uint32_t>(eid), t};
}
DGB_HD void write_record(Compact& r, int64_t node, int64_t eid, double t, double origin) {
  r = {static_cast<uint32_t>(node), static_cast<uint32_t>(eid), static_cast<uint32_t>(t - origin)};
}
DGB_HD void write_record(Wide& r, int64_t node, int64_t eid, double t, double) {
  r = {static_cast<uint64_t>(node), static_cast<uint64_t>(eid), t};
}

}  // namespace dgbench::temporal
