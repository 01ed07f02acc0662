// Bindings of the papers' own kernels; the arguments are those of the CPU module with the stream at
// the end.
#include "common/operator_definition.hpp"
#include "variants/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

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

void bind_variants(nb::module_& m) {
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
