// Sums of weights by label, for one vertex or one chunk after the other.
#pragma once

#include <cstdint>
#include <vector>

#include "label_propagation/functors.hpp"

namespace dgbench {

// Sums by label. Open addressing; clearing touches only what was used.
class LabelSums {
 public:
  // Empties the table and makes room for `most` different labels.
  void start(std::size_t most) {
    std::size_t size = 64;
    while (size < 2 * most) size *= 2;
    if (size > slots_.size()) {
      slots_.assign(size, Vote{0, -1});
    } else {
      for (const std::uint32_t slot : used_) slots_[slot].label = -1;
    }
    used_.clear();
    mask_ = static_cast<std::uint32_t>(slots_.size() - 1);
  }

  std::int64_t& operator[](std::int32_t label) {
    auto slot = label_hash(static_cast<std::uint32_t>(label), 0) & mask_;
    while (slots_[slot].label != label) {
      if (slots_[slot].label < 0) {
        slots_[slot] = Vote{0, label};
        used_.push_back(slot);
        break;
      }
      slot = (slot + 1) & mask_;
    }
    return slots_[slot].weight;
  }

  template <class Visit>
  void each(const Visit& visit) const {
    for (const std::uint32_t slot : used_) visit(slots_[slot]);
  }

 private:
  std::vector<Vote> slots_;
  std::vector<std::uint32_t> used_;
  std::uint32_t mask_ = 0;
};

}  // namespace dgbench
