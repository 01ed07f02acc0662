#include "temporal_store/cuda_resident.hpp"

#include <algorithm>
#include <string>

#include "common/launchers.h"
#include "common/require.hpp"
#include "temporal_store/cuda_memory.h"

namespace dgbench::temporal {
namespace {

constexpr int64_t kMostEvents = (int64_t{1} << 31) - 1;

void require_success(int status, const char* what) {
  if (status != 0) throw std::runtime_error(std::string(what) + ": " + dgb_error_text(status));
}

uint64_t aligned(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// Scratch of an insert, one array behind the other.
struct Scratch {
  uint64_t halves[2], digits, heads, segments, sums, end;

  Scratch(uint64_t count, int64_t num_vertices) {
    const auto n = static_cast<int64_t>(count);
    uint64_t at = 0;
    const auto take = [&at](uint64_t bytes) {
      const uint64_t first = at;
      at += aligned(bytes);
      return first;
    };
    halves[0] = take(count * sizeof(Half));
    halves[1] = take(count * sizeof(Half));
    digits = take(static_cast<uint64_t>(sort_digits(n, num_vertices)) * sizeof(uint32_t));
    heads = take(count * sizeof(uint32_t));
    segments = take(count * sizeof(Segment));
    sums = take(static_cast<uint64_t>(plan_blocks(n)) * sizeof(Places));
    end = at;
  }
};

}  // namespace

// A vertex has d records in blocks that are all full but the last one. Adaptive blocks have at
// least as many slots as there were records before, until `size`: so there are ceil(log2(size)) + 3
// of them at most, and d / size, and the last one is at most as long as all of d. Runs that a grown
// block had take 3 times d or `size`. A run of fences for f blocks, with all that it grew out of,
// takes 5 f places.
Places places_for(uint64_t records, const ResidentShape& shape) {
  const uint64_t size = shape.policy.size;
  const uint64_t vertices = std::min(static_cast<uint64_t>(shape.num_vertices), records);
  const uint64_t open = std::min(records, vertices * size);
  uint64_t log = 0;
  while (uint64_t{1} << log < size) ++log;
  Places places{records, 0, 0};
  switch (shape.policy.sizing) {
    case Sizing::Adaptive:
    case Sizing::AdaptiveLiteral:
      places.slots += open;
      places.blocks = std::min(records, vertices * (log + 3) + records / size);
      places.fences = 5 * places.blocks;
      break;
    case Sizing::Fixed:
      places.slots += vertices * size;
      places.blocks = std::min(records, vertices + records / size);
      places.fences = 5 * (records / size);
      break;
    case Sizing::Grown:
      places.slots += 3 * open;
      places.blocks = std::min(records, vertices + records / size);
      places.fences = 5 * (records / size);
      break;
    default:
      places.blocks = records;
      places.fences = 5 * records;
  }
  places.blocks = std::min<uint64_t>(places.blocks, kNone - 1);
  return places;
}

uint64_t ResidentGraph::halves(int64_t events) const {
  return static_cast<uint64_t>(events) * (shape_.undirected ? 2 : 1);
}

uint64_t ResidentGraph::device_bytes() const {
  uint64_t bytes = 0;
  for (const Pool& pool : pools_) bytes += pool.bytes;
  return bytes - scratch_bytes();
}

// `bytes` of a pool, or `wanted` where there is room for more; with what it holds if it is to
// `keep` that. Whether it is another one now.
bool ResidentGraph::make_room(Name name, uint64_t bytes, uint64_t wanted, bool keep, void* stream) {
  Pool& pool = pools_[name];
  if (bytes <= pool.bytes) return false;
  const Pool old = pool;
  for (const uint64_t size : {aligned(std::max(bytes, wanted)), aligned(bytes)}) {
    if (cap_ > 0 && name != kScratch && device_bytes() - old.bytes + size > cap_) continue;
    void* at = nullptr;
    const int status = dgb_device_allocate(&at, size);
    if (status == kNoMemory) continue;
    require_success(status, "no memory for the graph");
    pool = {static_cast<uint8_t*>(at), size};
    break;
  }
  if (pool.at == old.at) {
    throw OutOfDeviceMemory("out of device memory: " + std::to_string(bytes) +
                            " bytes of a pool do not fit beside " +
                            std::to_string(device_bytes() - old.bytes) + " of others" +
                            (cap_ > 0 ? ", at most " + std::to_string(cap_) + " are allowed" : ""));
  }
  if (old.at == nullptr) return true;
  int status = keep ? dgb_copy_within(pool.at, old.at, old.bytes, stream) : 0;
  const int waited = dgb_wait(stream);
  dgb_device_free(old.at);
  require_success(status == 0 ? waited : status, "a pool cannot be moved");
  return true;
}

// Places for all records, and scratch for a batch of so many halves.
void ResidentGraph::make_all(uint64_t records, uint64_t batch, void* stream) {
  const Places least = places_for(records, shape_);
  const Places more = places_for(records + records / 2, shape_);
  const uint64_t record = record_size(shape_.layout);
  bool grown = make_room(kRecords, least.slots * record, more.slots * record, true, stream);
  grown = make_room(kFences, least.fences * sizeof(Fence), more.fences * sizeof(Fence), true,
                    stream) || grown;
  grown = make_room(kBlocks, least.blocks * sizeof(Block), more.blocks * sizeof(Block), true,
                    stream) || grown;
  const uint64_t scratch = Scratch(batch, shape_.num_vertices).end;
  grown = make_room(kScratch, scratch, 0, false, stream) || grown;
  growths_ += grown ? 1 : 0;
  room_ = {pools_[kRecords].bytes / record, pools_[kFences].bytes / sizeof(Fence),
           std::min<uint64_t>(pools_[kBlocks].bytes / sizeof(Block), kNone - 1)};
}

ResidentInsert ResidentGraph::arguments(const EventBatch& batch) const {
  ResidentInsert in{};
  in.vertices = reinterpret_cast<Vertex*>(pools_[kVertices].at);
  in.fences = reinterpret_cast<Fence*>(pools_[kFences].at);
  in.blocks = reinterpret_cast<Block*>(pools_[kBlocks].at);
  in.records = pools_[kRecords].at;
  in.room = room_;
  in.num_vertices = shape_.num_vertices;
  in.policy = shape_.policy;
  in.layout = shape_.layout;
  in.undirected = shape_.undirected;
  in.origin = shape_.origin;
  in.state = reinterpret_cast<ResidentState*>(pools_[kState].at);
  in.batch = batch;
  const Scratch scratch(halves(batch.size), shape_.num_vertices);
  uint8_t* const at = pools_[kScratch].at;
  for (int i = 0; i < 2; ++i) in.halves_at[i] = reinterpret_cast<Half*>(at + scratch.halves[i]);
  in.digits = reinterpret_cast<uint32_t*>(at + scratch.digits);
  in.heads = reinterpret_cast<uint32_t*>(at + scratch.heads);
  in.segments = reinterpret_cast<Segment*>(at + scratch.segments);
  in.sums = reinterpret_cast<Places*>(at + scratch.sums);
  return in;
}

void ResidentGraph::clear(void* stream) {
  if (mailbox_ == nullptr) {
    void* at = nullptr;
    require_success(dgb_host_allocate(&at, sizeof(ResidentState)), "no page-locked memory");
    mailbox_ = new (at) ResidentState{};
  }
  const auto lines = std::max<uint64_t>(1, static_cast<uint64_t>(shape_.num_vertices));
  make_room(kVertices, lines * sizeof(Vertex), 0, false, stream);
  make_room(kState, sizeof(ResidentState), 0, false, stream);
  const ResidentInsert in = arguments({});
  require_success(dgb_resident_clear(&in, stream), "the graph cannot be cleared");
  records_ = 0;
  tell(stream);
}

void ResidentGraph::reserve(int64_t events, int64_t batch, void* stream) {
  require(events >= 0 && batch >= 0 && batch <= kMostEvents, "events and batch must be 0 or more");
  require(mailbox_ != nullptr, "the graph was given back; clear it first");
  // Inserts that a CUDA graph has played again were not counted here.
  const volatile int64_t& taken = mailbox_->records;
  records_ = std::max(records_, static_cast<uint64_t>(taken));
  make_all(records_ + halves(events), halves(batch), stream);
}

void ResidentGraph::insert(const EventBatch& batch, void* stream) {
  require(batch.size <= kMostEvents, "a batch has at most 2^31 - 1 events");
  if (batch.size == 0) return;
  reserve(batch.size, batch.size, stream);
  const ResidentInsert in = arguments(batch);
  records_ += halves(batch.size);
  require_success(dgb_resident_sort(&in, stream), "a batch cannot be sorted");
  require_success(dgb_resident_plan(&in, stream), "an insert cannot be planned");
  require_success(dgb_resident_place(&in, stream), "a batch cannot be written");
  tell(stream);
}

void ResidentGraph::tell(void* stream) {
  require_success(dgb_copy_out(mailbox_, pools_[kState].at, sizeof(ResidentState), stream),
        "the state cannot be read");
}

const ResidentState& ResidentGraph::state(void* stream) {
  require(mailbox_ != nullptr, "the graph was given back; clear it first");
  tell(stream);
  require_success(dgb_wait(stream), "the device does not answer");
  return *mailbox_;
}

void ResidentGraph::forgive(void* stream) {
  const ResidentInsert in = arguments({});
  require_success(dgb_resident_forgive(&in, stream), "a refusal cannot be taken back");
  tell(stream);
}

void ResidentGraph::release() {
  for (Pool& pool : pools_) {
    if (pool.at != nullptr) dgb_device_free(pool.at);
    pool = Pool{};
  }
  if (mailbox_ != nullptr) dgb_host_free(mailbox_);
  mailbox_ = nullptr;
  room_ = Places{};
}

StoreView ResidentGraph::view() const {
  require(mailbox_ != nullptr, "the graph was given back; clear it first");
  StoreView view{};
  view.vertices = reinterpret_cast<const Vertex*>(pools_[kVertices].at);
  view.fences = reinterpret_cast<const Fence*>(pools_[kFences].at);
  view.blocks = reinterpret_cast<const Block*>(pools_[kBlocks].at);
  view.records = pools_[kRecords].at;
  view.num_vertices = shape_.num_vertices;
  view.origin = shape_.origin;
  view.layout = shape_.layout;
  view.num_slots = room_.slots;
  view.num_fences = room_.fences;
  view.num_blocks = room_.blocks;
  return view;
}

}  // namespace dgbench::temporal
