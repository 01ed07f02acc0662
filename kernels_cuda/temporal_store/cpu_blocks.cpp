// The blocks of one vertex and their fences: a new one, room for more, a larger one in place of one.
// All memory was planned; nothing here fails.
#include <algorithm>

#include "temporal_store/cpu_store.hpp"

namespace dgbench::temporal {

// Links a block whose records are written behind the last one. There must be room for its fence.
template <class R>
void TemporalStore::append_block(Vertex& v, uint32_t vertex, uint64_t first, uint32_t size,
                                 uint32_t capacity) {
  const auto block = static_cast<uint32_t>(blocks_.take(1));
  if (v.tail != kNone) {
    Block& last = blocks_[v.tail];
    last.size = v.size;
    last.t_min = v.t_min;
    last.t_max = v.t_max;
    last.next = block;
    fences_[v.fence + v.fences++] = {v.t_min, v.first, v.before, v.size};
    v.before += v.size;
  } else {
    v.head = block;
  }
  const R* written = records<R>() + first;
  v.t_min = time_of(written[0], origin_);
  v.t_max = time_of(written[size - 1], origin_);
  blocks_[block] = {first, capacity, size, v.t_min, v.t_max, v.tail, kNone, vertex, 0};
  v.tail = block;
  v.first = first;
  v.size = size;
  v.capacity = capacity;
}

// Moves the fences of a vertex where there is room for so many. It is asked for once, before they
// are added: the room of those that are there follows from their number.
void TemporalStore::make_fence_room(Vertex& v, uint32_t fences) {
  const uint64_t capacity = FenceRuns::Lengths::fitting(v.fences);
  if (fences <= capacity) return;
  const uint64_t wanted = FenceRuns::Lengths::fitting(fences);
  uint64_t place = free_fences_.take(wanted);
  if (place == kNoRun) place = fences_.take(wanted);
  if (capacity > 0) {
    std::copy_n(&fences_[v.fence], v.fences, &fences_[place]);
    free_fences_.give(capacity, v.fence);
  }
  v.fence = place;
}

// Gives the only block of a vertex more slots, elsewhere.
template <class R>
void TemporalStore::replace_block(Vertex& v, uint64_t first, uint32_t capacity) {
  std::copy_n(records<R>() + v.first, v.size, records<R>() + first);
  free_records_.give(v.capacity, v.first);
  Block& block = blocks_[v.tail];
  block.first = v.first = first;
  block.capacity = v.capacity = capacity;
}

template void TemporalStore::append_block<Packed>(Vertex&, uint32_t, uint64_t, uint32_t, uint32_t);
template void TemporalStore::append_block<Compact>(Vertex&, uint32_t, uint64_t, uint32_t, uint32_t);
template void TemporalStore::append_block<Wide>(Vertex&, uint32_t, uint64_t, uint32_t, uint32_t);
template void TemporalStore::replace_block<Packed>(Vertex&, uint64_t, uint32_t);
template void TemporalStore::replace_block<Compact>(Vertex&, uint64_t, uint32_t);
template void TemporalStore::replace_block<Wide>(Vertex&, uint64_t, uint32_t);

}  // namespace dgbench::temporal
