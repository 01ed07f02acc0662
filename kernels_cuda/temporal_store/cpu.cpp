// Insertion into the block store. One pass counts the records of each vertex, one plans where they
// go and takes the memory, one writes them, one makes them known. Nothing can fail after the plan,
// and until the last pass no reader sees anything of the batch. Cache lines are asked for ahead.
#include "temporal_store/cpu_store.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "common/check.hpp"
#include "temporal_store/cpu_records.hpp"

namespace dgbench::temporal {
namespace {

constexpr std::size_t kPoolBytes = std::size_t{1} << 36;  // of addresses
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kFar = 24;   // steps ahead to ask for what leads to a line
constexpr std::size_t kNear = 12;  // and for the line itself

void fetch(const void* line) { __builtin_prefetch(line, 1); }

std::string at(int64_t i) { return "[" + std::to_string(i) + "]"; }

}  // namespace

TemporalStore::TemporalStore(int64_t num_vertices, BlockPolicy policy, Layout layout,
                             bool undirected, double origin, PoolFiles files)
    : policy_(policy),
      files_(files),
      layout_(layout),
      undirected_(undirected),
      origin_(origin),
      record_bytes_(record_size(layout)),
      vertices_(kPoolBytes, files.vertices, files.writes),
      fences_(kPoolBytes, files.fences, files.writes),
      blocks_(kPoolBytes, files.blocks, files.writes),
      records_(4 * kPoolBytes, files.records, files.writes) {
  if (policy.size == 0) reject("the size of a block must be at least 1");
  if (files.writes) add_vertices(num_vertices);
}

StoreCounts TemporalStore::counts() const {
  return {num_vertices(),
          static_cast<int64_t>(fences_.size()),
          static_cast<int64_t>(blocks_.size()),
          static_cast<int64_t>(records_.size()),
          num_events_,
          num_stored_,
          num_dead_,
          num_deleted_vertices_,
          static_cast<int64_t>(generation_),
          last_time_};
}

void TemporalStore::follow(const StoreCounts& counts) {
  if (files_.writes) reject("this store writes its pools itself");
  const auto sees = [](auto& pool, int64_t size) {
    if (size < 0) reject("a pool has no " + std::to_string(size) + " elements");
    pool.need(static_cast<std::size_t>(size));
    pool.clear();
    pool.take(static_cast<std::size_t>(size));
  };
  sees(vertices_, counts.vertices);
  sees(fences_, counts.fences);
  sees(blocks_, counts.blocks);
  sees(records_, counts.bytes);
  num_events_ = counts.events;
  num_stored_ = counts.stored;
  num_dead_ = counts.dead;
  num_deleted_vertices_ = counts.deleted;
  generation_ = static_cast<uint64_t>(counts.generation);
  last_time_ = counts.last_time;
}

void TemporalStore::must_write() const {
  if (!files_.writes) reject("another process writes the pools of this store; change it there");
}

void TemporalStore::must_own() const {
  if (files_.shared()) reject("the blocks of a store in shared memory stay where they are");
}

StoreView TemporalStore::view() const {
  return {vertices_.data(), fences_.data(),        blocks_.data(),
          records_.data(),  num_vertices(),        origin_,
          layout_,          num_deleted_vertices_, records_.size() / record_bytes_,
          fences_.size(),   blocks_.size()};
}

void TemporalStore::add_vertices(int64_t count) {
  must_write();
  if (count < 0 || num_vertices() + count >= static_cast<int64_t>(kNone)) {
    reject("a store has 0 to 2^32 - 2 vertices, asked for " + std::to_string(count) +
           " more than " + std::to_string(num_vertices()));
  }
  vertices_.need(vertices_.size() + count);
  touched_.resize(vertices_.size() + count, 0);
  const std::size_t first = vertices_.take(count);
  for (std::size_t i = first; i < vertices_.size(); ++i) {
    Vertex v{};
    v.t_min = kInfinity;
    v.t_max = -kInfinity;
    v.head = v.tail = kNone;
    vertices_[i] = v;
  }
}

Inserted TemporalStore::insert(const Batch& batch, bool sort) {
  must_write();
  return with_layout(layout_, [&](auto record) {
    return insert_as<decltype(record)>(batch, sort);
  });
}

// What one look at the batch can tell: ids, edge ids and times that the layout can hold.
void TemporalStore::check(const Batch& batch) const {
  const int64_t n = num_vertices();
  const int64_t most = layout_ == Layout::Wide ? std::numeric_limits<int64_t>::max()
                                               : static_cast<int64_t>(kNone) - 1;
  for (int64_t i = 0; i < batch.size; ++i) {
    const int64_t u = batch.src[i];
    const int64_t v = batch.dst[i];
    const int64_t e = batch.eid[i];
    const double t = batch.t[i];
    if (u >= 0 && u < n && v >= 0 && v < n && e >= 0 && e <= most && std::isfinite(t)) continue;
    if (u < 0 || u >= n || v < 0 || v >= n) {
      reject((u < 0 || u >= n ? "src" + at(i) + " is " + std::to_string(u)
                              : "dst" + at(i) + " is " + std::to_string(v)) +
             ", the store has vertices 0 to " + std::to_string(n - 1));
    }
    if (!std::isfinite(t)) reject("t" + at(i) + " is " + std::to_string(t) + ", times are finite");
    reject("eid" + at(i) + " is " + std::to_string(e) + ", this layout holds 0 to " +
           std::to_string(most));
  }
  if (layout_ == Layout::Compact) {
    for (int64_t i = 0; i < batch.size; ++i) {
      const double units = batch.t[i] - origin_;
      if (units >= 0 && units < 4294967296.0 && units == std::floor(units)) continue;
      reject("t" + at(i) + " is " + std::to_string(batch.t[i]) + ", layout compact holds " +
             std::to_string(origin_) + " plus whole numbers below 2^32");
    }
  }
  if (num_deleted_vertices_ > 0) {
    for (int64_t i = 0; i < batch.size; ++i) {
      const bool source = (vertices_[batch.src[i]].flags & kDeleted) != 0;
      if (!source && (vertices_[batch.dst[i]].flags & kDeleted) == 0) continue;
      reject((source ? "src" : "dst") + at(i) + " is vertex " +
             std::to_string(source ? batch.src[i] : batch.dst[i]) +
             ", which is deleted; revive it first");
    }
  }
}

template <class R>
Inserted TemporalStore::insert_as(const Batch& given, bool sort) {
  check(given);
  Batch batch = given;
  std::vector<int64_t> ids;
  std::vector<double> times;
  bool ordered = std::is_sorted(given.t, given.t + given.size);
  if (!ordered && sort) {
    std::vector<int64_t> order(given.size);
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return given.t[a] < given.t[b]; });
    ids.resize(3 * given.size);
    times.resize(given.size);
    for (int64_t i = 0; i < given.size; ++i) {
      ids[i] = given.src[order[i]];
      ids[given.size + i] = given.dst[order[i]];
      ids[2 * given.size + i] = given.eid[order[i]];
      times[i] = given.t[order[i]];
    }
    batch = {ids.data(), ids.data() + given.size, times.data(), ids.data() + 2 * given.size,
             given.size};
    ordered = true;
  }
  ordered = ordered && (batch.size == 0 || batch.t[0] >= last_time_);

  // The marks in touched_ must be gone afterwards, whatever is thrown.
  struct Unmark {
    TemporalStore& store;
    ~Unmark() {
      for (std::size_t k = 0; k < store.cursors_.size(); ++k) {
        store.touched_[store.cursors_[k].vertex] = 0;
      }
    }
  } unmark{*this};
  std::vector<std::pair<uint32_t, uint32_t>> late;  // vertex and the records it had
  std::vector<R> buffer;                              // to merge in
  Inserted made;
  std::size_t slots = 0;
  std::size_t fences = 0;
  cursors_.clear();
  cursors_.need(batch.size * (undirected_ ? 2 : 1));
  count(batch);
  plan(made, slots, fences);
  if (!ordered) {
    for_each_half(batch, [&](int64_t i, int64_t, Cursor& one) {
      const Vertex& v = vertices_[one.vertex];
      if (batch.t[i] < one.last && !sort) {
        reject("t" + at(i) + " is " + std::to_string(batch.t[i]) +
               ", older than the last record of vertex " + std::to_string(one.vertex) + " at " +
               std::to_string(one.last));
      }
      if (batch.t[i] < one.last) {  // its first record: a batch to be sorted is in order by now
        late.emplace_back(one.vertex, v.before + v.size);
        buffer.reserve(uint64_t{v.before} + v.size + shares_[&one - cursors_.data()].count);
      }
      one.last = batch.t[i];
    });
  }
  records_.need(records_.size() + slots * record_bytes_);
  fences_.need(fences_.size() + fences);
  blocks_.need(blocks_.size() + made.blocks);
  free_records_.carry_out();
  records_.take(slots * record_bytes_);
  place<R>(batch);
  publish<R>();
  for (const auto& [vertex, before] : late) merge<R>(vertex, before, buffer);
  made.late = static_cast<int64_t>(late.size());
  num_events_ += batch.size;
  num_stored_ += made.records;
  for (int64_t i = 0; i < batch.size; ++i) last_time_ = std::max(last_time_, batch.t[i]);
  return made;
}

