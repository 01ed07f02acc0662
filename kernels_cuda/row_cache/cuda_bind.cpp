// Bindings of the kernels of a feature cache; kernels_cuda/row_cache/device.py keeps its arrays.
#include "common/operator_definition.hpp"
#include "common/require.hpp"
#include "row_cache/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

template <class T, class Where>
using Rows = nb::ndarray<T, nb::ndim<2>, nb::c_contig, Where>;

void look_up(DeviceArray<const int64_t> ids, MaybeDevice<const int32_t> dense,
             DeviceArray<const int64_t> sorted, DeviceArray<const int32_t> slot_of, int64_t num_ids,
             DeviceArray<int32_t> slots, std::uintptr_t stream) {
  check_optional(dense, static_cast<std::size_t>(num_ids), "dense");
  check_size(slot_of, sorted.size(), "slot_of");
  check_size(slots, ids.size(), "slots");
  const LookUp functor{ids.data(),   address(dense),
                       sorted.data(), slot_of.data(),
                       slots.data(), static_cast<int64_t>(ids.size()),
                       num_ids,      static_cast<int64_t>(sorted.size())};
  check_launch(dgb_look_up(&functor, stream_of(stream)), "look_up");
}

// `source` lies on the device, or in page-locked memory of the host. Places and misses were made by
// a lookup and are not looked at here.
template <class Where>
void gather_rows(DeviceArray<const int32_t> place, MaybeDevice<const int64_t> misses,
                 Rows<const float, Device> kept, Rows<const float, Where> source,
                 Rows<float, Device> out, std::uintptr_t stream) {
  const std::size_t dim = out.shape(1);
  require_length("out", static_cast<int64_t>(out.shape(0)), static_cast<int64_t>(place.size()));
  require_length("kept columns", static_cast<int64_t>(kept.shape(1)), static_cast<int64_t>(dim));
  require_length("source columns", static_cast<int64_t>(source.shape(1)),
                 static_cast<int64_t>(dim));
  const GatherRows<1> functor{place.data(),  address(misses), kept.data(),
                              source.data(), out.data(),      static_cast<int64_t>(place.size()),
                              static_cast<int64_t>(dim)};
  check_launch(dgb_gather_rows(&functor, stream_of(stream)), "gather_rows");
}

}  // namespace

void bind_row_cache(nb::module_& m) {
  add_operator(m, "look_up", &look_up, "ids"_a.noconvert(), "dense"_a.noconvert().none(),
        "sorted"_a.noconvert(), "slot_of"_a.noconvert(), "num_ids"_a, "slots"_a.noconvert(),
        "stream"_a);
  add_operator(m, "gather_rows", &gather_rows<Device>, "place"_a.noconvert(), "misses"_a.noconvert().none(),
        "kept"_a.noconvert(), "source"_a.noconvert(), "out"_a.noconvert(), "stream"_a);
  add_operator(m, "gather_rows_pinned", &gather_rows<nb::device::cpu>, "place"_a.noconvert(),
        "misses"_a.noconvert().none(), "kept"_a.noconvert(), "source"_a.noconvert(),
        "out"_a.noconvert(), "stream"_a);
}

}  // namespace dgbench
