// Checks of array arguments at the door of the extension. Python wrappers check first and speak in
// the caller's words; these keep a direct call of the extension from reading out of bounds.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "common/require.hpp"

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

}  // namespace dgbench
