// Bindings of EvolveGCN-O's weight evolution; see scan/cpu_evolve.cpp for the arguments. float32 only,
// and a workspace of evolve_workspace_size elements before the stream.
#include "common/operator_definition.hpp"
#include "scan/cuda_launchers.h"

namespace dgbench {
namespace {

using In = DeviceArray<const float>;
using Out = DeviceArray<float>;

EvolveArgs evolution(const In& initial, const In& w_ih, const In& w_hh, const In& b_ih,
                     const In& b_hh, std::size_t steps, const Out& workspace, bool backward) {
  if (initial.ndim() != 2) reject("initial must be [M, O]");
  const std::size_t width = initial.shape(1);
  check_size(w_ih, 3 * width * width, "w_ih");
  check_size(w_hh, 3 * width * width, "w_hh");
  check_size(b_ih, 3 * width, "b_ih");
  check_size(b_hh, 3 * width, "b_hh");
  EvolveArgs a{};
  a.steps = static_cast<int64_t>(steps);
  a.rows = static_cast<int64_t>(initial.shape(0));
  a.width = static_cast<int32_t>(width);
  check_size(workspace,
             static_cast<std::size_t>(
                 dgb_evolve_workspace_size(a.steps, a.rows, a.width, backward)),
             "workspace");
  a.initial = initial.data();
  a.w_ih = w_ih.data();
  a.w_hh = w_hh.data();
  a.b_ih = b_ih.data();
  a.b_hh = b_hh.data();
  a.workspace = workspace.data();
  return a;
}

void check_steps(std::size_t dimensions, const char* name) {
  if (dimensions != 3) reject(std::string(name) + " must be [T, M, O]");
}

void forward(In initial, In w_ih, In w_hh, In b_ih, In b_hh, Out weights, Out workspace,
             std::uintptr_t stream) {
  check_steps(weights.ndim(), "weights");
  EvolveArgs a =
      evolution(initial, w_ih, w_hh, b_ih, b_hh, weights.shape(0), workspace, false);
  check_size(weights, weights.shape(0) * initial.size(), "weights");
  a.weights = weights.data();
  check_launch(dgb_evolve_forward(&a, stream_of(stream)), "evolve_gru_forward");
}

void backward(In initial, In w_ih, In w_hh, In b_ih, In b_hh, In weights, In grad, Out grad_initial,
              Out grad_w_ih, Out grad_w_hh, Out grad_b_ih, Out grad_b_hh, Out workspace,
              std::uintptr_t stream) {
  check_steps(weights.ndim(), "weights");
  EvolveArgs a = evolution(initial, w_ih, w_hh, b_ih, b_hh, weights.shape(0), workspace, true);
  check_size(weights, weights.shape(0) * initial.size(), "weights");
  check_size(grad, weights.size(), "grad");
  check_size(grad_initial, initial.size(), "grad_initial");
  check_size(grad_w_ih, w_ih.size(), "grad_w_ih");
  check_size(grad_w_hh, w_hh.size(), "grad_w_hh");
  check_size(grad_b_ih, b_ih.size(), "grad_b_ih");
  check_size(grad_b_hh, b_hh.size(), "grad_b_hh");
  // Only read here; the arguments of both passes share one struct.
  a.weights = const_cast<float*>(weights.data());
  a.grad = grad.data();
  a.grad_initial = grad_initial.data();
  a.grad_w_ih = grad_w_ih.data();
  a.grad_w_hh = grad_w_hh.data();
  a.grad_b_ih = grad_b_ih.data();
  a.grad_b_hh = grad_b_hh.data();
  check_launch(dgb_evolve_backward(&a, stream_of(stream)), "evolve_gru_backward");
}

}  // namespace

void bind_evolve(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };
  add_operator(m, "evolve_gru_forward", &forward, in("initial"), in("w_ih"), in("w_hh"), in("b_ih"),
               in("b_hh"), in("weights"), in("workspace"), nb::arg("stream"));
  add_operator(m, "evolve_gru_backward", &backward, in("initial"), in("w_ih"), in("w_hh"),
               in("b_ih"), in("b_hh"), in("weights"), in("grad"), in("grad_initial"),
               in("grad_w_ih"), in("grad_w_hh"), in("grad_b_ih"), in("grad_b_hh"), in("workspace"),
               nb::arg("stream"));
  add_operator(m, "evolve_workspace_size", &dgb_evolve_workspace_size, nb::arg("steps"),
               nb::arg("rows"), nb::arg("width"), nb::arg("backward"));
}

}  // namespace dgbench
