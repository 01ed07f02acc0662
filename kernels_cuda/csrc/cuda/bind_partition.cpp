// Bindings of slicing, overlap and the paper's kernels; the arguments are those of the CPU module
// with the stream at the end.
#include "cuda/operator_definition.hpp"

using namespace nb::literals;

namespace dgbench {
namespace {

template <class T>
using Vectors = std::vector<VectorOn<T, Device>>;

void check_csr(VectorOn<const int64_t, Device> indptr, VectorOn<const int32_t, Device> indices,
               int64_t num_cols, VectorOn<int64_t, Device> found, std::uintptr_t stream) {
  require(indptr.size() >= 1, "indptr is empty, expected rows + 1 offsets");
  require_length("found", static_cast<int64_t>(found.size()), 3);
  check_launch(dgb_check_csr(indptr.data(), indices.data(),
                             static_cast<int64_t>(indptr.size()) - 1,
                             static_cast<int64_t>(indices.size()), num_cols, found.data(),
                             stream_of(stream)),
               "check_csr");
}

void count_slices(VectorOn<const int64_t, Device> indptr, int64_t cap,
                  VectorOn<int64_t, Device> counts, std::uintptr_t stream) {
  require(cap >= 1, "cap is " + std::to_string(cap) + ", allowed are values from 1");
  const auto rows = static_cast<int64_t>(counts.size());
  require_length("indptr", static_cast<int64_t>(indptr.size()), rows + 1);
  check_launch(dgb_count_slices(indptr.data(), rows, cap, counts.data(), stream_of(stream)),
               "count_slices");
}

void fill_slices(VectorOn<const int64_t, Device> indptr, VectorOn<const int64_t, Device> first,
                 int64_t cap, VectorOn<int32_t, Device> row_indices,
                 VectorOn<int64_t, Device> slice_offsets, std::uintptr_t stream) {
  require(cap >= 1, "cap is " + std::to_string(cap) + ", allowed are values from 1");
  const auto rows = static_cast<int64_t>(indptr.size()) - 1;
  const auto slices = static_cast<int64_t>(row_indices.size());
  require_length("first", static_cast<int64_t>(first.size()), rows + 1);
  require_length("slice_offsets", static_cast<int64_t>(slice_offsets.size()), slices + 1);
  check_launch(dgb_fill_slices(indptr.data(), first.data(), rows, cap, slices,
                               row_indices.data(), slice_offsets.data(), stream_of(stream)),
               "fill_slices");
}

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

using Rows = nb::ndarray<float, nb::ndim<2>, Device>;  // any stride between rows
using ConstRows = nb::ndarray<const float, nb::ndim<2>, Device>;
using Clocks = std::optional<MatrixOn<int64_t, Device>>;  // begin, end, multiprocessor of a warp

int64_t* clocks_of(const Clocks& clocks, int64_t warps) {
  if (!clocks) return nullptr;
  require_length("clocks", static_cast<int64_t>(clocks->shape(0)), warps);
  require_length("clocks row", static_cast<int64_t>(clocks->shape(1)), 3);
  return clocks->data();
}

void aggregate_sliced(VectorOn<const int32_t, Device> row_indices,
                      VectorOn<const int64_t, Device> slice_offsets,
                      VectorOn<const int32_t, Device> indices,
                      std::optional<VectorOn<const float, Device>> values, ConstRows x, Rows y,
                      int groups, int vector, Clocks clocks, std::uintptr_t stream) {
  const SliceWarp warp =
      slice_warp(row_indices, slice_offsets, indices, values, x, y, groups, vector);
  int64_t* to = clocks_of(clocks, clocks ? dgb_sliced_warp_count(&warp, vector) : 0);
  check_launch(dgb_aggregate_sliced(&warp, vector, to, stream_of(stream)), "aggregate_sliced");
}

// How many warps aggregate_sliced starts for these arguments.
int64_t sliced_warp_count(VectorOn<const int32_t, Device> row_indices,
                          VectorOn<const int64_t, Device> slice_offsets,
                          VectorOn<const int32_t, Device> indices,
                          std::optional<VectorOn<const float, Device>> values, ConstRows x, Rows y,
                          int groups, int vector) {
  const SliceWarp warp =
      slice_warp(row_indices, slice_offsets, indices, values, x, y, groups, vector);
  return dgb_sliced_warp_count(&warp, vector);
}

// Transposed: rows of x are those of the matrix, y has a row per column and is added to.
void scatter_sliced(VectorOn<const int32_t, Device> row_indices,
                    VectorOn<const int64_t, Device> slice_offsets,
                    VectorOn<const int32_t, Device> indices,
                    std::optional<VectorOn<const float, Device>> values, ConstRows x, Rows y,
                    int groups, int vector, std::uintptr_t stream) {
  const SliceWarp warp =
      slice_warp(row_indices, slice_offsets, indices, values, x, y, groups, vector);
  check_launch(dgb_scatter_sliced(&warp, vector, stream_of(stream)), "scatter_sliced");
}

void spmm_gespmm(VectorOn<const int64_t, Device> indptr, VectorOn<const int32_t, Device> indices,
                 std::optional<VectorOn<const float, Device>> values, MatrixOn<const float, Device> x,
                 MatrixOn<float, Device> y, Clocks clocks, std::uintptr_t stream) {
  const auto rows = static_cast<int64_t>(y.shape(0));
  const auto features = static_cast<int>(x.shape(1));
  require_length("indptr", static_cast<int64_t>(indptr.size()), rows + 1);
  require_length("y columns", static_cast<int64_t>(y.shape(1)), features);
  if (values) {
    require_length("values", static_cast<int64_t>(values->size()),
                   static_cast<int64_t>(indices.size()));
  }
  const auto entries = static_cast<int64_t>(indices.size());
  int64_t* to = clocks_of(clocks, dgb_gespmm_warp_count(rows, features, entries));
  check_launch(dgb_spmm_gespmm(indptr.data(), indices.data(), values ? values->data() : nullptr,
                               rows, entries, features, x.data(), y.data(), to, stream_of(stream)),
               "spmm_gespmm");
}

}  // namespace

void bind_partition(nb::module_& m) {
  add_operator(m, "check_csr", &check_csr, "indptr"_a.noconvert(), "indices"_a.noconvert(), "num_cols"_a,
        "found"_a.noconvert(), "stream"_a);
  add_operator(m, "count_slices", &count_slices, "indptr"_a.noconvert(), "cap"_a, "counts"_a.noconvert(),
        "stream"_a);
  add_operator(m, "fill_slices", &fill_slices, "indptr"_a.noconvert(), "first"_a.noconvert(), "cap"_a,
        "row_indices"_a.noconvert(), "slice_offsets"_a.noconvert(), "stream"_a);
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
  add_operator(m, "aggregate_sliced", &aggregate_sliced, "row_indices"_a.noconvert(),
        "slice_offsets"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert().none(),
        "x"_a.noconvert(), "y"_a.noconvert(), "groups"_a, "vector"_a,
        "clocks"_a.noconvert().none(), "stream"_a);
  add_operator(m, "sliced_warp_count", &sliced_warp_count, "row_indices"_a.noconvert(),
        "slice_offsets"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert().none(),
        "x"_a.noconvert(), "y"_a.noconvert(), "groups"_a, "vector"_a);
  add_operator(m, "scatter_sliced", &scatter_sliced, "row_indices"_a.noconvert(),
        "slice_offsets"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert().none(),
        "x"_a.noconvert(), "y"_a.noconvert(), "groups"_a, "vector"_a, "stream"_a);
  add_operator(m, "spmm_gespmm", &spmm_gespmm, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "values"_a.noconvert().none(), "x"_a.noconvert(), "y"_a.noconvert(),
        "clocks"_a.noconvert().none(), "stream"_a);
  add_operator(m, "gespmm_warp_count", &dgb_gespmm_warp_count, "rows"_a, "features"_a,
        "entries"_a);
}

}  // namespace dgbench
