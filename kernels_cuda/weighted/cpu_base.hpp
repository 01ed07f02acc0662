// What the classes of weighted/cpu_search.hpp share: counts, random numbers, and who may be drawn.
#pragma once

#include <cstdint>
#include <vector>

#include "common/philox.hpp"

namespace dgbench {

constexpr int64_t kPatience = 4096;

struct DrawCounts {
  int64_t draws = 0;             // answers given
  int64_t redraws = 0;           // random numbers whose answer was taken already
  int64_t nodes_visited = 0;     // steps in trees and binary searches, up and down
  int64_t elements_scanned = 0;  // elements of arrays that were read one after the other
  int64_t rebuilt = 0;           // tables built anew after `begin`

  void add(const DrawCounts& other) {
    draws += other.draws;
    redraws += other.redraws;
    nodes_visited += other.nodes_visited;
    elements_scanned += other.elements_scanned;
    rebuilt += other.rebuilt;
  }
};

// Random bits in order: number i of a stream depends on (seed, stream, i) only.
class DrawNumbers {
 public:
  DrawNumbers(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  uint64_t operator()() {
    if (next_ & 1) return (++next_, odd_);
    const Draws two = philox(static_cast<uint32_t>(next_ >> 1), static_cast<uint32_t>(next_ >> 33),
                             static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32),
                             static_cast<uint32_t>(seed_),
                             static_cast<uint32_t>(seed_ >> 32) ^ kPurpose);
    ++next_;
    odd_ = two.odd;
    return two.even;
  }

 private:
  static constexpr uint32_t kPurpose = 0x53495357u;  // apart from the numbers of other operators
  uint64_t seed_, stream_, next_ = 0, odd_ = 0;
};

// Which indices must not be drawn (taken, or without weight), and how many may.
template <class W>
class Free {
 public:
  void begin(const W* weights, int64_t n) {
    closed_.resize(static_cast<std::size_t>(n));
    open_ = n;
    for (int64_t i = 0; i < n; ++i) {
      closed_[i] = !(weights[i] > W(0));
      open_ -= closed_[i];
    }
  }
  bool closed(int64_t i) const { return closed_[i]; }
  void take(int64_t i) { set(i, 1); }
  void replace(int64_t i, W weight) { set(i, !(weight > W(0))); }
  void replace(int64_t i, W, W after) { replace(i, after); }  // weight before and after
  bool any() const { return open_ > 0; }

 private:
  void set(int64_t i, uint8_t closed) {
    open_ += closed_[i] - closed;
    closed_[i] = closed;
  }
  std::vector<uint8_t> closed_;
  int64_t open_ = 0;
};

}  // namespace dgbench
