// Last guard before a loop: sizes that do not fit together raise ValueError in Python. The Python
// wrappers check first and say more; this keeps a direct call from reading out of bounds.
#pragma once

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

}  // namespace dgbench
