// Writing records of the three layouts, and their sizes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "temporal_store/layout.hpp"

namespace dgbench::temporal {

inline std::size_t record_size(Layout layout) {
  return layout == Layout::Packed ? sizeof(Packed)
                                  : layout == Layout::Compact ? sizeof(Compact) : sizeof(Wide);
}

inline void write_record(Packed& r, int64_t node, int64_t eid, double t, double) {
  r = {static_cast<uint32_t>(node), static_cast<uint32_t>(eid), t};
}
inline void write_record(Compact& r, int64_t node, int64_t eid, double t, double origin) {
  r = {static_cast<uint32_t>(node), static_cast<uint32_t>(eid), static_cast<uint32_t>(t - origin)};
}
inline void write_record(Wide& r, int64_t node, int64_t eid, double t, double) {
  r = {static_cast<uint64_t>(node), static_cast<uint64_t>(eid), t};
}

inline void bury(Packed& r) { r.node = kNone; }
inline void bury(Compact& r) { r.node = kNone; }
inline void bury(Wide& r) { r.node = ~uint64_t{0}; }

}  // namespace dgbench::temporal
