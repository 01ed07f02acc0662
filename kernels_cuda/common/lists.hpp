// Sequences of Python as vectors; instead of <nanobind/stl/vector.h>, which ends the process where
// there is no memory for one: its conversion may not throw. Here a conversion without memory
// succeeds, and the call raises MemoryError when it asks for what was converted.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/detail/nb_list.h>

#include <new>
#include <vector>

namespace nanobind::detail {

template <class T>
struct type_caster<std::vector<T>> : list_caster<std::vector<T>, T> {
  using Base = list_caster<std::vector<T>, T>;
  using Value = std::vector<T>;

  template <class Flags>
  bool from_python(handle source, Flags flags, cleanup_list* cleanup) noexcept {
    const Py_ssize_t size = PySequence_Check(source.ptr()) ? PySequence_Size(source.ptr()) : 0;
    if (size < 0) {
      PyErr_Clear();
      return false;
    }
    try {
      this->value.reserve(static_cast<std::size_t>(size));  // all that the base would ask for
    } catch (...) {
      no_memory_ = true;
      return true;
    }
    return Base::from_python(source, flags, cleanup);
  }

  explicit operator Value*() { return &checked(); }
  explicit operator Value&() { return checked(); }
  explicit operator Value&&() { return static_cast<Value&&>(checked()); }

 private:
  Value& checked() {
    if (no_memory_) throw std::bad_alloc();
    return this->value;
  }

  bool no_memory_ = false;
};

}  // namespace nanobind::detail
