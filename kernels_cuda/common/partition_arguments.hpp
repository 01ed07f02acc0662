// The array arguments of the slicing and overlap bindings, the same for _cpu and _cuda but for
// the device they must lie on.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "common/lists.hpp"
#include "common/require.hpp"
#include "overlap/functors.hpp"
#include "variants/slice_coalescing.hpp"

namespace dgbench {

template <class T, class Device>
using VectorOn = nanobind::ndarray<T, nanobind::ndim<1>, nanobind::c_contig, Device>;
template <class T, class Device>
using MatrixOn = nanobind::ndarray<T, nanobind::ndim<2>, nanobind::c_contig, Device>;

template <class Device>
struct Snapshots {
  std::vector<VectorOn<const int64_t, Device>> indptr;
  std::vector<VectorOn<const int32_t, Device>> indices;

  static constexpr bool kOnHost = std::is_same_v<Device, nanobind::device::cpu>;

  int64_t num_rows() const { return static_cast<int64_t>(indptr[0].size()) - 1; }

  // Pointers for the functors, after a check of counts and lengths.
  SnapshotRows rows() const {
    const auto count = indptr.size();
    require(count >= 1 && count <= static_cast<size_t>(kMaxSnapshots),
            "indptr holds " + std::to_string(count) + " snapshots, allowed are 1 to " +
                std::to_string(kMaxSnapshots));
    require_length("indices", static_cast<int64_t>(indices.size()), static_cast<int64_t>(count));
    require(indptr[0].size() >= 1, "indptr[0] is empty, expected rows + 1 offsets");
    SnapshotRows out{};
    out.count = static_cast<int>(count);
    for (size_t i = 0; i < count; ++i) {
      require_length("indptr[i]", static_cast<int64_t>(indptr[i].size()), num_rows() + 1);
      if constexpr (kOnHost) {  // a device's offsets were looked through there
        check_offsets(indptr[i].data(), indptr[i].size(), indices[i].size(), "indptr[i]");
      }
      out.indptr[i] = indptr[i].data();
      out.indices[i] = indices[i].data();
    }
    return out;
  }
};

template <class Device>
struct SplitOutput {
  VectorOn<const int64_t, Device> over_indptr;
  VectorOn<int32_t, Device> over_indices;
  std::optional<MatrixOn<float, Device>> over_values;
  std::vector<VectorOn<int32_t, Device>> exclusive_indices;
  std::vector<VectorOn<float, Device>> exclusive_values;
};

// The filled-in functor of the second pass; throws where the sizes contradict each other.
template <class Device>
FillSplit fill_split(const Snapshots<Device>& snapshots,
                     const std::vector<VectorOn<const float, Device>>& values, int64_t slice_cap,
                     const SplitOutput<Device>& out) {
  FillSplit functor{};
  functor.rows = snapshots.rows();
  functor.slice_cap = slice_cap;
  const int64_t count = functor.rows.count;
  const bool weighted = out.over_values.has_value();
  functor.weighted = weighted;
  const auto shared = static_cast<int64_t>(out.over_indices.size());
  require(slice_cap >= 0, "slice_cap is " + std::to_string(slice_cap) + ", allowed is 0 and more");
  require_length("over_indptr", static_cast<int64_t>(out.over_indptr.size()),
                 snapshots.num_rows() + 1);
  if constexpr (Snapshots<Device>::kOnHost) {
    check_offsets(out.over_indptr.data(), out.over_indptr.size(), out.over_indices.size(),
                  "over_indptr");
  }
  require_length("exclusive_indices", static_cast<int64_t>(out.exclusive_indices.size()), count);
  require_length("values", static_cast<int64_t>(values.size()), weighted ? count : 0);
  require_length("exclusive_values", static_cast<int64_t>(out.exclusive_values.size()),
                 weighted ? count : 0);
  functor.over_indptr = out.over_indptr.data();
  functor.over_indices = out.over_indices.data();
  if (weighted) {
    require_length("over_values", static_cast<int64_t>(out.over_values->shape(0)), shared);
    require_length("over_values row", static_cast<int64_t>(out.over_values->shape(1)), count);
    functor.over_values = out.over_values->data();
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto nnz = static_cast<int64_t>(snapshots.indices[i].size());
    require_length("exclusive_indices[i]", static_cast<int64_t>(out.exclusive_indices[i].size()),
                   nnz - shared);
    functor.exclusive_indices[i] = out.exclusive_indices[i].data();
    if (weighted) {
      require_length("values[i]", static_cast<int64_t>(values[i].size()), nnz);
      require_length("exclusive_values[i]", static_cast<int64_t>(out.exclusive_values[i].size()),
                     nnz - shared);
      functor.values[i] = values[i].data();
      functor.exclusive_values[i] = out.exclusive_values[i].data();
    }
  }
  return functor;
}

template <class Device>
struct UnionOutput {
  VectorOn<const int64_t, Device> indptr;
  VectorOn<int32_t, Device> indices;
  VectorOn<int32_t, Device> mask;
  std::optional<MatrixOn<float, Device>> values;
};

template <class Device>
FillUnion fill_union(const Snapshots<Device>& snapshots,
                     const std::vector<VectorOn<const float, Device>>& values,
                     const UnionOutput<Device>& out) {
  FillUnion functor{};
  functor.rows = snapshots.rows();
  const int64_t count = functor.rows.count;
  const bool weighted = out.values.has_value();
  const auto size = static_cast<int64_t>(out.indices.size());
  require_length("union_indptr", static_cast<int64_t>(out.indptr.size()),
                 snapshots.num_rows() + 1);
  require_length("union_mask", static_cast<int64_t>(out.mask.size()), size);
  if constexpr (Snapshots<Device>::kOnHost) {
    check_offsets(out.indptr.data(), out.indptr.size(), out.indices.size(), "union_indptr");
  }
  require_length("values", static_cast<int64_t>(values.size()), weighted ? count : 0);
  functor.union_indptr = out.indptr.data();
  functor.union_indices = out.indices.data();
  functor.union_mask = out.mask.data();
  if (weighted) {
    require_length("union_values", static_cast<int64_t>(out.values->shape(0)), size);
    require_length("union_values row", static_cast<int64_t>(out.values->shape(1)), count);
    functor.union_values = out.values->data();
    for (int64_t i = 0; i < count; ++i) {
      require_length("values[i]", static_cast<int64_t>(values[i].size()),
                     static_cast<int64_t>(snapshots.indices[i].size()));
      functor.values[i] = values[i].data();
    }
  }
  return functor;
}

// The filled-in warp of algorithm 1. Rows of x and y may lie apart (a column block of a wider
// matrix), so that an exclusive part works on its snapshot's columns in place.
template <class Row, class Offset, class Index, class Values, class X, class Y>
SliceWarp slice_warp(const Row& row_indices, const Offset& slice_offsets, const Index& indices,
                     const Values& values, const X& x, const Y& y, int groups, int vector) {
  const auto slices = static_cast<int64_t>(row_indices.size());
  const auto d = static_cast<int>(x.shape(1));
  require_length("slice_offsets", static_cast<int64_t>(slice_offsets.size()), slices + 1);
  require_length("y columns", static_cast<int64_t>(y.shape(1)), d);
  int weights = 1;
  if (values && indices.size() > 0) {
    weights = static_cast<int>(values->size() / indices.size());
    require(weights >= 1 && values->size() == indices.size() * static_cast<size_t>(weights) &&
                d % weights == 0,
            "values has " + std::to_string(values->size()) + " elements for " +
                std::to_string(indices.size()) +
                " entries, expected one for each, or one for each block of columns");
  }
  require(d <= 1 || (x.stride(1) == 1 && y.stride(1) == 1),
          "x and y must have adjacent columns (stride 1 in the last dimension)");
  require(groups >= 1 && groups <= kMaxGroups && (groups == 1 || groups * d <= kWarp),
          "groups is " + std::to_string(groups) + ", allowed are 1 to 4 with groups * d <= 32");
  require(vector == 1 || ((vector == 2 || vector == 4) && groups == 1 && d % vector == 0),
          "vector is " + std::to_string(vector) +
              ", allowed are 1, or 2 and 4 for one slice per warp and a width they divide");
  SliceWarp warp{};
  warp.row_indices = row_indices.data();
  warp.slice_offsets = slice_offsets.data();
  warp.indices = indices.data();
  warp.values = values ? values->data() : nullptr;
  warp.weights = weights;
  warp.slices = slices;
  warp.x = x.data();
  warp.x_pitch = x.stride(0);
  warp.y = y.data();
  warp.y_pitch = y.stride(0);
  warp.d = d;
  warp.groups = groups;
  return warp;
}

}  // namespace dgbench
