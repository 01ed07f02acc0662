// Hiding records of the three layouts.
#pragma once

#include <cstdint>

#include "temporal_store/layout.hpp"

namespace dgbench::temporal {

inline void bury(Packed& r) { r.node = kNone; }
inline void bury(Compact& r) { r.node = kNone; }
inline void bury(Wide& r) { r.node = ~uint64_t{0}; }

}  // namespace dgbench::temporal
