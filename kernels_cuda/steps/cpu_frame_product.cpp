// FrameProduct and FrameProductDouble: the topology of a frame for the steps of this folder.
#include "steps/cpu_frame_product.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

namespace dgbench {
namespace {

template <class R>
void bind_real(nb::module_& m, const char* name) {
  using Product = steps::FrameProduct<R>;
  const auto in = [](const char* one) { return nb::arg(one).noconvert(); };
  const auto maybe = [](const char* one) { return nb::arg(one).noconvert().none(); };
  nb::class_<Product>(m, name)
      .def(nb::init<int64_t>(), nb::arg("vertices"))
      .def("add", &Product::add, nb::arg("snapshots"), in("over_indptr"), in("over_indices"),
           maybe("over_values"), maybe("ex_indptr"), maybe("ex_entries"), maybe("ex_values"),
           maybe("order"), in("row_scale"), in("col_scale"))
      .def("multiply",
           [](const Product& product, Array<const R> x, Array<R> y, int64_t features, int threads) {
             if (features < 1) reject("features must be at least 1");
             const auto size = std::size_t(product.steps() * product.vertices() * features);
             check_size(x, size, "x");
             check_size(y, size, "y");
             nb::gil_scoped_release release;
             product.multiply(x.data(), y.data(), features, threads);
           },
           in("x"), in("y"), nb::arg("features"), nb::arg("threads"))
      .def_prop_ro("steps", &Product::steps);
}

}  // namespace

void bind_frame_product(nb::module_& m) {
  bind_real<float>(m, "FrameProduct");
  bind_real<double>(m, "FrameProductDouble");
}

}  // namespace dgbench
