// What a device reads of a temporal store that the host writes (GNNFlow 4.1, 4.2): the store's four
// pools, each copied to the device, left in page-locked memory of the host, or in managed memory.
//
// An update sends what changed. It is found by comparing every vertex's line with the line that was
// sent last: what a vertex got since then follows from the two. Where the host's pools were built
// anew (another generation), so is the mirror: the same address may mean other memory then.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "temporal_store/cuda_memory.h"
#include "temporal_store/cuda_patches.hpp"
#include "temporal_store/device_graph.hpp"

namespace dgbench::temporal {

enum class Placement : int32_t {
  Cuda = 0,     // everything on the device
  Hybrid = 1,   // vertices, fences and blocks on the device, records in the host's memory (the paper)
  Uva = 2,      // everything in the host's memory
  Unified = 3,  // everything in managed memory, whose pages move to who reads them
  Guided = 4,   // hybrid, and the time of every eighth record on the device (`guide`)
};

// The guide is ours: a search in records that lie behind a bus reads it first, and then only the
// eight records, a line or two, between two of its times.
enum PoolName { kVertices, kFences, kBlocks, kRecords, kHostPools, kGuide = kHostPools, kPools };

// The pools in use, as the host has them; the mirror adds the guide.
struct HostPools {
  std::array<const uint8_t*, kPools> data;
  std::array<uint64_t, kPools> bytes;
  Layout layout;
  double origin;
  int64_t deleted;  // vertices
  uint64_t generation;

  int64_t num_vertices() const { return static_cast<int64_t>(bytes[kVertices] / sizeof(Vertex)); }
  const Vertex* vertices() const { return reinterpret_cast<const Vertex*>(data[kVertices]); }
  const Block* blocks() const { return reinterpret_cast<const Block*>(data[kBlocks]); }
};

struct Sent {
  uint64_t bytes = 0;    // of the pools, to the device or into managed memory
  int64_t patches = 0;   // pieces of pools, of 4 KiB at most; whole pools count none
  int64_t vertices = 0;  // whose line had changed
  int64_t whole = 0;     // pools that were sent whole
};

class TemporalMirror : public DeviceGraph {
 public:
  // `cap`: most bytes of the device's or of managed memory that the pools may take, 0 for no limit. `device` has to be the
  // current one in all calls of the others.
  TemporalMirror(Placement placement, uint64_t cap, int device)
      : DeviceGraph(device), placement_(placement), cap_(cap) {}
  ~TemporalMirror() override { clear(); }

  // Brings the device up to date. `rewritten`: records of a vertex that changed may have moved, so
  // that all of them are sent. `threads` look for what changed. Throws OutOfDeviceMemory; the mirror
  // is empty then.
  Sent update(const HostPools& host, bool rewritten, int threads, void* stream);

  // Gives everything back; the device must have finished with it.
  void clear();

  bool ready() const { return ready_; }
  StoreView view() const override;
  const double* guide() const override { return reinterpret_cast<const double*>(pools_[kGuide].at); }
  uint64_t device_bytes() const { return bytes_in(Memory::Device); }
  uint64_t pinned_bytes() const { return bytes_in(Memory::Pinned); }
  uint64_t managed_bytes() const { return bytes_in(Memory::Managed); }

 private:
  enum class Memory { Device, Pinned, Managed };

  struct Pool {
    uint8_t* at = nullptr;  // for the device
    uint64_t used = 0;
    uint64_t capacity = 0;      // bytes taken or page-locked
    std::vector<void*> pinned;  // page-locked steps, one behind the other
  };

  int pools() const { return placement_ == Placement::Guided ? kPools : kHostPools; }
  Memory memory_of(int pool) const;
  uint64_t bytes_in(Memory memory) const;
  void release(int pool);
  void pin(int pool, const HostPools& host);
  bool make_room(int pool, uint64_t bytes, void* stream);
  bool move_on(int pool, uint64_t bytes, void* stream);
  bool allocate(int pool, uint64_t bytes);
  void collect(const HostPools& host, bool rewritten, const std::array<bool, kPools>& whole,
               int threads, Sent& sent);
  bool collect_one(const HostPools& host, bool rewritten, const std::array<bool, kPools>& whole,
                   std::size_t vertex, PatchList& found);
  void note_times(const HostPools& host, uint64_t first, uint64_t last, bool whole,
                  PatchList& found);
  void add(int pool, const HostPools& host, uint64_t from, uint64_t bytes, PatchList& found) const;

  Placement placement_;
  uint64_t cap_;
  std::array<Pool, kPools> pools_;
  std::vector<Vertex> lines_;                   // as sent last
  std::vector<double> guide_;
  std::array<const uint8_t*, kPools> origin_{};  // where the host's pools were then
  uint64_t generation_ = 0;
  std::vector<PatchList> lists_;  // kept, so that their memory is used again
  PatchSender sender_;
  StoreView view_{};
  bool ready_ = false;
};

}  // namespace dgbench::temporal
