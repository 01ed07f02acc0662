// Pieces of a host's memory on their way to places of a device: listed by several threads, gathered
// into page-locked memory, sent in large copies and put in place by one kernel for each.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "temporal_store/cuda_memory.h"

namespace dgbench::temporal {

struct Patch {
  uint64_t to;          // address on the device
  const uint8_t* from;  // on the host
  uint64_t place;       // among the pieces of its list when they stand in a row, a multiple of 16
  uint64_t bytes;       // a multiple of 4
};

// What one thread found. Long pieces are cut, so that a few threads of the device put each in place.
struct PatchList {
  static constexpr uint64_t kLongest = 4096;

  std::vector<Patch> patches;
  uint64_t packed = 0;   // bytes when they stand in a row
  uint64_t bytes = 0;  // of the pieces alone

  void add(uint8_t* to, const uint8_t* from, uint64_t count);
  void clear();
};

// Two page-locked buffers in turns, each with memory of the device that it is copied to: while one is
// copied the other is filled. What the device has of one is written to again after its pieces were put in
// place, also where that happens on another stream.
class PatchSender {
 public:
  PatchSender() = default;
  PatchSender(const PatchSender&) = delete;
  PatchSender& operator=(const PatchSender&) = delete;
  ~PatchSender() { clear(); }

  // Makes the buffers; 0 or the runtime's error.
  int prepare();
  // Everything of all lists. What it was listed from may be written to after the call.
  int send(const std::vector<PatchList>& lists, int threads, void* stream);
  void clear();

 private:
  static constexpr uint64_t kRoom = uint64_t{2} << 20;  // pieces that begin within it go together
  static constexpr uint64_t kContent = kRoom + PatchList::kLongest;
  // A piece takes 16 bytes at least, so that there are no more heads than that.
  static constexpr uint64_t kBuffer = kContent + kRoom / 16 * sizeof(PieceHead);

  struct Buffer {
    uint8_t* at = nullptr;
    void* there = nullptr;   // of the device
    void* copied = nullptr;  // marks
    void* placed = nullptr;
    bool busy = false;  // a copy of it was begun
  };

  struct Part {  // of a list
    const PatchList* list;
    std::size_t first, last;
    uint64_t base;   // where the list begins among all
    uint64_t index;  // of its first piece in the buffer
  };

  static void gather(const std::vector<Part>& parts, uint64_t from, uint64_t heads, uint8_t* to,
                     int threads);
  int send_one(Buffer& buffer, const std::vector<Part>& parts, uint64_t from, uint64_t bytes,
               int threads, void* stream);

  std::array<Buffer, 2> buffers_;
  bool ready_ = false;
};

}  // namespace dgbench::temporal
