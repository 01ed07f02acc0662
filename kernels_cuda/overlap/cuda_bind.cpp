// Bindings of overlap and union; the arguments are those of the CPU module with the stream at the
// end.
#include "common/operator_definition.hpp"
#include "overlap/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

template <class T>
using Vectors = std::vector<VectorOn<T, Device>>;

using MaybeWords = std::optional<VectorOn<int32_t, Device>>;

int64_t entries_of(const Vectors<const int32_t>& indices) {
  int64_t entries = 0;
  for (const auto& one : indices) entries += static_cast<int64_t>(one.size());
  return entries;
}

// The scratch for rows that are long, of all snapshots together; null: a thread merges each row.
int32_t* long_rows_of(const MaybeWords& words, int64_t entries, std::size_t snapshots) {
  if (!words) return nullptr;
  require_length("long_rows", static_cast<int64_t>(words->size()),
                 dgb_long_rows_size(entries, static_cast<int64_t>(snapshots)));
  return words->data();
}

void count_shared(Vectors<const int64_t> indptr, Vectors<const int32_t> indices,
                  int64_t slice_cap, VectorOn<int64_t, Device> counts, std::uintptr_t stream,
                  MaybeWords long_rows) {
  const int64_t entries = entries_of(indices);
  int32_t* const words = long_rows_of(long_rows, entries, indices.size());
  const Snapshots<Device> snapshots{std::move(indptr), std::move(indices)};
  const CountShared functor{snapshots.rows(), slice_cap, counts.data()};
  require_length("counts", static_cast<int64_t>(counts.size()), snapshots.num_rows());
  check_launch(
      dgb_count_shared(&functor, snapshots.num_rows(), entries, words, stream_of(stream)),
      "count_shared");
}

void split(Vectors<const int64_t> indptr, Vectors<const int32_t> indices,
           Vectors<const float> values, int64_t slice_cap,
           VectorOn<const int64_t, Device> over_indptr, VectorOn<int32_t, Device> over_indices,
           std::optional<MatrixOn<float, Device>> over_values, Vectors<int32_t> exclusive_indices,
           Vectors<float> exclusive_values, std::uintptr_t stream, MaybeWords long_rows) {
  const int64_t entries = entries_of(indices);
  int32_t* const words = long_rows_of(long_rows, entries, indices.size());
  const Snapshots<Device> snapshots{std::move(indptr), std::move(indices)};
  const SplitOutput<Device> out{over_indptr, over_indices, over_values,
                                std::move(exclusive_indices), std::move(exclusive_values)};
  const FillSplit functor = fill_split(snapshots, values, slice_cap, out);
  check_launch(dgb_split(&functor, snapshots.num_rows(), entries, words, stream_of(stream)), "split");
}

void count_union(Vectors<const int64_t> indptr, Vectors<const int32_t> indices,
                 VectorOn<int64_t, Device> counts, std::uintptr_t stream) {
  const Snapshots<Device> snapshots{std::move(indptr), std::move(indices)};
  const CountUnion functor{snapshots.rows(), counts.data()};
  require_length("counts", static_cast<int64_t>(counts.size()), snapshots.num_rows());
  check_launch(dgb_count_union(&functor, snapshots.num_rows(), stream_of(stream)), "count_union");
}

void unite(Vectors<const int64_t> indptr, Vectors<const int32_t> indices,
           Vectors<const float> values, VectorOn<const int64_t, Device> union_indptr,
           VectorOn<int32_t, Device> union_indices, VectorOn<int32_t, Device> union_mask,
           std::optional<MatrixOn<float, Device>> union_values, std::uintptr_t stream) {
  const Snapshots<Device> snapshots{std::move(indptr), std::move(indices)};
  const UnionOutput<Device> out{union_indptr, union_indices, union_mask, union_values};
  const FillUnion functor = fill_union(snapshots, values, out);
  check_launch(dgb_unite(&functor, snapshots.num_rows(), stream_of(stream)), "unite");
}

}  // namespace

void bind_overlap(nb::module_& m) {
  add_operator(m, "count_shared", &count_shared, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "slice_cap"_a, "counts"_a.noconvert(), "stream"_a,
        "long_rows"_a.noconvert().none() = nb::none());
  add_operator(m, "split", &split, "indptr"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert(),
        "slice_cap"_a, "over_indptr"_a.noconvert(), "over_indices"_a.noconvert(),
        "over_values"_a.noconvert().none(), "exclusive_indices"_a.noconvert(),
        "exclusive_values"_a.noconvert(), "stream"_a,
        "long_rows"_a.noconvert().none() = nb::none());
  add_operator(m, "long_rows_size", &dgb_long_rows_size, "entries"_a, "snapshots"_a);
  add_operator(m, "count_union", &count_union, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "counts"_a.noconvert(), "stream"_a);
  add_operator(m, "unite", &unite, "indptr"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert(),
        "union_indptr"_a.noconvert(), "union_indices"_a.noconvert(), "union_mask"_a.noconvert(),
        "union_values"_a.noconvert().none(), "stream"_a);
}

}  // namespace dgbench
