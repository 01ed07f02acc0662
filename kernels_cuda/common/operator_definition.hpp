// How functions of the module are defined: each runs on the device of its arrays, whichever is current,
// and refuses arrays of two devices by name.
#pragma once

#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/arrays.hpp"
#include "temporal_store/device_graph.hpp"

namespace dgbench {

// The device that the arguments of a call lie on.
class CallDevice {
 public:
  int number() const { return number_; }  // -1 where no argument lies on one

  void look(const char* name, const temporal::DeviceGraph& graph) { see(name, graph.device()); }
  template <class... Traits>
  void look(const char* name, const nb::ndarray<Traits...>& array) {
    if constexpr ((std::is_same_v<Traits, Device> || ...)) see(name, array.device_id());
  }
  template <class T>
  void look(const char* name, const std::optional<T>& maybe) {
    if (maybe) look(name, *maybe);
  }
  template <class T>
  void look(const char* name, const std::vector<T>& several) {
    for (const T& one : several) look(name, one);
  }
  template <class T>
  std::enable_if_t<std::is_arithmetic_v<T>> look(const char*, const T&) {}

 private:
  void see(const char* name, int device) {
    if (number_ == -1) {
      number_ = device;
      name_ = name;
    } else if (device != number_) {
      reject(std::string(name) + " lies on cuda:" + std::to_string(device) + ", " + name_ +
             " on cuda:" + std::to_string(number_) + "; all must lie on one device");
    }
  }

  int number_ = -1;
  const char* name_ = "";
};

// Makes a device the current one until the end of its scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    if (device < 0) return;
    check(dgb_current_device(&before_), device);
    if (before_ == device) return;
    check(dgb_use_device(device), device);
    changed_ = true;
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (changed_) dgb_use_device(before_);
  }

 private:
  static void check(int status, int device) {
    if (status == 0) return;
    throw std::runtime_error("cuda:" + std::to_string(device) +
                             " cannot be used: " + dgb_error_text(status));
  }

  int before_ = 0;
  bool changed_ = false;
};

// Whether an annotation of nanobind names an argument; others describe the function.
template <class Extra, class = void>
struct NamesArgument : std::false_type {};
template <class Extra>
struct NamesArgument<Extra, std::void_t<decltype(std::declval<const Extra&>().name_)>>
    : std::true_type {};

// `scope.def(name, function, extra...)` for a module or a class; `extra` names every argument but self.
template <class Scope, class Result, class... Arguments, class... Extra>
void add_operator(Scope& scope, const char* name, Result (*function)(Arguments...),
                  const Extra&... extra) {
  constexpr std::size_t kNamed = (std::size_t{NamesArgument<Extra>::value} + ... + 0);
  static_assert(kNamed == sizeof...(Arguments) || kNamed + 1 == sizeof...(Arguments));
  std::array<const char*, sizeof...(Arguments)> names{};
  names[0] = "the store";
  std::size_t at = sizeof...(Arguments) - kNamed;
  [[maybe_unused]] const auto note = [&](const auto& one) {
    if constexpr (NamesArgument<std::decay_t<decltype(one)>>::value) names[at++] = one.name_;
  };
  (note(extra), ...);
  scope.def(
      name,
      [function, names](Arguments... given) -> Result {
        CallDevice device;
        std::size_t i = 0;
        (device.look(names[i++], given), ...);
        const DeviceGuard guard(device.number());
        return function(std::forward<Arguments>(given)...);
      },
      extra...);
}

template <class Scope, class Function, class... Extra>
std::enable_if_t<std::is_class_v<Function>> add_operator(Scope& scope, const char* name,
                                                         Function function, const Extra&... extra) {
  add_operator(scope, name, +function, extra...);
}

}  // namespace dgbench