// Which vertices the batch touches, and how often.
void TemporalStore::count(const Batch& batch) {
  const int sides = undirected_ ? 2 : 1;
  const int64_t* ends[2] = {batch.src, batch.dst};
  for (int64_t i = 0; i < batch.size; ++i) {
    for (int side = 0; side < sides; ++side) {
      if (i + static_cast<int64_t>(kFar) < batch.size) fetch(&touched_[ends[side][i + kFar]]);
      const int64_t vertex = ends[side][i];
      if (touched_[vertex]++ > 0) continue;
      const std::size_t k = cursors_.take(1);
      cursors_[k].vertex = static_cast<uint32_t>(vertex);
    }
  }
}

// Where every record goes, and what that needs: slots, blocks, places of fences.
void TemporalStore::plan(Inserted& made, std::size_t& slots, std::size_t& fences) {
  const std::size_t count = cursors_.size();
  const uint64_t end = records_.size() / record_bytes_;
  shares_.resize(count);
  free_records_.begin_plan();
  for (std::size_t k = 0; k < count; ++k) {
    if (k + kFar < count) fetch(&vertices_[cursors_[k + kFar].vertex]);
    Cursor& one = cursors_[k];
    const Vertex& v = vertices_[one.vertex];
    const uint32_t mine = touched_[one.vertex];
    touched_[one.vertex] = static_cast<uint32_t>(k + 1);
    const uint64_t degree = uint64_t{v.before} + v.size + mine;
    one.left = std::min(v.capacity - v.size, mine);
    one.next = v.first + v.size;
    one.fresh = end + slots;
    one.last = v.t_max;
    const uint32_t rest = mine - one.left;
    made.records += mine;
    shares_[k] = {mine, 0};
    if (rest > 0) {
      if (degree >= kNone) {
        reject("vertex " + std::to_string(one.vertex) + " would have " + std::to_string(degree) +
               " records, at most 2^32 - 2 are allowed");
      }
      if (policy_.grows(v, degree)) {
        const uint32_t capacity = policy_.grown(degree);
        const uint64_t place = free_records_.plan_take(capacity);
        if (place == kNoRun) {
          slots += capacity;
        } else {
          one.fresh = place;
        }
        if (v.tail == kNone) ++made.blocks;
        shares_[k].capacity = capacity;
        one.next = one.fresh + v.size;
        one.left = mine;
        continue;
      }
      const uint32_t capacity = policy_.capacity(degree, rest);
      const uint64_t blocks = (uint64_t{rest} + capacity - 1) / capacity;
      shares_[k].capacity = capacity;
      slots += blocks * capacity;
      made.blocks += static_cast<int64_t>(blocks);
      const auto after = static_cast<uint32_t>(v.fences + blocks - (v.tail == kNone ? 1 : 0));
      const uint32_t fence_capacity = FenceRuns::Lengths::fitting(after);
      if (fence_capacity > FenceRuns::Lengths::fitting(v.fences)) fences += fence_capacity;
    }
    if (one.left == 0) one.next = one.fresh;  // and `left` runs from 2^32 - 1 downwards
  }
  made.vertices = static_cast<int64_t>(count);
  // Every block has a 32-bit place in the list of blocks.
  if (blocks_.size() + static_cast<std::size_t>(made.blocks) >= kNone) {
    reject("the store would have more than 2^32 - 2 blocks");
  }
}

