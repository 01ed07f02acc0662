// Checks of array arguments at the door of the extension. Python wrappers check first and speak in
// the caller's words; these keep a direct call of the extension from reading out of bounds.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace nb = nanobind;

namespace dgbench {

template <class T>
using Array = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class T>
using Cube = nb::ndarray<T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

template <class T>
using Maybe = std::optional<Array<T>>;

[[noreturn]] inline void reject(const std::string& what) { throw std::invalid_argument(what); }

template <class A>
void check_size(const A& array, std::size_t expected, const char* name) {
  if (array.size() != expected) {
    reject(std::string(name) + " has " + std::to_string(array.size()) + " elements, expected " +
           std::to_string(expected));
  }
}

template <class A>
void check_optional(const std::optional<A>& array, std::size_t expected, const char* name) {
  if (array) check_size(*array, expected, name);
}

template <class T>
const T* pointer(const Maybe<const T>& array) {
  return array ? array->data() : nullptr;
}

// Offsets must start at 0, never fall, and end at the number of entries. Linear in the rows: for
// operators that build something, not for products, whose wrappers check a matrix once and remember.
inline void check_offsets(const std::int64_t* offsets, std::size_t count, std::size_t entries,
                          const char* name) {
  bool good = count >= 1 && offsets[0] == 0 &&
              offsets[count - 1] == static_cast<std::int64_t>(entries);
  for (std::size_t i = 1; good && i < count; ++i) good = offsets[i - 1] <= offsets[i];
  if (!good) {
    reject(std::string(name) + " must start at 0, never fall and end at " +
           std::to_string(entries));
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
