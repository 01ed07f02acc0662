// Last guard before a loop: sizes that do not fit together raise ValueError in Python. The Python
// wrappers check first and say more; this keeps a direct call from reading out of bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace dgbench {

inline void require_length(const char* argument, int64_t found, int64_t expected) {
  if (found == expected) return;
  throw std::invalid_argument(std::string(argument) + " has length " + std::to_string(found) +
                              ", expected " + std::to_string(expected));
}

inline void require(bool ok, const std::string& message) {
  if (!ok) throw std::invalid_argument(message);
}

// Offsets must start at 0, never fall, and end at the number of entries. Linear in the rows: for
// operators that build something, not for products, whose wrappers check a matrix once and remember.
inline void check_offsets(const std::int64_t* offsets, std::size_t count, std::size_t entries,
                          const char* name) {
  bool good = count >= 1 && offsets[0] == 0 &&
              offsets[count - 1] == static_cast<std::int64_t>(entries);
  for (std::size_t i = 1; good && i < count; ++i) good = offsets[i - 1] <= offsets[i];
  if (!good) {
    require(false, std::string(name) + " must start at 0, never fall and end at " +
           std::to_string(entries));
  }
}

// What a product may ask of offsets that were looked through once: their end, in one read.
inline void check_end(const std::int64_t* offsets, std::size_t rows, std::size_t entries,
                      const char* name) {
  if (offsets[0] != 0 || offsets[rows] != static_cast<std::int64_t>(entries)) {
    require(false, std::string(name) + " must run from 0 to " + std::to_string(entries));
  }
}

// True when every id lies in [0, limit).
template <class Id>
bool ids_in_range(const Id* ids, std::size_t count, std::int64_t limit) {
  bool good = true;
  for (std::size_t i = 0; i < count; ++i) {
    good &= ids[i] >= 0 && static_cast<std::int64_t>(ids[i]) < limit;
  }
  return good;
}

}  // namespace dgbench
