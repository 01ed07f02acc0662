// A temporal graph as samplers on a device read it, whoever keeps it there.
#pragma once

#include <stdexcept>

#include "temporal_store/layout.hpp"

namespace dgbench::temporal {

struct OutOfDeviceMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class DeviceGraph {
 public:
  explicit DeviceGraph(int device) : device_(device) {}
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  virtual ~DeviceGraph() = default;

  int device() const { return device_; }
  virtual StoreView view() const = 0;
  // Times of the records at places 0, 8, 16, ... on the device, or null.
  virtual const double* guide() const { return nullptr; }

 private:
  int device_;
};

}  // namespace dgbench::temporal
