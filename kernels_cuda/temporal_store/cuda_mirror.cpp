#include "temporal_store/cuda_mirror.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

#include "common/launchers.h"
#include "temporal_sample/cuda_launchers.h"

namespace dgbench::temporal {
namespace {

constexpr int kRefused = 1;   // cudaErrorInvalidValue
constexpr uint64_t kPinStep = uint64_t{2} << 20;  // the host's pools grow by as much
constexpr const char* kNames[kPools] = {"vertices", "fences", "blocks", "records", "the guide"};

double time_at(const HostPools& host, uint64_t place) {
  const uint8_t* const records = host.data[kRecords];
  switch (host.layout) {
    case Layout::Packed: return reinterpret_cast<const Packed*>(records)[place].t;
    case Layout::Compact:
      return time_of(reinterpret_cast<const Compact*>(records)[place], host.origin);
    default: return reinterpret_cast<const Wide*>(records)[place].t;
  }
}

// Steps of the host's memory that are page-locked, and for how many mirrors: those of one store
// share them.
std::mutex steps_mutex;
std::map<void*, int> steps;

int share_step(void* at) {
  const std::lock_guard<std::mutex> lock(steps_mutex);
  int& mirrors = steps[at];
  if (mirrors == 0) {
    if (const int status = dgb_pin(at, kPinStep)) {
      steps.erase(at);
      return status;
    }
  }
  ++mirrors;
  return 0;
}

// What the host has given back already cannot be unlocked any more; there is nothing to do then.
void drop_step(void* at) {
  const std::lock_guard<std::mutex> lock(steps_mutex);
  if (--steps[at] > 0) return;
  steps.erase(at);
  dgb_unpin(at);
}

void check(int status, const std::string& what) {
  if (status != 0) throw std::runtime_error(what + ": " + dgb_error_text(status));
}

// Whether a mirror page-locked any of these bytes of the host.
bool locked(const uint8_t* from, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(steps_mutex);
  const auto after = steps.lower_bound(const_cast<uint8_t*>(from) + bytes);
  return after != steps.begin() && static_cast<uint8_t*>(std::prev(after)->first) + kPinStep > from;
}

// A pool's bytes from the host to the device. Another mirror of the same store may have page-locked
// some of its steps: each is a range of its own to the runtime, which copies no two of them at once
// and returns before it has read what is page-locked. The host may write there after an update, so
// that such a copy is waited for.
int copy_pool(uint8_t* to, const uint8_t* from, uint64_t bytes, void* stream) {
  if (!locked(from, bytes)) {
    const int status = dgb_copy_in(to, from, bytes, stream);
    if (status != kRefused) return status;
  }
  std::vector<uint8_t> plain;
  for (uint64_t at = 0; at < bytes; at += kPinStep) {
    const uint64_t size = std::min(kPinStep, bytes - at);
    int status = dgb_copy_in(to + at, from + at, size, stream);
    if (status == kRefused) {  // page-locked by somebody else, in other pieces
      plain.assign(from + at, from + at + size);
      status = dgb_copy_in(to + at, plain.data(), size, stream);
    }
    if (status != 0) return status;
  }
  return dgb_wait(stream);
}

}  // namespace

TemporalMirror::Memory TemporalMirror::memory_of(int pool) const {
  switch (placement_) {
    case Placement::Cuda: return Memory::Device;
    case Placement::Hybrid:
    case Placement::Guided: return pool == kRecords ? Memory::Pinned : Memory::Device;
    case Placement::Uva: return Memory::Pinned;
    default: return Memory::Managed;
  }
}

uint64_t TemporalMirror::bytes_in(Memory memory) const {
  uint64_t bytes = 0;
  for (int p = 0; p < pools(); ++p) {
    if (memory_of(p) == memory) bytes += pools_[p].capacity;
  }
  return bytes;
}

void TemporalMirror::release(int pool) {
  Pool& mine = pools_[pool];
  for (void* step : mine.pinned) drop_step(step);
  if (memory_of(pool) != Memory::Pinned && mine.at != nullptr) dgb_device_free(mine.at);
  mine = Pool{};
}

void TemporalMirror::clear() {
  for (int p = 0; p < pools(); ++p) release(p);
  sender_.clear();
  lists_.clear();
  lines_.clear();
  guide_.clear();
  ready_ = false;
}

// Page-locks what the host's pool grew by.
void TemporalMirror::pin(int pool, const HostPools& host) {
  Pool& mine = pools_[pool];
  mine.at = const_cast<uint8_t*>(host.data[pool]);
  mine.used = host.bytes[pool];
  const uint64_t wanted = (mine.used + kPinStep - 1) / kPinStep * kPinStep;
  if (wanted <= mine.capacity) return;
  int same = 0;
  check(dgb_same_addresses(&same), "the device does not answer");
  if (same == 0) {
    throw std::runtime_error("this device does not read the host's memory under its own addresses");
  }
  for (; mine.capacity < wanted; mine.capacity += kPinStep) {
    uint8_t* const step = mine.at + mine.capacity;
    check(share_step(step),
          std::string("memory of the host for ") + kNames[pool] + " cannot be page-locked");
    mine.pinned.push_back(step);
  }
}

bool TemporalMirror::allocate(int pool, uint64_t bytes) {
  Pool& mine = pools_[pool];
  void* at = nullptr;
  int status = 0;
  const Memory memory = memory_of(pool);
  if (cap_ > 0 && bytes_in(memory) + bytes > cap_) return false;
  if (memory == Memory::Managed) {
    status = dgb_managed_allocate(&at, bytes);
  } else {
    status = dgb_device_allocate(&at, bytes);
  }
  if (status == kNoMemory) return false;
  check(status, std::string("no memory for ") + kNames[pool]);
  mine.at = static_cast<uint8_t*>(at);
  mine.capacity = bytes;
  return true;
}

// Half as much room again, in another place, with what the pool holds; false where both do not fit
// beside each other. Growing by a share makes this rare.
bool TemporalMirror::move_on(int pool, uint64_t bytes, void* stream) {
  Pool& mine = pools_[pool];
  const Pool old = mine;
  if (old.capacity == 0 || !allocate(pool, (bytes + bytes / 2) / 256 * 256 + 256)) return false;
  int status = dgb_copy_within(mine.at, old.at, old.used, stream);
  if (status == 0) status = dgb_wait(stream);
  dgb_device_free(old.at);
  check(status, std::string(kNames[pool]) + " cannot be moved");
  return true;
}

// Room for so many bytes. True where its content is gone: the host has all of it, so that old and new
// need not be there at once.
bool TemporalMirror::make_room(int pool, uint64_t bytes, void* stream) {
  Pool& mine = pools_[pool];
  const uint64_t wanted = std::max<uint64_t>(bytes, 256);
  if (wanted <= mine.capacity || move_on(pool, wanted, stream)) {
    mine.used = bytes;
    return false;
  }
  const bool grows = mine.capacity > 0;
  release(pool);
  if (!(grows && allocate(pool, (wanted + wanted / 2) / 256 * 256 + 256)) &&
      !allocate(pool, wanted)) {
    throw OutOfDeviceMemory(
        "out of device memory: " + std::to_string(wanted) + " bytes for " + kNames[pool] +
        " do not fit beside " + std::to_string(bytes_in(memory_of(pool))) +
        " bytes of other pools" +
        (cap_ > 0 ? ", at most " + std::to_string(cap_) + " are allowed" : std::string()));
  }
  mine.used = bytes;
  return true;
}

// Puts the times of records [first, last) into the guide, as far as it has them.
void TemporalMirror::note_times(const HostPools& host, uint64_t first, uint64_t last, bool whole,
                                PatchList& found) {
  const uint64_t begin = (first + kGuideStep - 1) / kGuideStep;
  const uint64_t end = (last + kGuideStep - 1) / kGuideStep;
  for (uint64_t g = begin; g < end; ++g) guide_[g] = time_at(host, g * kGuideStep);
  if (!whole && begin < end) add(kGuide, host, begin * 8, (end - begin) * 8, found);
}

void TemporalMirror::add(int pool, const HostPools& host, uint64_t from, uint64_t bytes,
                         PatchList& found) const {
  found.add(pools_[pool].at + from, host.data[pool] + from, bytes);
}

// What differs between the line of a vertex that was sent and that of now, of pools that are not sent
// whole; whether anything does.
bool TemporalMirror::collect_one(const HostPools& host, bool rewritten,
                                 const std::array<bool, kPools>& whole, std::size_t vertex,
                                 PatchList& found) {
  const Block* const blocks = host.blocks();
  const uint64_t record = record_size(host.layout);
  const Vertex& now = host.vertices()[vertex];
  Vertex& was = lines_[vertex];
  if (std::memcmp(&now, &was, sizeof(Vertex)) == 0) return false;
  const bool grown = !rewritten && was.head != kNone && now.head == was.head &&
                     now.dead == was.dead && now.before >= was.before;
  if (!whole[kVertices]) add(kVertices, host, vertex * sizeof(Vertex), sizeof(Vertex), found);
  if (!whole[kFences]) {
    const uint32_t kept =
        grown && now.fence == was.fence && now.fences >= was.fences ? was.fences : 0;
    add(kFences, host, (now.fence + kept) * sizeof(Fence), (now.fences - kept) * sizeof(Fence),
        found);
  }
  for (uint32_t b = now.tail; b != kNone; b = blocks[b].prev) {
    // The block that was the last one then has more records, or lies elsewhere with all of them.
    const bool old = grown && b == was.tail;
    const uint32_t kept = old && blocks[b].first == was.first ? was.size : 0;
    if (!whole[kBlocks]) add(kBlocks, host, b * sizeof(Block), sizeof(Block), found);
    const uint32_t size = b == now.tail ? now.size : blocks[b].size;
    const uint64_t first = blocks[b].first + kept;
    const uint64_t last = blocks[b].first + size;
    if (!whole[kRecords] && memory_of(kRecords) != Memory::Pinned) {
      add(kRecords, host, first * record, (last - first) * record, found);
    }
    if (placement_ == Placement::Guided) note_times(host, first, last, whole[kGuide], found);
    if (old) break;
  }
  was = now;
  return true;
}

// A list for every run of vertices, in their order: no two runs share a line, a record or a time of
// the guide.
void TemporalMirror::collect(const HostPools& host, bool rewritten,
                             const std::array<bool, kPools>& whole, int threads, Sent& sent) {
  constexpr std::size_t kLists = 1024;
  constexpr std::size_t kShortest = 256;  // vertices of a run
  const std::size_t run = std::max(kShortest, (lines_.size() + kLists - 1) / kLists);
  lists_.resize((lines_.size() + run - 1) / run);
  const auto count = static_cast<int64_t>(lists_.size());
  int64_t changed = 0;
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads) reduction(+ : changed) \
    if (threads > 1 && count > 4)
  for (int64_t l = 0; l < count; ++l) {
    lists_[l].clear();
    const std::size_t first = static_cast<std::size_t>(l) * run;
    const std::size_t last = std::min(lines_.size(), first + run);
    for (std::size_t v = first; v < last; ++v) {
      changed += collect_one(host, rewritten, whole, v, lists_[l]) ? 1 : 0;
    }
  }
  sent.vertices = changed;
  for (const PatchList& list : lists_) {
    sent.patches += static_cast<int64_t>(list.patches.size());
    sent.bytes += list.bytes;
  }
}

