// All steps of EvolveGCN-O's weight evolution by a GRU cell (Pareja et al., AAAI 2020, section 3.3)
// in one call. The argument lists, with everything dense and of one type, float32 or float64:
//
//   evolve_gru_forward(initial, w_ih, w_hh, b_ih, b_hh, weights, threads)
//   evolve_gru_backward(initial, w_ih, w_hh, b_ih, b_hh, weights, grad, grad_initial, grad_w_ih,
//                       grad_w_hh, grad_b_ih, grad_b_hh, threads)
//
// initial [M, O], w_ih and w_hh [3 O, O] and b_ih and b_hh [3 O] with the gates r, z, n in rows,
// weights and grad [T, M, O]. Outputs are overwritten. Rows are independent; one thread does all of
// them, as there are only as many as a layer has inputs.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include "common/check.hpp"
#include "scan/cpu_evolve.hpp"

namespace dgbench {
namespace {

using scan::Evolution;

template <class R>
Evolution<R> evolution(const Matrix<const R>& initial, const Array<const R>& w_ih,
                       const Array<const R>& w_hh, const Array<const R>& b_ih,
                       const Array<const R>& b_hh, const Cube<const R>& weights) {
  const std::size_t width = initial.shape(1);
  check_size(weights, weights.shape(0) * initial.size(), "weights");
  check_size(w_ih, 3 * width * width, "w_ih");
  check_size(w_hh, 3 * width * width, "w_hh");
  check_size(b_ih, 3 * width, "b_ih");
  check_size(b_hh, 3 * width, "b_hh");
  return {int64_t(weights.shape(0)), int64_t(initial.shape(0)), int64_t(width), initial.data(),
          w_ih.data(), w_hh.data(), b_ih.data(), b_hh.data()};
}

template <class R>
void forward(Matrix<const R> initial, Array<const R> w_ih, Array<const R> w_hh,
             Array<const R> b_ih, Array<const R> b_hh, Cube<R> weights, int64_t /*threads*/) {
  const Evolution<R> e = evolution<R>(initial, w_ih, w_hh, b_ih, b_hh, Cube<const R>(weights));
  nb::gil_scoped_release unlocked;
  e.forward(weights.data());
}

template <class R>
void backward(Matrix<const R> initial, Array<const R> w_ih, Array<const R> w_hh,
              Array<const R> b_ih, Array<const R> b_hh, Cube<const R> weights, Cube<const R> grad,
              Array<R> grad_initial, Array<R> grad_w_ih, Array<R> grad_w_hh, Array<R> grad_b_ih,
              Array<R> grad_b_hh, int64_t /*threads*/) {
  const Evolution<R> e = evolution<R>(initial, w_ih, w_hh, b_ih, b_hh, weights);
  check_size(grad, weights.size(), "grad");
  check_size(grad_initial, initial.size(), "grad_initial");
  check_size(grad_w_ih, w_ih.size(), "grad_w_ih");
  check_size(grad_w_hh, w_hh.size(), "grad_w_hh");
  check_size(grad_b_ih, b_ih.size(), "grad_b_ih");
  check_size(grad_b_hh, b_hh.size(), "grad_b_hh");
  nb::gil_scoped_release unlocked;
  e.backward(weights.data(), grad.data(), grad_initial.data(), grad_w_ih.data(),
             grad_w_hh.data(), grad_b_ih.data(), grad_b_hh.data());
}

template <class R>
void bind_real(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };
  m.def("evolve_gru_forward", &forward<R>, in("initial"), in("w_ih"), in("w_hh"), in("b_ih"),
        in("b_hh"), in("weights"), nb::arg("threads"));
  m.def("evolve_gru_backward", &backward<R>, in("initial"), in("w_ih"), in("w_hh"), in("b_ih"),
        in("b_hh"), in("weights"), in("grad"), in("grad_initial"), in("grad_w_ih"),
        in("grad_w_hh"), in("grad_b_ih"), in("grad_b_hh"), nb::arg("threads"));
}

}  // namespace

void bind_evolve(nb::module_& m) {
  bind_real<float>(m);
  bind_real<double>(m);
}

}  // namespace dgbench
