// Runs of places in a pool that were given back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "temporal_store/block_policy.hpp"

namespace dgbench::temporal {

constexpr uint64_t kNoRun = ~uint64_t{0};

// Runs that were given back, by length. A plan names the runs that it will take, and nothing changes
// until it is carried out. Nothing here fails.
template <uint64_t Steps>
class FreeRuns {
 public:
  using Lengths = RunLengths<Steps>;

  void begin_plan() { named_.fill(0); }
  // The place of a run of this length, or kNoRun, as for all that are none of `Lengths`.
  uint64_t plan_take(uint64_t length) {
    const std::size_t c = Lengths::class_of(length);
    if (length != Lengths::fitting(length) || named_[c] == free_[c].size()) return kNoRun;
    return free_[c][free_[c].size() - ++named_[c]];
  }
  // What the plan named is taken.
  void carry_out() {
    for (std::size_t c = 0; c < free_.size(); ++c) free_[c].resize(free_[c].size() - named_[c]);
    named_.fill(0);
  }

  // The same at once, for one of `Lengths`.
  uint64_t take(uint64_t length) {
    std::vector<uint64_t>& runs = free_[Lengths::class_of(length)];
    if (runs.empty()) return kNoRun;
    const uint64_t place = runs.back();
    runs.pop_back();
    return place;
  }
  // Where there is no memory to keep it, the run stays unused.
  void give(uint64_t length, uint64_t place) noexcept {
    try {
      free_[Lengths::class_of(length)].push_back(place);
    } catch (const std::bad_alloc&) {
    }
  }

  void swap(FreeRuns& other) noexcept { free_.swap(other.free_); }

 private:
  std::array<std::vector<uint64_t>, Lengths::kClasses> free_;
  std::array<std::size_t, Lengths::kClasses> named_{};  // by the plan at hand
};

}  // namespace dgbench::temporal
