// Memory that a device reads a temporal graph from, as plain functions; 0 or the runtime's error.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

constexpr int kNoMemory = 2;  // cudaErrorMemoryAllocation

// Where a piece of a pool goes that arrived among others, and where it stands among them.
struct alignas(16) PieceHead {
  uint64_t to;     // address on the device, a multiple of 4
  uint32_t from;   // first 16 bytes of it, counted from the first piece
  uint32_t words;  // of 4 bytes
};

struct alignas(16) FourWords {
  uint32_t words[4];
};

// Pieces that arrived together, put to where each belongs: some neighbouring indices share one.
struct ScatterPieces {
  static constexpr int64_t kLanes = 4;
  const PieceHead* heads;
  const FourWords* content;

  DGB_HD void operator()(int64_t i) const {
    const PieceHead head = heads[i / kLanes];
    const auto lane = static_cast<uint32_t>(i % kLanes);
    const FourWords* const from = content + head.from;
    if (head.to % 16 == 0 && head.words % 4 == 0) {
      auto* const to = reinterpret_cast<FourWords*>(head.to);
      for (uint32_t w = lane; w < head.words / 4; w += kLanes) to[w] = from[w];
    } else {
      auto* const to = reinterpret_cast<uint32_t*>(head.to);
      const auto* const words = reinterpret_cast<const uint32_t*>(from);
      for (uint32_t w = lane; w < head.words; w += kLanes) to[w] = words[w];
    }
  }
};

extern "C" {
int dgb_device_allocate(void** to, uint64_t bytes);
int dgb_managed_allocate(void** to, uint64_t bytes);
int dgb_device_free(void* at);
// Page-locks memory of the host, so that the device reads it under the same address.
int dgb_pin(void* at, uint64_t bytes);
int dgb_unpin(void* at);
int dgb_same_addresses(int* yes);  // whether this device can
// Of the host's memory, `from` to its end lies in one page-locked range or in none: the runtime
// refuses a copy that begins in one range and ends in another.
int dgb_copy_in(void* to, const void* from, uint64_t bytes, void* stream);
int dgb_copy_out(void* to, const void* from, uint64_t bytes, void* stream);
// Between two places of the device's or of managed memory.
int dgb_copy_within(void* to, const void* from, uint64_t bytes, void* stream);
int dgb_wait(void* stream);  // until all of it is done
int dgb_scatter_pieces(const ScatterPieces* functor, int64_t pieces, void* stream);
// Page-locked memory of the host, and marks in a stream that the host or another stream waits for.
int dgb_host_allocate(void** to, uint64_t bytes);
int dgb_host_free(void* at);
int dgb_mark_make(void** mark);
int dgb_mark_set(void* mark, void* stream);
int dgb_mark_wait(void* mark);
int dgb_mark_await(void* mark, void* stream);  // what `stream` is given from now on comes after it
int dgb_mark_drop(void* mark);
}

}  // namespace dgbench
