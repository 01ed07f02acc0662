// Array types of the bindings, and the checks that a direct call passes before a launch.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>

#include "common/check.hpp"
#include "common/launchers.h"
#include "common/lists.hpp"
#include "common/partition_arguments.hpp"

namespace dgbench {

// The tests play the kernels through on the host and bind them for host arrays.
#if defined(DGBENCH_EMULATED_DEVICE)
struct Device : nb::device::cpu {};  // tells a device's arrays from the host's
#else
using Device = nb::device::cuda;
#endif

template <class T>
using DeviceArray = nb::ndarray<T, nb::c_contig, Device>;
template <class T>
using MaybeDevice = std::optional<DeviceArray<T>>;
template <class T>
using DeviceRows = nb::ndarray<T, nb::ndim<3>, Device>;  // any stride between steps and vertices

inline void* stream_of(std::uintptr_t stream) { return reinterpret_cast<void*>(stream); }

template <class T>
T* address(const MaybeDevice<T>& array) {
  return array ? array->data() : nullptr;
}

// Turns the status of a launch into an error that names the operator.
inline void check_launch(int status, const char* name) {
  if (status == 0) return;
  throw std::runtime_error(std::string(name) + " could not be launched: " +
                           dgb_error_text(status) + " (built for " + dgb_architectures() + ")");
}

}  // namespace dgbench
