// The store of a temporal graph in blocks (GNNFlow 4.1) on the host: appended to in place. Pools
// never move, and of blocks only those that a policy of ours lets grow. What the pools hold is in
// temporal_store/layout.hpp.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "temporal_store/block_policy.hpp"
#include "temporal_store/cpu_reserved.hpp"
#include "temporal_store/cpu_runs.hpp"
#include "temporal_store/layout.hpp"

namespace dgbench::temporal {

using FenceRuns = FreeRuns<kFenceSteps>;
using RecordRuns = FreeRuns<kRecordSteps>;

// Events of a batch, any order of time; one record each, or two if edges are undirected.
struct Batch {
  const int64_t* src;
  const int64_t* dst;
  const double* t;
  const int64_t* eid;
  int64_t size;
};

struct Inserted {
  int64_t records = 0;
  int64_t vertices = 0;  // that got a record
  int64_t blocks = 0;    // made; one that grew is not
  int64_t late = 0;      // vertices whose records had to be merged
};

// Blocks outside the pools: what goes into a file. For each vertex its blocks, oldest first, for
// each block its records.
struct Shelf {
  std::vector<int64_t> vertices;
  std::vector<int64_t> counts;    // blocks of each vertex
  std::vector<int64_t> sizes;     // records of each block
  std::vector<int64_t> capacity;  // slots of each block
  std::vector<unsigned char> records;
};

// The same as it comes back from a file: not to be trusted.
struct ShelfView {
  const int64_t* vertices;
  const int64_t* counts;
  int64_t num_vertices;
  const int64_t* sizes;
  const int64_t* capacity;
  int64_t num_blocks;
  const unsigned char* records;
  int64_t num_bytes;
};

// Files of shared memory that hold the pools of one store for several processes, -1 for none. One
// of them `writes`.
struct PoolFiles {
  int vertices = -1;
  int fences = -1;
  int blocks = -1;
  int records = -1;
  bool writes = true;

  bool shared() const { return vertices >= 0; }
};

// What a process has to know of a store whose pools another one writes: elements of the pools in
// use (of records their bytes) and counts.
struct StoreCounts {
  int64_t vertices;
  int64_t fences;
  int64_t blocks;
  int64_t bytes;
  int64_t events;
  int64_t stored;
  int64_t dead;
  int64_t deleted;
  int64_t generation;
  double last_time;
};

class TemporalStore {
 public:
  TemporalStore(int64_t num_vertices, BlockPolicy policy, Layout layout, bool undirected,
                double origin, PoolFiles files = {});

  // Of the one that writes, for those that follow; and what they make of it. No reader may be at
  // work in between.
  StoreCounts counts() const;
  void follow(const StoreCounts& counts);

  StoreView view() const;

  // All or nothing. Equal times keep their order of arrival. If `sort`, events in any order are put
  // into their place; otherwise one that is older than the last record of its vertex is refused.
  // Throws std::invalid_argument for ids, times and degrees out of range, std::bad_alloc.
  Inserted insert(const Batch& batch, bool sort);

  void add_vertices(int64_t count);

  // Marks the live records of these edges; every one must be there. Returns the records marked.
  int64_t delete_edges(const int64_t* eids, int64_t count);
  void delete_vertices(const int64_t* ids, int64_t count, bool deleted);

  // The whole blocks whose records are all older than `before`, and the store without them.
  Shelf older(double before) const;
  void drop(double before);
  // Puts blocks in front of those that are here; all or nothing. `sort` merges the records where
  // they are not older, otherwise they are refused.
  void reload(const ShelfView& shelf, bool sort);

  int64_t num_vertices() const { return static_cast<int64_t>(vertices_.size()); }
  int64_t num_events() const { return num_events_; }
  int64_t num_stored() const { return num_stored_; }
  int64_t num_records() const { return num_stored_ - num_dead_; }
  double last_time() const { return last_time_; }
  // Another number whenever the pools may lie elsewhere or hold other blocks at the same places.
  uint64_t generation() const { return generation_; }
  Layout layout() const { return layout_; }
  bool undirected() const { return undirected_; }
  std::size_t record_bytes() const { return record_bytes_; }
  void resume(int64_t events, double last_time) {
    num_events_ = events;
    last_time_ = last_time;
  }

