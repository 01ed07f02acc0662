// Directions of the entries of a supergraph.
#pragma once

#include <cstdint>

namespace dgbench {

// Of an entry (row, column): whether there is an edge from the column to the row, and one from the
// row to the column; 0 for an edge in time.
constexpr std::uint8_t kIncoming = 1;
constexpr std::uint8_t kOutgoing = 2;

}  // namespace dgbench