// Calls call(event, neighbour, cursor) for every record of the batch, in order of arrival.
template <class Call>
void TemporalStore::for_each_half(const Batch& batch, Call call) {
  Cursor* cursors = cursors_.data() - 1;
  for (int64_t i = 0; i < batch.size; ++i) {
    call(i, batch.dst[i], cursors[touched_[batch.src[i]]]);
    if (undirected_) call(i, batch.src[i], cursors[touched_[batch.dst[i]]]);
  }
}

template <class R>
void TemporalStore::place(const Batch& batch) {
  R* all = records<R>();
  Cursor* cursors = cursors_.data() - 1;
  const uint32_t* touched = touched_.data();
  const int64_t far = static_cast<int64_t>(kFar);
  const int64_t near = static_cast<int64_t>(kNear);
  const auto put = [&](int64_t i, int64_t owner, int64_t other) {
    Cursor& one = cursors[touched[owner]];
    write_record(all[one.next++], other, batch.eid[i], batch.t[i], origin_);
    one.last = batch.t[i];
    if (--one.left == 0) one.next = one.fresh;
  };
  const auto run = [&](auto both) {
    for (int64_t i = 0; i < batch.size; ++i) {
      if (i + far < batch.size) {
        fetch(&cursors[touched[batch.src[i + far]]]);
        if (both) fetch(&cursors[touched[batch.dst[i + far]]]);
        fetch(&all[cursors[touched[batch.src[i + near]]].next]);
        if (both) fetch(&all[cursors[touched[batch.dst[i + near]]].next]);
      }
      put(i, batch.src[i], batch.dst[i]);
      if (both) put(i, batch.dst[i], batch.src[i]);
    }
  };
  undirected_ ? run(std::true_type{}) : run(std::false_type{});
}

