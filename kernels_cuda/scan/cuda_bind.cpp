// Bindings of the recurrent scans; see scan/cpu.cpp for the arguments. float32 only. Here the
// record is needed for the backward pass: states and gates of every vertex-step.
#include "common/operator_definition.hpp"
#include "scan/cuda_launchers.h"

namespace dgbench {
namespace {

template <class Rows>
void check_rows(const Rows& array, const char* name) {
  if (array.shape(2) > 1 && array.shape(0) * array.shape(1) > 0 && array.stride(2) != 1) {
    reject(std::string(name) + " must have adjacent features (stride 1 in its last dimension)");
  }
}

using In = DeviceArray<const float>;
using MaybeIn = MaybeDevice<const float>;
using MaybeBegins = MaybeDevice<const int32_t>;
using Out = DeviceArray<float>;
using MaybeOut = MaybeDevice<float>;
using RowsIn = DeviceRows<const float>;
using RowsOut = std::optional<DeviceRows<float>>;

ScanArgs inputs(const RowsIn& x, const In& w_in, const In& w_hid, const In& bias,
                const MaybeIn& h0, const MaybeIn& c0, int32_t gates) {
  check_rows(x, "x");
  if (w_hid.ndim() != 2) reject("w_hid must be [H, G * H]");
  ScanArgs a{};
  a.steps = static_cast<int64_t>(x.shape(0));
  a.vertices = static_cast<int64_t>(x.shape(1));
  a.features = static_cast<int32_t>(x.shape(2));
  a.hidden = static_cast<int32_t>(w_hid.shape(0));
  a.gates = gates;
  const std::size_t columns = static_cast<std::size_t>(gates) * w_hid.shape(0);
  const std::size_t state = x.shape(1) * w_hid.shape(0);
  check_size(w_in, x.shape(2) * columns, "w_in");
  check_size(w_hid, w_hid.shape(0) * columns, "w_hid");
  check_size(bias, columns, "bias");
  check_optional(h0, state, "h0");
  check_optional(c0, state, "c0");
  a.x = x.data();
  a.x_step = x.stride(0);
  a.x_row = x.stride(1);
  a.w_in = w_in.data();
  a.w_hid = w_hid.data();
  a.bias = bias.data();
  a.h0 = address(h0);
  a.c0 = address(c0);
  return a;
}

// The numbers in `begins` are not looked at, as reading them would wait for the device.
void packed(ScanArgs& a, const MaybeBegins& begins, const MaybeIn& h_starts,
            const MaybeIn& c_starts) {
  check_optional(begins, static_cast<std::size_t>(a.steps * a.vertices), "begins");
  if (c_starts && (!h_starts || c_starts->size() != h_starts->size())) {
    reject("c_starts must have the shape of h_starts");
  }
  a.begins = address(begins);
  a.h_starts = address(h_starts);
  a.c_starts = address(c_starts);
}

void multiply(ScanArgs& a, int32_t products) {
  if (products != kPlainProducts && products != kSplitProducts) {
    reject("products is " + std::to_string(products) + ", allowed are 0 (float32), 1 (3xTF32)");
  }
  a.products = products;
}

std::size_t record_size(const ScanArgs& a) {
  return static_cast<std::size_t>(
      dgb_scan_record_size(a.steps, a.vertices, a.features, a.hidden, a.gates));
}

void outputs(ScanArgs& a, const MaybeOut& h_all, const Out& h_last, const MaybeOut& record) {
  const std::size_t state = static_cast<std::size_t>(a.vertices * a.hidden);
  check_optional(h_all, static_cast<std::size_t>(a.steps) * state, "h_all");
  check_size(h_last, state, "h_last");
  check_optional(record, record_size(a), "record");
  a.h_all = address(h_all);
  a.h_last = h_last.data();
  a.record = address(record);
}

void gru_forward(RowsIn x, In w_in, In w_hid, In bias, MaybeIn h0, MaybeOut h_all, Out h_last,
                 MaybeOut record, std::uintptr_t stream, MaybeBegins begins, MaybeIn h_starts,
                 int32_t products) {
  ScanArgs a = inputs(x, w_in, w_hid, bias, h0, std::nullopt, 3);
  packed(a, begins, h_starts, std::nullopt);
  multiply(a, products);
  outputs(a, h_all, h_last, record);
  check_launch(dgb_scan_forward(&a, stream_of(stream)), "gru_scan_forward");
}

void lstm_forward(RowsIn x, In w_in, In w_hid, In bias, MaybeIn h0, MaybeIn c0, MaybeOut h_all,
                  Out h_last, Out c_last, MaybeOut record, std::uintptr_t stream,
                  MaybeBegins begins, MaybeIn h_starts, MaybeIn c_starts, MaybeOut c_all,
                  int32_t products) {
  ScanArgs a = inputs(x, w_in, w_hid, bias, h0, c0, 4);
  packed(a, begins, h_starts, c_starts);
  multiply(a, products);
  check_optional(c_all, static_cast<std::size_t>(a.steps * a.vertices * a.hidden), "c_all");
  a.c_all = address(c_all);
  outputs(a, h_all, h_last, record);
  check_size(c_last, static_cast<std::size_t>(a.vertices * a.hidden), "c_last");
  a.c_last = c_last.data();
  check_launch(dgb_scan_forward(&a, stream_of(stream)), "lstm_scan_forward");
}

ScanGradArgs gradients(const ScanArgs& in, const MaybeIn& record, const MaybeIn& grad_h_all,
                       const MaybeIn& grad_h_last, const MaybeIn& grad_c_last,
                       const RowsOut& grad_x, const MaybeOut& grad_w_in,
                       const MaybeOut& grad_w_hid, const MaybeOut& grad_bias,
                       const MaybeOut& grad_h0, const MaybeOut& grad_c0,
                       const MaybeOut& workspace) {
  ScanGradArgs g{};
  g.in = in;
  const std::size_t columns = static_cast<std::size_t>(in.gates) * in.hidden;
  const std::size_t state = static_cast<std::size_t>(in.vertices * in.hidden);
  if (!record && record_size(in) > 0) {
    reject("record is None, expected what the forward pass left; run it with a record");
  }
  check_optional(record, record_size(in), "record");
  check_optional(grad_h_all, static_cast<std::size_t>(in.steps) * state, "grad_h_all");
  check_optional(grad_h_last, state, "grad_h_last");
  check_optional(grad_c_last, state, "grad_c_last");
  check_optional(grad_w_in, static_cast<std::size_t>(in.features) * columns, "grad_w_in");
  check_optional(grad_w_hid, static_cast<std::size_t>(in.hidden) * columns, "grad_w_hid");
  check_optional(grad_bias, columns, "grad_bias");
  check_optional(grad_h0, state, "grad_h0");
  check_optional(grad_c0, state, "grad_c0");
  const auto needed = static_cast<std::size_t>(
      dgb_scan_workspace_size(in.steps, in.vertices, in.features, in.hidden, in.gates));
  if (!workspace && needed > 0) reject("workspace is None, expected scan_workspace_size elements");
  check_optional(workspace, needed, "workspace");
  // Only read here; the arguments of both passes share one struct.
  g.in.record = record ? const_cast<float*>(record->data()) : nullptr;
  g.grad_h_all = address(grad_h_all);
  g.grad_h_last = address(grad_h_last);
  g.grad_c_last = address(grad_c_last);
  if (grad_x) {
    check_rows(*grad_x, "grad_x");
    if (static_cast<int64_t>(grad_x->shape(0)) != in.steps ||
        static_cast<int64_t>(grad_x->shape(1)) != in.vertices ||
        static_cast<int32_t>(grad_x->shape(2)) != in.features) {
      reject("grad_x must have the shape of x");
    }
    g.grad_x = grad_x->data();
    g.grad_x_step = grad_x->stride(0);
    g.grad_x_row = grad_x->stride(1);
  }
  g.grad_w_in = address(grad_w_in);
  g.grad_w_hid = address(grad_w_hid);
  g.grad_bias = address(grad_bias);
  g.grad_h0 = address(grad_h0);
  g.grad_c0 = address(grad_c0);
  g.workspace = address(workspace);
  return g;
}

void gru_backward(RowsIn x, In w_in, In w_hid, In bias, MaybeIn h0, MaybeIn record,
                  MaybeIn grad_h_all, MaybeIn grad_h_last, RowsOut grad_x, MaybeOut grad_w_in,
                  MaybeOut grad_w_hid, MaybeOut grad_bias, MaybeOut grad_h0, MaybeOut workspace,
                  std::uintptr_t stream, MaybeBegins begins, MaybeIn h_starts,
                  MaybeOut grad_h_starts, int32_t products) {
  ScanArgs a = inputs(x, w_in, w_hid, bias, h0, std::nullopt, 3);
  packed(a, begins, h_starts, std::nullopt);
  multiply(a, products);
  ScanGradArgs g = gradients(a, record, grad_h_all, grad_h_last, std::nullopt, grad_x, grad_w_in,
                             grad_w_hid, grad_bias, grad_h0, std::nullopt, workspace);
  check_optional(grad_h_starts, h_starts ? h_starts->size() : 0, "grad_h_starts");
  g.grad_h_starts = address(grad_h_starts);
  check_launch(dgb_scan_backward(&g, stream_of(stream)), "gru_scan_backward");
}

void lstm_backward(RowsIn x, In w_in, In w_hid, In bias, MaybeIn h0, MaybeIn c0, MaybeIn record,
                   MaybeIn grad_h_all, MaybeIn grad_h_last, MaybeIn grad_c_last, RowsOut grad_x,
                   MaybeOut grad_w_in, MaybeOut grad_w_hid, MaybeOut grad_bias, MaybeOut grad_h0,
                   MaybeOut grad_c0, MaybeOut workspace, std::uintptr_t stream,
                   MaybeBegins begins, MaybeIn h_starts, MaybeIn c_starts, MaybeIn grad_c_all,
                   MaybeOut grad_h_starts, MaybeOut grad_c_starts, int32_t products) {
  ScanArgs a = inputs(x, w_in, w_hid, bias, h0, c0, 4);
  packed(a, begins, h_starts, c_starts);
  multiply(a, products);
  ScanGradArgs g = gradients(a, record, grad_h_all, grad_h_last, grad_c_last, grad_x, grad_w_in,
                             grad_w_hid, grad_bias, grad_h0, grad_c0, workspace);
  check_optional(grad_c_all, static_cast<std::size_t>(a.steps * a.vertices * a.hidden),
                 "grad_c_all");
  check_optional(grad_h_starts, h_starts ? h_starts->size() : 0, "grad_h_starts");
  check_optional(grad_c_starts, c_starts ? c_starts->size() : 0, "grad_c_starts");
  g.grad_c_all = address(grad_c_all);
  g.grad_h_starts = address(grad_h_starts);
  g.grad_c_starts = address(grad_c_starts);
  check_launch(dgb_scan_backward(&g, stream_of(stream)), "lstm_scan_backward");
}

template <auto SIZE>
int64_t sized(int64_t steps, int64_t vertices, int64_t features, int64_t hidden, int64_t gates,
              int64_t) {
  return SIZE(steps, vertices, features, hidden, gates);
}

}  // namespace

void bind_scan(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };
  const auto maybe = [](const char* name) { return nb::arg(name).noconvert().none(); };
  const auto absent = [](const char* name) {
    return nb::arg(name).noconvert().none() = nb::none();
  };
  const auto products = nb::arg("products") = kPlainProducts;
  add_operator(m, "gru_scan_forward", &gru_forward, in("x"), in("w_in"), in("w_hid"), in("bias"),
        maybe("h0"), maybe("h_all"), in("h_last"), maybe("record"), nb::arg("stream"),
        absent("begins"),
        absent("h_starts"),
        products);
  add_operator(m, "gru_scan_backward", &gru_backward, in("x"), in("w_in"), in("w_hid"), in("bias"),
        maybe("h0"), maybe("record"), maybe("grad_h_all"), maybe("grad_h_last"), maybe("grad_x"),
        maybe("grad_w_in"), maybe("grad_w_hid"), maybe("grad_bias"), maybe("grad_h0"),
        maybe("workspace"), nb::arg("stream"),
        absent("begins"),
        absent("h_starts"),
        absent("grad_h_starts"),
        products);
  add_operator(m, "lstm_scan_forward", &lstm_forward, in("x"), in("w_in"), in("w_hid"), in("bias"),
        maybe("h0"), maybe("c0"), maybe("h_all"), in("h_last"), in("c_last"), maybe("record"),
        nb::arg("stream"),
        absent("begins"),
        absent("h_starts"),
        absent("c_starts"),
        absent("c_all"),
        products);
  add_operator(m, "lstm_scan_backward", &lstm_backward, in("x"), in("w_in"), in("w_hid"), in("bias"),
        maybe("h0"), maybe("c0"), maybe("record"), maybe("grad_h_all"), maybe("grad_h_last"),
        maybe("grad_c_last"), maybe("grad_x"), maybe("grad_w_in"), maybe("grad_w_hid"),
        maybe("grad_bias"), maybe("grad_h0"), maybe("grad_c0"), maybe("workspace"),
        nb::arg("stream"),
        absent("begins"),
        absent("h_starts"),
        absent("c_starts"),
        absent("grad_c_all"),
        absent("grad_h_starts"),
        absent("grad_c_starts"),
        products);
  add_operator(m, "scan_splits", &dgb_scan_splits, nb::arg("features"), nb::arg("hidden"),
        nb::arg("gates"));
  add_operator(m, "scan_record_size", &sized<&dgb_scan_record_size>, nb::arg("steps"), nb::arg("vertices"),
        nb::arg("features"), nb::arg("hidden"), nb::arg("gates"), nb::arg("itemsize"));
  add_operator(m, "scan_workspace_size", &sized<&dgb_scan_workspace_size>, nb::arg("steps"),
        nb::arg("vertices"), nb::arg("features"), nb::arg("hidden"), nb::arg("gates"),
        nb::arg("itemsize"));
}

}  // namespace dgbench