Sent TemporalMirror::update(const HostPools& given, bool rewritten, int threads, void* stream) {
  const bool moved = !ready_ || given.data != origin_ || given.generation != generation_ ||
                     given.layout != view_.layout;
  if (moved) clear();
  ready_ = false;
  HostPools host = given;
  if (placement_ == Placement::Guided) {
    const uint64_t slots = host.bytes[kRecords] / record_size(host.layout);
    guide_.resize((slots + kGuideStep - 1) / kGuideStep);
    host.data[kGuide] = reinterpret_cast<const uint8_t*>(guide_.data());
    host.bytes[kGuide] = guide_.size() * sizeof(double);
  }
  Sent sent;
  std::array<bool, kPools> whole{};
  try {
    for (int p = 0; p < pools(); ++p) {
      if (memory_of(p) == Memory::Pinned) {
        pin(p, host);
      } else {
        whole[p] = make_room(p, host.bytes[p], stream);
      }
    }
    if (memory_of(kVertices) != Memory::Pinned) {
      // Vertices that were added hold what no vertex holds, so that they count as changed.
      Vertex nothing{};
      std::memset(static_cast<void*>(&nothing), 0xff, sizeof(nothing));
      lines_.resize(static_cast<std::size_t>(host.num_vertices()), nothing);
      collect(host, rewritten, whole, threads, sent);
      const int status = sender_.prepare();
      if (status == kNoMemory) {
        throw OutOfDeviceMemory("out of device memory: no room to receive what changed");
      }
      check(status, "no room to receive what changed");
      check(sender_.send(lists_, threads, stream), "what changed cannot be sent");
    }
    for (int p = 0; p < pools(); ++p) {
      if (!whole[p]) continue;
      ++sent.whole;
      sent.bytes += host.bytes[p];
      if (memory_of(p) == Memory::Managed) {
        std::memcpy(pools_[p].at, host.data[p], host.bytes[p]);
      } else {
        check(copy_pool(pools_[p].at, host.data[p], host.bytes[p], stream),
              std::string(kNames[p]) + " cannot be sent");
      }
    }
  } catch (...) {
    clear();
    throw;
  }
  origin_ = given.data;
  generation_ = given.generation;
  view_.vertices = reinterpret_cast<const Vertex*>(pools_[kVertices].at);
  view_.fences = reinterpret_cast<const Fence*>(pools_[kFences].at);
  view_.blocks = reinterpret_cast<const Block*>(pools_[kBlocks].at);
  view_.records = pools_[kRecords].at;
  view_.num_vertices = host.num_vertices();
  view_.origin = host.origin;
  view_.layout = host.layout;
  view_.deleted = host.deleted;
  view_.num_slots = host.bytes[kRecords] / record_size(host.layout);
  view_.num_fences = host.bytes[kFences] / sizeof(Fence);
  view_.num_blocks = host.bytes[kBlocks] / sizeof(Block);
  ready_ = true;
  return sent;
}

StoreView TemporalMirror::view() const {
  if (!ready_) throw std::invalid_argument("the device holds no graph; call update first");
  return view_;
}

}  // namespace dgbench::temporal
