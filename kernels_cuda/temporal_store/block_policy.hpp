// How long blocks and runs of places are: the same rules for the store of the host and for one that
// lives on a device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "temporal_store/layout.hpp"

namespace dgbench::temporal {

constexpr uint64_t kFenceSteps = 2;
constexpr uint64_t kRecordSteps = 1;

// Lengths of runs: `Steps` (a power of two) in every octave, so that a run of each length is asked
// for again and again.
template <uint64_t Steps>
struct RunLengths {
  static constexpr std::size_t kClasses = 34 * Steps;

  // The least length that holds `count`.
  DGB_HD static uint64_t fitting(uint64_t count) {
    if (count <= Steps) return count;
    const uint64_t step = (uint64_t{1} << log_of(count - 1)) / Steps;
    return (count + step - 1) / step * step;
  }
  // The greatest length that a run of `length` places holds, as a number of its own.
  static std::size_t class_of(uint64_t length) {
    const uint32_t log = log_of(length);
    return log * Steps + ((length - (uint64_t{1} << log)) * Steps >> log);
  }

 private:
  DGB_HD static uint32_t log_of(uint64_t count) {
#if DGB_ON_DEVICE
    return 63 - static_cast<uint32_t>(__clzll(static_cast<long long>(count)));
#else
    return 63 - static_cast<uint32_t>(__builtin_clzll(count));
#endif
  }
};

// Fences stand close; records leave room to grow into, as every run is copied when it is full.
using FenceLengths = RunLengths<kFenceSteps>;
using RecordLengths = RunLengths<kRecordSteps>;

// How many slots a new block has. `degree` counts the records of this batch too, `rest` are those
// that did not fit into the last block.
enum class Sizing : int32_t {
  Adaptive = 0,         // max(rest, min(degree, size)): one block holds all of a batch
  AdaptiveLiteral = 1,  // min(degree, size), and again for what remains: as printed
  Fixed = 2,            // size
  Strawman = 3,         // rest
  Grown = 4,            // ours: while a vertex has one block and at most `size` records, a larger
                        // one takes its place; beyond, max(rest, size)
};

struct BlockPolicy {
  Sizing sizing = Sizing::Adaptive;
  uint32_t size = 64;

  DGB_HD uint32_t capacity(uint64_t degree, uint64_t rest) const {
    const uint64_t bounded = degree < size ? degree : size;
    switch (sizing) {
      case Sizing::Adaptive: return static_cast<uint32_t>(rest > bounded ? rest : bounded);
      case Sizing::AdaptiveLiteral: return static_cast<uint32_t>(bounded);
      case Sizing::Fixed: return size;
      case Sizing::Grown: return static_cast<uint32_t>(rest > size ? rest : size);
      default: return static_cast<uint32_t>(rest);
    }
  }

  // Whether a vertex that shall have `degree` records keeps them in one block, which then has
  // `grown(degree)` slots if it is too small now.
  DGB_HD bool grows(const Vertex& v, uint64_t degree) const {
    return sizing == Sizing::Grown && v.fences == 0 && degree <= size;
  }
  DGB_HD uint32_t grown(uint64_t degree) const {
    const uint64_t fitting = RecordLengths::fitting(degree < 4 ? 4 : degree);
    return static_cast<uint32_t>(fitting < size ? fitting : size);
  }
};

}  // namespace dgbench::temporal
