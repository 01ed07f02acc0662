// A temporal graph that lives on a device: its pools, and inserts that the host does not wait for.
//
// Nothing is read back to know how much room a batch needs: how long blocks are bounds the places
// that any number of records takes (`places_for`), and pools are made as large. Where they were too
// small before, a larger one takes the place of one, which the host waits for; `growths` counts
// that. Runs that blocks or fences grew out of are not used again; the bounds count them.
#pragma once

#include <cstdint>

#include "temporal_store/cuda_resident.h"
#include "temporal_store/device_graph.hpp"

namespace dgbench::temporal {

struct ResidentShape {
  int64_t num_vertices;
  BlockPolicy policy;
  Layout layout;
  bool undirected;
  double origin;
};

// Places that so many records take at most, in whatever batches they came.
Places places_for(uint64_t records, const ResidentShape& shape);

class ResidentGraph : public DeviceGraph {
 public:
  // `cap`: most bytes of the device's memory, 0 for no limit. `device` has to be the current one in
  // all calls of the others; `clear` is the first.
  ResidentGraph(const ResidentShape& shape, uint64_t cap, int device)
      : DeviceGraph(device), shape_(shape), cap_(cap) {}
  ~ResidentGraph() override { release(); }

  // A graph without events; what was allocated stays.
  void clear(void* stream);
  // Room for so many events more, in batches of at most `batch`: until they have come, inserts
  // allocate nothing and wait for nothing. Throws OutOfDeviceMemory; the graph is as before then.
  void reserve(int64_t events, int64_t batch, void* stream);
  void insert(const EventBatch& batch, void* stream);
  // What was taken and refused, once `stream` has done all it was given; and as it was at the end
  // of the last insert that the host has waited for by other means.
  const ResidentState& state(void* stream);
  const ResidentState& heard() const { return *mailbox_; }
  // Goes on after a refusal.
  void forgive(void* stream);
  // Gives all memory back; the device must have finished with it.
  void release();

  StoreView view() const override;
  uint64_t device_bytes() const;
  uint64_t scratch_bytes() const { return pools_[kScratch].bytes; }
  int64_t growths() const { return growths_; }

 private:
  enum Name { kVertices, kFences, kBlocks, kRecords, kState, kScratch, kCount };
  struct Pool {
    uint8_t* at = nullptr;
    uint64_t bytes = 0;
  };

  ResidentInsert arguments(const EventBatch& batch) const;
  uint64_t halves(int64_t events) const;
  bool make_room(Name name, uint64_t bytes, uint64_t wanted, bool keep, void* stream);
  void make_all(uint64_t records, uint64_t batch, void* stream);
  void tell(void* stream);

  ResidentShape shape_;
  uint64_t cap_;
  Pool pools_[kCount];
  Places room_{};
  ResidentState* mailbox_ = nullptr;  // page-locked
  uint64_t records_ = 0;              // of all batches since it was empty, taken or not
  int64_t growths_ = 0;
};

}  // namespace dgbench::temporal
