// Bindings of what puts arrived topology together. `merge_exclusive` takes the arguments of the CPU's
// operator of that name, with the stream in place of the threads.
#include "common/operator_definition.hpp"
#include "slices/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

template <class T>
using Vectors = std::vector<VectorOn<T, Device>>;

// row_indices, slice_offsets: int32[slices], int32[slices + 1] of each piece; out: int64[pieces, N + 1].
void unpack_offsets(Vectors<const int32_t> row_indices, Vectors<const int32_t> slice_offsets,
                    MatrixOn<int64_t, Device> out, std::uintptr_t stream) {
  const std::size_t pieces = row_indices.size();
  require(pieces >= 1 && pieces <= static_cast<std::size_t>(kMaxPieces),
          "row_indices holds " + std::to_string(pieces) + " pieces, allowed are 1 to " +
              std::to_string(kMaxPieces));
  require_length("slice_offsets", static_cast<int64_t>(slice_offsets.size()),
                 static_cast<int64_t>(pieces));
  require_length("out", static_cast<int64_t>(out.shape(0)), static_cast<int64_t>(pieces));
  require(out.shape(1) >= 1, "out has no columns, expected rows + 1");
  UnpackOffsets functor{};
  functor.pieces = static_cast<int>(pieces);
  functor.rows = static_cast<int64_t>(out.shape(1)) - 1;
  functor.out = out.data();
  for (std::size_t i = 0; i < pieces; ++i) {
    functor.slices[i] = static_cast<int64_t>(row_indices[i].size());
    require_length("slice_offsets[i]", static_cast<int64_t>(slice_offsets[i].size()),
                   functor.slices[i] + 1);
    functor.row_indices[i] = row_indices[i].data();
    functor.slice_offsets[i] = slice_offsets[i].data();
  }
  check_launch(dgb_unpack_offsets(&functor, stream_of(stream)), "unpack_offsets");
}

void merge_exclusive(Vectors<const int64_t> indptr, Vectors<const int32_t> indices,
                     Vectors<const float> values, VectorOn<int64_t, Device> out_indptr,
                     VectorOn<int32_t, Device> out_entries,
                     std::optional<VectorOn<float, Device>> out_values, std::uintptr_t stream) {
  const Snapshots<Device> snapshots{std::move(indptr), std::move(indices)};
  MergeExclusive functor{};
  functor.parts = snapshots.rows();
  functor.rows = snapshots.num_rows();
  const auto count = static_cast<int64_t>(functor.parts.count);
  require_length("out_indptr", static_cast<int64_t>(out_indptr.size()), functor.rows + 1);
  require_length("values", static_cast<int64_t>(values.size()), out_values ? count : 0);
  for (int64_t i = 0; i < count; ++i) {
    const auto nnz = static_cast<int64_t>(snapshots.indices[i].size());
    functor.before[i + 1] = functor.before[i] + nnz;
    if (!out_values) continue;
    require_length("values[i]", static_cast<int64_t>(values[i].size()), nnz);
    functor.values[i] = values[i].data();
  }
  while ((int64_t{1} << functor.bits) < count) ++functor.bits;
  require_length("out_entries", static_cast<int64_t>(out_entries.size()), functor.before[count]);
  functor.out_indptr = out_indptr.data();
  functor.out_entries = reinterpret_cast<uint32_t*>(out_entries.data());
  if (out_values) {
    require_length("out_values", static_cast<int64_t>(out_values->size()), functor.before[count]);
    functor.out_values = out_values->data();
  }
  check_launch(dgb_merge_exclusive(&functor, stream_of(stream)), "merge_exclusive");
}

}  // namespace

void bind_unpack(nb::module_& m) {
  add_operator(m, "unpack_offsets", &unpack_offsets, "row_indices"_a.noconvert(),
        "slice_offsets"_a.noconvert(), "out"_a.noconvert(), "stream"_a);
  add_operator(m, "merge_exclusive", &merge_exclusive, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "values"_a.noconvert(), "out_indptr"_a.noconvert(), "out_entries"_a.noconvert(),
        "out_values"_a.noconvert().none(), "stream"_a);
}

}  // namespace dgbench