  // Bytes of the pools' elements in use, and of what an insert keeps for itself.
  std::size_t bytes_of_vertices() const { return vertices_.size() * sizeof(Vertex); }
  std::size_t bytes_of_fences() const { return fences_.size() * sizeof(Fence); }
  std::size_t bytes_of_blocks() const { return blocks_.size() * sizeof(Block); }
  std::size_t bytes_of_records() const { return records_.size(); }
  std::size_t bytes_of_scratch() const;

 private:
  // A vertex of the batch at hand: where its next record goes.
  struct alignas(32) Cursor {
    uint64_t next;
    uint64_t fresh;  // first slot of its new blocks, which follow each other
    double last;     // time of its newest record
    uint32_t left;   // free slots at `next` before `fresh` goes on
    uint32_t vertex;
  };
  struct Share {
    uint32_t count;     // records of the batch
    uint32_t capacity;  // of each new block
  };

  void check(const Batch& batch) const;
  void count(const Batch& batch);
  void plan(Inserted& made, std::size_t& slots, std::size_t& fences);
  template <class Call>
  void for_each_half(const Batch& batch, Call call);
  template <class R>
  void place(const Batch& batch);
  template <class R>
  void publish();
  template <class R>
  void append_block(Vertex& v, uint32_t vertex, uint64_t first, uint32_t size, uint32_t capacity);
  void make_fence_room(Vertex& v, uint32_t fences);
  template <class R>
  void replace_block(Vertex& v, uint64_t first, uint32_t capacity);
  template <class R>
  void merge(uint32_t vertex, uint32_t before, std::vector<R>& buffer);
  template <class R>
  Inserted insert_as(const Batch& batch, bool sort);
  template <class R>
  int64_t delete_edges_as(const int64_t* eids, int64_t count);
  template <class R>
  void reload_as(const ShelfView& shelf, bool sort);
  template <class R>
  int64_t check_shelf(const ShelfView& shelf) const;
  template <class R>
  void copy_block(TemporalStore& to, const R* from, uint32_t vertex, uint32_t size,
                  uint32_t capacity) const;
  Block current(uint32_t block) const;
  uint32_t blocks_from(uint32_t block) const;
  std::vector<uint32_t> first_kept(double before) const;
  TemporalStore emptied() const;
  void adopt(TemporalStore& rebuilt);

  template <class R>
  R* records() {
    return reinterpret_cast<R*>(records_.data());
  }
  template <class R>
  const R* records() const {
    return reinterpret_cast<const R*>(records_.data());
  }

  void must_write() const;
  void must_own() const;

  BlockPolicy policy_;
  PoolFiles files_;
  Layout layout_;
  bool undirected_;
  double origin_;
  std::size_t record_bytes_;
  int64_t num_events_ = 0;
  int64_t num_stored_ = 0;  // records in blocks
  int64_t num_dead_ = 0;    // deleted ones among them
  int64_t num_deleted_vertices_ = 0;
  double last_time_ = -std::numeric_limits<double>::infinity();

  Reserved<Vertex> vertices_;
  Reserved<Fence> fences_;
  Reserved<Block> blocks_;
  Reserved<unsigned char> records_;
  FenceRuns free_fences_;
  RecordRuns free_records_;
  uint64_t generation_ = 0;

  // Per vertex, 0 between inserts: its records in the batch, then 1 + the place of its cursor.
  std::vector<uint32_t> touched_;
  Reserved<Cursor> cursors_;
  std::vector<Share> shares_;
};

// Calls `call` with the store's record type: one place for the three layouts.
template <class Call>
auto with_layout(Layout layout, Call call) {
  switch (layout) {
    case Layout::Packed: return call(Packed{});
    case Layout::Compact: return call(Compact{});
    default: return call(Wide{});
  }
}

// Whether a record is hidden: deleted itself, or its neighbour is. A deleted vertex hides all.
template <class R>
bool is_hidden(const StoreView& view, const R& record) {
  return is_dead(record) ||
         (view.deleted > 0 && (view.vertices[record.node].flags & kDeleted) != 0);
}

// The records of a vertex, run by run and oldest first: call(first, count).
template <class Call>
void for_each_run(const StoreView& view, const Vertex& v, Call call) {
  for (uint32_t f = 0; f < v.fences; ++f) {
    const Fence& fence = view.fences[v.fence + f];
    call(fence.first, fence.size);
  }
  if (v.size > 0) call(v.first, v.size);
}

}  // namespace dgbench::temporal
