// Bindings of the overlap extraction and of the masked union (overlap/functors.hpp).
#include <nanobind/nanobind.h>

#include "common/for_each.hpp"
#include "common/partition_arguments.hpp"
#include "overlap/functors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using Cpu = nb::device::cpu;
template <class T>
using Vectors = std::vector<VectorOn<T, Cpu>>;

void count_shared(Vectors<const int64_t> indptr, Vectors<const int32_t> indices, int64_t slice_cap,
                  VectorOn<int64_t, Cpu> counts) {
  require(slice_cap >= 0, "slice_cap is " + std::to_string(slice_cap) + ", allowed is 0 and more");
  const Snapshots<Cpu> snapshots{std::move(indptr), std::move(indices)};
  const CountShared functor{snapshots.rows(), slice_cap, counts.data()};
  require_length("counts", static_cast<int64_t>(counts.size()), snapshots.num_rows());
  nb::gil_scoped_release release;
  for_each(snapshots.num_rows(), functor);
}

void split(Vectors<const int64_t> indptr, Vectors<const int32_t> indices,
           Vectors<const float> values, int64_t slice_cap, VectorOn<const int64_t, Cpu> over_indptr,
           VectorOn<int32_t, Cpu> over_indices, std::optional<MatrixOn<float, Cpu>> over_values,
           Vectors<int32_t> exclusive_indices, Vectors<float> exclusive_values) {
  const Snapshots<Cpu> snapshots{std::move(indptr), std::move(indices)};
  const SplitOutput<Cpu> out{over_indptr, over_indices, over_values, std::move(exclusive_indices),
                             std::move(exclusive_values)};
  const FillSplit functor = fill_split(snapshots, values, slice_cap, out);
  nb::gil_scoped_release release;
  for_each(snapshots.num_rows(), functor);
}

void count_union(Vectors<const int64_t> indptr, Vectors<const int32_t> indices,
                 VectorOn<int64_t, Cpu> counts) {
  const Snapshots<Cpu> snapshots{std::move(indptr), std::move(indices)};
  const CountUnion functor{snapshots.rows(), counts.data()};
  require_length("counts", static_cast<int64_t>(counts.size()), snapshots.num_rows());
  nb::gil_scoped_release release;
  for_each(snapshots.num_rows(), functor);
}

void unite(Vectors<const int64_t> indptr, Vectors<const int32_t> indices,
           Vectors<const float> values, VectorOn<const int64_t, Cpu> union_indptr,
           VectorOn<int32_t, Cpu> union_indices, VectorOn<int32_t, Cpu> union_mask,
           std::optional<MatrixOn<float, Cpu>> union_values) {
  const Snapshots<Cpu> snapshots{std::move(indptr), std::move(indices)};
  const UnionOutput<Cpu> out{union_indptr, union_indices, union_mask, union_values};
  const FillUnion functor = fill_union(snapshots, values, out);
  nb::gil_scoped_release release;
  for_each(snapshots.num_rows(), functor);
}

}  // namespace

void bind_overlap(nb::module_& m) {
  m.attr("MAX_SNAPSHOTS") = kMaxSnapshots;
  m.def("count_shared", &count_shared, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "slice_cap"_a, "counts"_a.noconvert());
  m.def("split", &split, "indptr"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert(),
        "slice_cap"_a, "over_indptr"_a.noconvert(), "over_indices"_a.noconvert(),
        "over_values"_a.noconvert().none(), "exclusive_indices"_a.noconvert(),
        "exclusive_values"_a.noconvert());
  m.def("count_union", &count_union, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "counts"_a.noconvert());
  m.def("unite", &unite, "indptr"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert(),
        "union_indptr"_a.noconvert(), "union_indices"_a.noconvert(), "union_mask"_a.noconvert(),
        "union_values"_a.noconvert().none());
}

}  // namespace dgbench
