// for_each(n, functor): functor(0) .. functor(n-1) in any order, over OpenMP threads on the host.
// The device form with the same meaning is in common/launch.cuh; a functor must therefore write
// only to places that no other index writes, or through the helpers below.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

// Below this many items starting the threads costs more than it saves.
constexpr int64_t kSerialItems = 4096;

#if !defined(__CUDACC__)
template <class Functor>
void for_each(int64_t n, const Functor& functor) {
#pragma omp parallel for schedule(guided, 256) if (n > kSerialItems)
  for (int64_t i = 0; i < n; ++i) functor(i);
}
#endif

// Several indices may report; any one of the reports may win.
DGB_HD void report(int64_t* place, int64_t value) {
#if DGB_ON_DEVICE
  *reinterpret_cast<volatile int64_t*>(place) = value;
#else
  __atomic_store_n(place, value, __ATOMIC_RELAXED);
#endif
}

}  // namespace dgbench
