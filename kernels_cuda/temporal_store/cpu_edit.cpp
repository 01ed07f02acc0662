// What happens to a store besides appending: late edges, deletion, and blocks that leave it for a
// file and come back. Most walk the whole store, some build it anew; nothing is changed before all
// is checked.
#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.hpp"
#include "temporal_store/cpu_records.hpp"
#include "temporal_store/cpu_store.hpp"

namespace dgbench::temporal {

// A block as it is now, a vertex's last one included.
Block TemporalStore::current(uint32_t block) const {
  Block b = blocks_[block];
  const Vertex& v = vertices_[b.owner];
  if (v.tail == block) {
    b.size = v.size;
    b.t_min = v.t_min;
    b.t_max = v.t_max;
  }
  return b;
}

// Brings the records of a vertex back into the order of time: the first `before` are in order, and
// so are those that the batch appended. Those that were there go first where times are equal.
template <class R>
void TemporalStore::merge(uint32_t vertex, uint32_t before, std::vector<R>& all) {
  Vertex& v = vertices_[vertex];
  R* pool = records<R>();
  all.clear();
  const StoreView seen = view();
  for_each_run(seen, v, [&](uint64_t first, uint32_t size) {
    all.insert(all.end(), pool + first, pool + first + size);
  });
  std::inplace_merge(all.begin(), all.begin() + before, all.end(), [](const R& a, const R& b) {
    return time_of(a, 0.0) < time_of(b, 0.0);
  });
  const R* next = all.data();
  uint32_t block = v.head;
  for_each_run(seen, v, [&](uint64_t first, uint32_t size) {
    std::copy_n(next, size, pool + first);
    next += size;
    Block& here = blocks_[block];
    here.t_min = time_of(pool[first], origin_);
    here.t_max = time_of(pool[first + size - 1], origin_);
    here.dead = static_cast<uint32_t>(
        std::count_if(pool + first, pool + first + size, [](const R& r) { return is_dead(r); }));
    block = here.next;
  });
  block = v.head;
  for (uint32_t f = 0; f < v.fences; ++f, block = blocks_[block].next) {
    fences_[v.fence + f].t_min = blocks_[block].t_min;
  }
  v.t_min = time_of(pool[v.first], origin_);
  v.t_max = time_of(pool[v.first + v.size - 1], origin_);
}

template void TemporalStore::merge<Packed>(uint32_t, uint32_t, std::vector<Packed>&);
template void TemporalStore::merge<Compact>(uint32_t, uint32_t, std::vector<Compact>&);
template void TemporalStore::merge<Wide>(uint32_t, uint32_t, std::vector<Wide>&);

int64_t TemporalStore::delete_edges(const int64_t* eids, int64_t count) {
  must_write();
  return with_layout(layout_, [&](auto record) {
    return delete_edges_as<decltype(record)>(eids, count);
  });
}

template <class R>
int64_t TemporalStore::delete_edges_as(const int64_t* eids, int64_t count) {
  std::vector<int64_t> wanted(eids, eids + count);
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  if (wanted.empty()) return 0;
  std::vector<char> found(wanted.size(), 0);
  std::vector<std::pair<uint32_t, uint64_t>> graves;  // block and place
  R* pool = records<R>();
  for (uint32_t b = 0; b < blocks_.size(); ++b) {
    const Block block = current(b);
    for (uint64_t i = block.first; i < block.first + block.size; ++i) {
      const auto eid = static_cast<int64_t>(pool[i].eid);
      if (eid < wanted.front() || eid > wanted.back() || is_dead(pool[i])) continue;
      const auto at = std::lower_bound(wanted.begin(), wanted.end(), eid);
      if (*at != eid) continue;
      found[at - wanted.begin()] = 1;
      graves.emplace_back(b, i);
    }
  }
  const auto lacking = std::find(found.begin(), found.end(), 0);
  if (lacking != found.end()) {
    reject("eid " + std::to_string(wanted[lacking - found.begin()]) +
           " is not in the store, or deleted already");
  }
  for (const auto& [b, place] : graves) {
    bury(pool[place]);
    ++blocks_[b].dead;
    ++vertices_[blocks_[b].owner].dead;
  }
  num_dead_ += static_cast<int64_t>(graves.size());
  return static_cast<int64_t>(graves.size());
}

void TemporalStore::delete_vertices(const int64_t* ids, int64_t count, bool deleted) {
  must_write();
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] >= 0 && ids[i] < num_vertices()) continue;
    reject("ids[" + std::to_string(i) + "] is " + std::to_string(ids[i]) +
           ", the store has vertices 0 to " + std::to_string(num_vertices() - 1));
  }
  for (int64_t i = 0; i < count; ++i) {
    uint32_t& flags = vertices_[ids[i]].flags;
    if (((flags & kDeleted) != 0) == deleted) continue;
    flags ^= kDeleted;
    num_deleted_vertices_ += deleted ? 1 : -1;
  }
}

