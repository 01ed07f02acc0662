// Bindings of sums over partners and products of rows; interact/cpu.cpp has the meaning of arguments.
#include "common/operator_definition.hpp"
#include "common/require.hpp"
#include "interact/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

template <class T>
using Rows = nb::ndarray<T, nb::ndim<2>, nb::c_contig, Device>;

int launch(const InteractSums<float>& s, void* stream) {
  return dgb_interact_sums_float(&s, stream);
}
int launch(const InteractSums<double>& s, void* stream) {
  return dgb_interact_sums_double(&s, stream);
}
int launch(const InteractDots<float>& d, void* stream) {
  return dgb_interact_dots_float(&d, stream);
}
int launch(const InteractDots<double>& d, void* stream) {
  return dgb_interact_dots_double(&d, stream);
}

// `partial` is scratch: two rows for every kPieceEdges edges. What stands in `order` and `other` is
// not looked at here.
template <class T>
void interact_sums(DeviceArray<const int64_t> offsets, DeviceArray<const int64_t> order,
                   DeviceArray<const int64_t> other, MaybeDevice<const T> weight,
                   Rows<const T> x, Rows<T> out, bool last, DeviceArray<T> partial,
                   std::uintptr_t stream) {
  const std::size_t pieces = (order.size() + kPieceEdges - 1) / kPieceEdges;
  if (x.shape(1) != out.shape(1)) reject("out must be as wide as x");
  check_size(offsets, out.shape(0) + 1, "offsets");
  check_size(other, order.size(), "other");
  check_optional(weight, order.size(), "weight");
  check_size(partial, 2 * pieces * out.shape(1), "partial");
  const InteractSums<T> s{offsets.data(),
                          order.data(),
                          other.data(),
                          address(weight),
                          x.data(),
                          out.data(),
                          partial.data(),
                          static_cast<int64_t>(out.shape(0)),
                          static_cast<int64_t>(order.size()),
                          static_cast<int64_t>(out.shape(1)),
                          last};
  check_launch(launch(s, stream_of(stream)), "interact_sums");
}

template <class T>
void interact_dots(DeviceArray<const int64_t> src, DeviceArray<const int64_t> dst,
                   Rows<const T> left, Rows<const T> right, DeviceArray<T> out,
                   std::uintptr_t stream) {
  if (right.shape(1) != left.shape(1)) reject("right must be as wide as left");
  check_size(dst, src.size(), "dst");
  check_size(out, src.size(), "out");
  const InteractDots<T> d{src.data(),
                          dst.data(),
                          left.data(),
                          right.data(),
                          out.data(),
                          static_cast<int64_t>(src.size()),
                          static_cast<int64_t>(left.shape(1))};
  check_launch(launch(d, stream_of(stream)), "interact_dots");
}

template <class T>
void bind_of(nb::module_& m) {
  add_operator(m, "interact_sums", &interact_sums<T>, "offsets"_a.noconvert(), "order"_a.noconvert(),
        "other"_a.noconvert(), "weight"_a.noconvert().none(), "x"_a.noconvert(),
        "out"_a.noconvert(), "last"_a, "partial"_a.noconvert(), "stream"_a);
  add_operator(m, "interact_dots", &interact_dots<T>, "src"_a.noconvert(), "dst"_a.noconvert(),
        "left"_a.noconvert(), "right"_a.noconvert(), "out"_a.noconvert(), "stream"_a);
}

}  // namespace

void bind_interact(nb::module_& m) {
  bind_of<float>(m);
  bind_of<double>(m);
  m.attr("interact_piece_edges") = kPieceEdges;
}

}  // namespace dgbench