template <class R>
void TemporalStore::publish() {
  const std::size_t count = cursors_.size();
  const bool grown = policy_.sizing == Sizing::Grown;
  for (std::size_t k = 0; k < count; ++k) {
    if (k + kFar < count) fetch(&vertices_[cursors_[k + kFar].vertex]);
    if (k + kNear < count && shares_[k + kNear].capacity > 0) {
      const Vertex& soon = vertices_[cursors_[k + kNear].vertex];
      if (soon.tail != kNone) {
        fetch(&blocks_[soon.tail]);
        fetch(&fences_[soon.fence] + soon.fences);
        if (grown) fetch(&records<R>()[soon.first]);
      }
    }
    const Cursor& one = cursors_[k];
    const auto [mine, capacity] = shares_[k];
    Vertex& v = vertices_[one.vertex];
    if (capacity == 0) {
      v.size += mine;
      v.t_max = one.last;
      continue;
    }
    const uint64_t degree = uint64_t{v.before} + v.size + mine;
    if (v.tail != kNone && policy_.grows(v, degree)) {
      replace_block<R>(v, one.fresh, capacity);
      v.size += mine;
      v.t_max = one.last;
      continue;
    }
    const uint32_t filled = v.capacity - v.size;
    uint32_t rest = mine - filled;
    const uint32_t blocks = 1 + (rest - 1) / capacity;
    make_fence_room(v, v.fences + blocks - (v.tail == kNone ? 1 : 0));
    v.size += filled;
    if (filled > 0) v.t_max = time_of(records<R>()[v.first + v.size - 1], origin_);
    for (uint64_t first = one.fresh; rest > 0; first += capacity) {
      const uint32_t size = std::min(rest, capacity);
      append_block<R>(v, one.vertex, first, size, capacity);
      rest -= size;
    }
  }
}

std::size_t TemporalStore::bytes_of_scratch() const {
  return touched_.capacity() * sizeof(uint32_t) + cursors_.size() * sizeof(Cursor) +
         shares_.capacity() * sizeof(Share);
}

}  // namespace dgbench::temporal