// Blocks of a list from this one on.
uint32_t TemporalStore::blocks_from(uint32_t block) const {
  uint32_t count = 0;
  for (; block != kNone; block = blocks_[block].next) ++count;
  return count;
}

// For each vertex its oldest block with a record that is not older than `before`, kNone if none.
std::vector<uint32_t> TemporalStore::first_kept(double before) const {
  std::vector<uint32_t> first(vertices_.size());
  for (std::size_t v = 0; v < vertices_.size(); ++v) {
    uint32_t block = vertices_[v].head;
    while (block != kNone && current(block).t_max < before) block = blocks_[block].next;
    first[v] = block;
  }
  return first;
}

Shelf TemporalStore::older(double before) const {
  const std::vector<uint32_t> stop = first_kept(before);
  Shelf shelf;
  std::size_t bytes = 0;
  for (std::size_t v = 0; v < vertices_.size(); ++v) {
    const std::size_t blocks = shelf.sizes.size();
    for (uint32_t b = vertices_[v].head; b != stop[v]; b = blocks_[b].next) {
      const Block block = current(b);
      shelf.sizes.push_back(block.size);
      shelf.capacity.push_back(block.capacity);
      bytes += block.size * record_bytes_;
    }
    if (shelf.sizes.size() == blocks) continue;
    shelf.vertices.push_back(static_cast<int64_t>(v));
    shelf.counts.push_back(static_cast<int64_t>(shelf.sizes.size() - blocks));
  }
  shelf.records.reserve(bytes);
  for (const int64_t v : shelf.vertices) {
    for (uint32_t b = vertices_[v].head; b != stop[v]; b = blocks_[b].next) {
      const Block block = current(b);
      const unsigned char* from = records_.data() + block.first * record_bytes_;
      shelf.records.insert(shelf.records.end(), from, from + block.size * record_bytes_);
    }
  }
  return shelf;
}

// A store with the same vertices and no records.
TemporalStore TemporalStore::emptied() const {
  return TemporalStore(num_vertices(), policy_, layout_, undirected_, origin_);
}

// Appends a copy of a block; there must be room in the pools, and for its fence.
template <class R>
void TemporalStore::copy_block(TemporalStore& to, const R* from, uint32_t vertex, uint32_t size,
                               uint32_t capacity) const {
  const uint64_t first = to.records_.take(capacity * record_bytes_) / record_bytes_;
  R* target = to.records<R>() + first;
  std::copy_n(from, size, target);
  Vertex& v = to.vertices_[vertex];
  to.append_block<R>(v, vertex, first, size, capacity);
  const auto dead = static_cast<uint32_t>(
      std::count_if(target, target + size, [](const R& r) { return is_dead(r); }));
  to.blocks_[v.tail].dead = dead;
  v.dead += dead;
  to.num_stored_ += size;
  to.num_dead_ += dead;
}

// Takes over pools that were built from this store's; flags and the history stay.
void TemporalStore::adopt(TemporalStore& rebuilt) {
  for (std::size_t v = 0; v < vertices_.size(); ++v) {
    rebuilt.vertices_[v].flags = vertices_[v].flags;
  }
  vertices_.swap(rebuilt.vertices_);
  fences_.swap(rebuilt.fences_);
  blocks_.swap(rebuilt.blocks_);
  records_.swap(rebuilt.records_);
  free_fences_.swap(rebuilt.free_fences_);
  free_records_.swap(rebuilt.free_records_);
  ++generation_;
  num_stored_ = rebuilt.num_stored_;
  num_dead_ = rebuilt.num_dead_;
}

void TemporalStore::drop(double before) {
  must_own();
  const std::vector<uint32_t> first = first_kept(before);
  TemporalStore kept = emptied();
  kept.records_.need(records_.size());
  kept.blocks_.need(blocks_.size());
  kept.fences_.need(2 * blocks_.size());  // a run is less than twice as long as what it is for
  with_layout(layout_, [&](auto record) {
    using R = decltype(record);
    for (uint32_t v = 0; v < vertices_.size(); ++v) {
      if (first[v] == kNone) continue;
      kept.make_fence_room(kept.vertices_[v], blocks_from(first[v]) - 1);
      for (uint32_t b = first[v]; b != kNone; b = blocks_[b].next) {
        const Block block = current(b);
        copy_block<R>(kept, records<R>() + block.first, v, block.size, block.capacity);
      }
    }
  });
  adopt(kept);
}

void TemporalStore::reload(const ShelfView& shelf, bool sort) {
  must_own();
  with_layout(layout_, [&](auto record) { reload_as<decltype(record)>(shelf, sort); });
}

