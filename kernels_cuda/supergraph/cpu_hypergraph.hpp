// The layout of a hypergraph whose nets of two pins are edges; supergraph/cpu_hypergraph.cpp makes them and
// supergraph/cpu_worker_refinement.cpp reads them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

#include "common/check.hpp"

namespace dgbench {

struct Hypergraph {
  std::int64_t vertices;
  std::int64_t nets;
  const std::int64_t* first;  // nets of a vertex
  const std::int32_t* net;
  const std::int32_t* net_weight;
  const std::int64_t* edge_first;
  const std::int32_t* other;
  const std::int32_t* edge_weight;
  const std::int64_t* load;  // weight of a vertex
};

inline Hypergraph checked_hypergraph(
    const Array<const std::int64_t>& first, const Array<const std::int32_t>& net,
    const Array<const std::int32_t>& net_weight, const Array<const std::int64_t>& edge_first,
    const Array<const std::int32_t>& other, const Array<const std::int32_t>& edge_weight,
    const Array<const std::int64_t>& load) {
  const std::size_t vertices = load.size();
  check_size(first, vertices + 1, "first");
  check_size(edge_first, vertices + 1, "edge_first");
  check_size(edge_weight, other.size(), "edge_weight");
  check_offsets(first.data(), first.size(), net.size(), "first");
  check_offsets(edge_first.data(), edge_first.size(), other.size(), "edge_first");
  const auto count = static_cast<std::int64_t>(vertices);
  const auto nets = static_cast<std::int64_t>(net_weight.size());
  if (!ids_in_range(net.data(), net.size(), nets)) reject("net must lie in [0, nets)");
  if (!ids_in_range(other.data(), other.size(), count)) reject("other must lie in [0, V)");
  return Hypergraph{count,        nets,       first.data(),       net.data(),
                    net_weight.data(), edge_first.data(), other.data(), edge_weight.data(),
                    load.data()};
}

}  // namespace dgbench
