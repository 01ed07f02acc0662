// The array arguments of the difference bindings, the same for _cpu and _cuda but for the device.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <string>

#include "common/partition_arguments.hpp"
#include "common/require.hpp"
#include "difference/functors.hpp"

namespace dgbench {

// (rows, columns) of sorted entries, int64 or int32 [2, count].
template <class Device>
using PairsOn = nanobind::ndarray<nanobind::ndim<2>, nanobind::c_contig, Device>;

template <class Device>
Pairs pairs_of(const PairsOn<Device>& array, const char* name) {
  const bool wide = array.dtype() == nanobind::dtype<int64_t>();
  require(wide || array.dtype() == nanobind::dtype<int32_t>(),
          std::string(name) + " must be int64 or int32");
  require_length(name, static_cast<int64_t>(array.shape(0)), 2);
  const auto count = static_cast<int64_t>(array.shape(1));
  const char* first = static_cast<const char*>(array.data());
  return {{first, wide}, {first + count * (wide ? 8 : 4), wide}, count};
}

// Without the positions, which only the device form needs.
template <class Device>
Rebuild rebuild_of(const std::optional<VectorOn<const int64_t, Device>>& indptr,
                   const VectorOn<const int32_t, Device>& indices, const Pairs& removed,
                   const PairsOn<Device>& added, const VectorOn<int64_t, Device>& out_indptr,
                   const VectorOn<int32_t, Device>& out_indices) {
  require(out_indptr.size() >= 1, "out_indptr is empty, expected rows + 1 offsets");
  Rebuild out{};
  out.indptr = indptr ? indptr->data() : nullptr;
  out.indices = indices.data();
  out.rows = static_cast<int64_t>(out_indptr.size()) - 1;
  out.nnz = static_cast<int64_t>(indices.size());
  out.removed = removed.count;
  out.added = pairs_of(added, "added");
  out.out_indptr = out_indptr.data();
  out.out_indices = out_indices.data();
  out.out_nnz = static_cast<int64_t>(out_indices.size());
  if (indptr) {
    require_length("indptr", static_cast<int64_t>(indptr->size()), out.rows + 1);
  } else {
    require(out.nnz == 0 && out.removed == 0, "indices and removed need an indptr");
  }
  require_length("out_indices", out.out_nnz, out.nnz - out.removed + out.added.count);
  require(out.nnz < (int64_t{1} << 31), "indices has more than 2^31 - 1 entries");
  return out;
}

}  // namespace dgbench