// Whatever a file may hold, the loops after this stay in bounds. Returns the slots it needs.
template <class R>
int64_t TemporalStore::check_shelf(const ShelfView& shelf) const {
  const auto bad = [](const std::string& what) {
    reject("the stored blocks are damaged: " + what);
  };
  int64_t block = 0;
  int64_t records = 0;
  int64_t slots = 0;
  const auto most = static_cast<int64_t>(kNone) - 1;
  for (int64_t b = 0; b < shelf.num_blocks; ++b) {
    const int64_t size = shelf.sizes[b];
    if (size < 1 || shelf.capacity[b] < size || shelf.capacity[b] > most) bad("a block's size");
    records += size;
    slots += shelf.capacity[b];
    if (records > shelf.num_bytes) bad("more records than bytes");
  }
  if (records * static_cast<int64_t>(sizeof(R)) != shelf.num_bytes) bad("the number of records");
  const R* all = reinterpret_cast<const R*>(shelf.records);
  int64_t next = 0;
  for (int64_t i = 0; i < shelf.num_vertices; ++i) {
    const int64_t vertex = shelf.vertices[i];
    if (vertex < 0 || vertex >= num_vertices() || (i > 0 && vertex <= shelf.vertices[i - 1])) {
      bad("vertex " + std::to_string(vertex));
    }
    if (shelf.counts[i] < 1 || shelf.counts[i] > shelf.num_blocks - block) bad("a block count");
    const Vertex& v = vertices_[vertex];
    int64_t mine = int64_t{v.before} + v.size;
    const int64_t first = next;
    for (int64_t c = 0; c < shelf.counts[i]; ++c) next += shelf.sizes[block++];
    mine += next - first;
    if (mine > most) bad("more than 2^32 - 2 records of a vertex");
    for (int64_t r = first; r < next; ++r) {
      const double t = time_of(all[r], origin_);
      if (!std::isfinite(t) || (r > first && t < time_of(all[r - 1], origin_))) bad("a time");
      if (!is_dead(all[r]) && uint64_t{all[r].node} >= vertices_.size()) bad("an id");
    }
  }
  if (block != shelf.num_blocks) bad("the number of blocks");
  return slots;
}

template <class R>
void TemporalStore::reload_as(const ShelfView& shelf, bool sort) {
  const int64_t slots = check_shelf<R>(shelf);
  const R* all = reinterpret_cast<const R*>(shelf.records);
  std::vector<std::pair<uint32_t, uint32_t>> mixed;  // vertex and the records that come
  std::vector<R> buffer;
  int64_t next = 0;
  int64_t block = 0;
  for (int64_t i = 0; i < shelf.num_vertices; ++i) {
    const int64_t first = next;
    for (int64_t c = 0; c < shelf.counts[i]; ++c) next += shelf.sizes[block++];
    const auto vertex = static_cast<uint32_t>(shelf.vertices[i]);
    const Vertex& v = vertices_[vertex];
    if (v.head == kNone) continue;
    const double newest = time_of(all[next - 1], origin_);
    const double oldest = current(v.head).t_min;
    if (newest <= oldest) continue;
    if (!sort) {
      reject("the stored records of vertex " + std::to_string(vertex) + " reach to " +
             std::to_string(newest) + ", those in the store begin at " + std::to_string(oldest));
    }
    mixed.emplace_back(vertex, static_cast<uint32_t>(next - first));
    buffer.reserve(static_cast<std::size_t>(next - first) + v.before + v.size);
  }
  TemporalStore joined = emptied();
  joined.records_.need(records_.size() + slots * record_bytes_);
  joined.blocks_.need(blocks_.size() + shelf.num_blocks);
  joined.fences_.need(2 * (blocks_.size() + shelf.num_blocks));
  next = block = 0;
  for (uint32_t v = 0, i = 0; v < vertices_.size(); ++v) {
    const bool comes = i < shelf.num_vertices && shelf.vertices[i] == v;
    const auto blocks = static_cast<uint32_t>(comes ? shelf.counts[i] : 0) +
                        blocks_from(vertices_[v].head);
    if (blocks > 0) joined.make_fence_room(joined.vertices_[v], blocks - 1);
    if (comes) {
      for (int64_t c = 0; c < shelf.counts[i]; ++c, ++block) {
        copy_block<R>(joined, all + next, v, static_cast<uint32_t>(shelf.sizes[block]),
                      static_cast<uint32_t>(shelf.capacity[block]));
        next += shelf.sizes[block];
      }
      ++i;
    }
    for (uint32_t b = vertices_[v].head; b != kNone; b = blocks_[b].next) {
      const Block own = current(b);
      copy_block<R>(joined, records<R>() + own.first, v, own.size, own.capacity);
    }
  }
  adopt(joined);
  for (const auto& [vertex, before] : mixed) merge<R>(vertex, before, buffer);
}

}  // namespace dgbench::temporal
