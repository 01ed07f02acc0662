// The kinds of entries of a supergraph.
#pragma once

#include <cstdint>

namespace dgbench {

// Who hears whom along an entry: kHears | kHeard for an edge both ways, 0 for one in time.
constexpr std::uint8_t kHears = 1;
constexpr std::uint8_t kHeard = 2;

}  // namespace dgbench
