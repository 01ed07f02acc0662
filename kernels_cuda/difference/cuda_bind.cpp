// Bindings of the graph difference on the device.
#include "common/operator_definition.hpp"
#include "difference/arguments.hpp"
#include "difference/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

using Offsets = VectorOn<const int64_t, Device>;
using Columns = VectorOn<const int32_t, Device>;

// `removed_at` and `added_at` are scratch of as many elements as there are pairs.
void rebuild(std::optional<Offsets> indptr, Columns indices, int64_t num_cols,
             PairsOn<Device> removed, PairsOn<Device> added, VectorOn<int32_t, Device> removed_at,
             VectorOn<int32_t, Device> added_at, VectorOn<int64_t, Device> out_indptr,
             VectorOn<int32_t, Device> out_indices, VectorOn<int64_t, Device> found,
             std::uintptr_t stream) {
  const Pairs gone = pairs_of(removed, "removed");
  Rebuild r = rebuild_of<Device>(indptr, indices, gone, added, out_indptr, out_indices);
  r.removed_at = removed_at.data();
  r.added_at = added_at.data();
  require_length("found", static_cast<int64_t>(found.size()), 3);
  require_length("removed_at", static_cast<int64_t>(removed_at.size()), gone.count);
  require_length("added_at", static_cast<int64_t>(added_at.size()), r.added.count);
  if (indptr && gone.count + r.added.count > 0) {
    const LocateChange locate{r.indptr, r.indices,         r.rows,          num_cols, gone,
                              r.added,  removed_at.data(), added_at.data(), found.data()};
    check_launch(dgb_locate_changes(&locate, stream_of(stream)), "locate_changes");
  }
  check_launch(dgb_rebuild(&r, stream_of(stream)), "rebuild");
}

}  // namespace

void bind_difference(nb::module_& m) {
  add_operator(m, "rebuild", &rebuild, "indptr"_a.noconvert().none(), "indices"_a.noconvert(), "num_cols"_a,
        "removed"_a.noconvert(), "added"_a.noconvert(), "removed_at"_a.noconvert(),
        "added_at"_a.noconvert(), "out_indptr"_a.noconvert(), "out_indices"_a.noconvert(),
        "found"_a.noconvert(), "stream"_a);
}

}  // namespace dgbench
