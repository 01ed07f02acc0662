// Binary searches for functors (std::upper_bound is not callable from device code).
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

// First position in sorted[0, n) whose value is greater than `key`; n when there is none.
template <class T>
DGB_HD int64_t upper_bound(const T* sorted, int64_t n, T key) {
  int64_t low = 0;
  int64_t high = n;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (sorted[middle] <= key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace dgbench
