// Fused recurrent scans on the CPU. The device extension offers the same functions with the same
// argument lists; the trailing integer is the number of threads here and the stream there.
//
//   gru_scan_forward(x, w_in, w_hid, bias, h0, h_all, h_last, record, threads)
//   gru_scan_backward(x, w_in, w_hid, bias, h0, record, grad_h_all, grad_h_last,
//                     grad_x, grad_w_in, grad_w_hid, grad_bias, grad_h0, workspace, threads)
//   lstm_scan_forward(x, w_in, w_hid, bias, h0, c0, h_all, h_last, c_last, record, threads)
//   lstm_scan_backward(x, w_in, w_hid, bias, h0, c0, record, grad_h_all, grad_h_last, grad_c_last,
//                      grad_x, grad_w_in, grad_w_hid, grad_bias, grad_h0, grad_c0, workspace,
//                      threads)
//   scan_record_size(steps, vertices, features, hidden, gates, itemsize) -> elements
//   scan_workspace_size(steps, vertices, features, hidden, gates, itemsize) -> elements
//
// All arrays are of one type, float32 or float64. x and grad_x are [T, N, F] with any stride
// between steps and between vertices and adjacent features. Everything else is dense:
// w_in [F, G H], w_hid [H, G H], bias [G H] with G = 3 gates z r c (GRU) or 4 gates i f g o (LSTM);
// h0, c0, h_last, c_last and their gradients [N, H]; h_all and grad_h_all [T, N, H].
// None is allowed for: h0, c0 (zero), h_all (not wanted), every gradient that comes in (zero) or
// goes out (not wanted), record, workspace.
// Packed rows hold several sequences one behind the other. They are named by keyword arguments that
// all of these take after the last one: begins int32 [T, N] (scan/cpu_common.hpp says what its numbers
// mean; each start may be used once), h_starts and c_starts [S, H], c_all [T, N, H], and in the
// backward pass grad_c_all [T, N, H], grad_h_starts and grad_c_starts [S, H]. Rows of these two that
// no sequence starts from are left as they are. GRUs take no c.
//
// `record` is what the forward pass leaves for the backward pass, scan_record_size elements in a
// layout private to the extension, None where that is 0; the backward pass only reads it. Here it
// is 0: states and gates are made again from x (scan/cpu_common.hpp says why). `workspace` is scratch
// for the backward pass, scan_workspace_size elements, here 0. Outputs are overwritten, never added
// to.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <string>
#include <vector>

#include "common/check.hpp"
#include "scan/cpu_gru.hpp"
#include "scan/cpu_lstm.hpp"

namespace dgbench {
namespace {

using scan::BackwardArgs;
using scan::ForwardArgs;
using scan::Shape;

template <class T>
using Rows = nb::ndarray<T, nb::ndim<3>, nb::device::cpu>;

template <class A>
void check_rows(const A& array, const char* name) {
  if (array.shape(2) > 1 && array.shape(0) * array.shape(1) > 0 && array.stride(2) != 1) {
    reject(std::string(name) + " must have adjacent features (stride 1 in its last dimension)");
  }
}

template <class R>
Shape<R> shape_of(const Rows<const R>& x, const Array<const R>& w_in, const Array<const R>& w_hid,
                  const Array<const R>& bias, std::size_t gates) {
  check_rows(x, "x");
  if (w_hid.ndim() != 2) reject("w_hid must be [H, G * H]");
  const std::size_t hidden = w_hid.shape(0);
  check_size(w_in, x.shape(2) * gates * hidden, "w_in");
  check_size(w_hid, hidden * gates * hidden, "w_hid");
  check_size(bias, gates * hidden, "bias");
  return Shape<R>(int64_t(x.shape(0)), int64_t(x.shape(1)), int64_t(x.shape(2)), int64_t(hidden),
                  int64_t(gates));
}

template <class R>
R* pointer_to(const Maybe<R>& array) {
  return array ? array->data() : nullptr;
}

// Two sequences that start from one row would write its gradient twice.
void check_begins(const int32_t* begins, std::size_t count, bool given, std::size_t starts) {
  std::vector<char> used(given ? starts : 0, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const int32_t from = begins[i];
    if (from == scan::kContinues || from == scan::kFromZero) continue;
    if (from < 0 || std::size_t(from) >= used.size()) {
      reject("begins holds " + std::to_string(from) + ", allowed are -2, -1 and rows of h_starts");
    }
    if (used[std::size_t(from)]++) {
      reject("begins starts twice from row " + std::to_string(from) + " of h_starts");
    }
  }
}

template <class R>
ForwardArgs<R> inputs(const Shape<R>& s, const Rows<const R>& x, const Array<const R>& w_in,
                      const Array<const R>& w_hid, const Array<const R>& bias,
                      const Maybe<const R>& h0, const Maybe<const R>& c0, int64_t threads) {
  const std::size_t state = std::size_t(s.vertices * s.hidden);
  check_optional(h0, state, "h0");
  check_optional(c0, state, "c0");
  ForwardArgs<R> a{};
  a.x = x.data();
  a.x_step = x.stride(0);
  a.x_row = x.stride(1);
  a.w_in = w_in.data();
  a.w_hid = w_hid.data();
  a.bias = bias.data();
  a.h0 = pointer_to<const R>(h0);
  a.c0 = pointer_to<const R>(c0);
  a.threads = int(std::clamp<int64_t>(threads, 1, 4096));
  return a;
}

// The rows of h_starts, or -1 where there are none.
template <class R>
void packed(const Shape<R>& s, const Maybe<const int32_t>& begins, const Maybe<const R>& h_starts,
            const Maybe<const R>& c_starts, ForwardArgs<R>& a) {
  check_optional(begins, std::size_t(s.steps * s.vertices), "begins");
  if (c_starts && (!h_starts || c_starts->size() != h_starts->size())) {
    reject("c_starts must have the shape of h_starts");
  }
  a.begins = pointer_to<const int32_t>(begins);
  a.h_starts = pointer_to<const R>(h_starts);
  a.c_starts = pointer_to<const R>(c_starts);
  const std::size_t width = std::size_t(std::max<int64_t>(1, s.hidden));
  const std::size_t starts = h_starts ? h_starts->size() / width : 0;
  if (h_starts && starts * width != h_starts->size()) reject("h_starts must be [S, H]");
  if (begins) check_begins(begins->data(), begins->size(), h_starts.has_value(), starts);
}

template <class R>
void outputs(const Shape<R>& s, const Maybe<R>& h_all, const Array<R>& h_last,
             ForwardArgs<R>& a) {
  check_optional(h_all, std::size_t(s.steps * s.vertices * s.hidden), "h_all");
  check_size(h_last, std::size_t(s.vertices * s.hidden), "h_last");
  a.h_all = pointer_to(h_all);
  a.h_last = h_last.data();
}

template <class R>
BackwardArgs<R> gradients(const Shape<R>& s, const ForwardArgs<R>& in,
                          const Maybe<const R>& grad_h_all, const Maybe<const R>& grad_h_last,
                          const std::optional<Rows<R>>& grad_x, const Maybe<R>& grad_w_in,
                          const Maybe<R>& grad_w_hid, const Maybe<R>& grad_bias,
                          const Maybe<R>& grad_h0) {
  const std::size_t columns = std::size_t(s.gates * s.hidden);
  const std::size_t state = std::size_t(s.vertices * s.hidden);
  check_optional(grad_h_all, std::size_t(s.steps) * state, "grad_h_all");
  check_optional(grad_h_last, state, "grad_h_last");
  check_optional(grad_x, std::size_t(s.steps * s.vertices * s.features), "grad_x");
  check_optional(grad_w_in, std::size_t(s.features) * columns, "grad_w_in");
  check_optional(grad_w_hid, std::size_t(s.hidden) * columns, "grad_w_hid");
  check_optional(grad_bias, columns, "grad_bias");
  check_optional(grad_h0, state, "grad_h0");
  BackwardArgs<R> a{};
  a.forward = in;
  a.grad_h_all = pointer_to<const R>(grad_h_all);
  a.grad_h_last = pointer_to<const R>(grad_h_last);
  if (grad_x) {
    check_rows(*grad_x, "grad_x");
    for (int i = 0; i < 2; ++i) {
      if (int64_t(grad_x->shape(i)) != (i == 0 ? s.steps : s.vertices)) {
        reject("grad_x must have the shape of x");
      }
    }
    a.grad_x = grad_x->data();
    a.grad_x_step = grad_x->stride(0);
    a.grad_x_row = grad_x->stride(1);
  }
  a.grad_w_in = pointer_to(grad_w_in);
  a.grad_w_hid = pointer_to(grad_w_hid);
  a.grad_bias = pointer_to(grad_bias);
  a.grad_h0 = pointer_to(grad_h0);
  return a;
}

template <class R>
void gru_scan_forward(Rows<const R> x, Array<const R> w_in, Array<const R> w_hid,
                      Array<const R> bias, Maybe<const R> h0, Maybe<R> h_all, Array<R> h_last,
                      Maybe<R> /*record*/, int64_t threads, Maybe<const int32_t> begins,
                      Maybe<const R> h_starts) {
  const Shape<R> s = shape_of<R>(x, w_in, w_hid, bias, 3);
  ForwardArgs<R> a = inputs<R>(s, x, w_in, w_hid, bias, h0, std::nullopt, threads);
  packed<R>(s, begins, h_starts, std::nullopt, a);
  outputs<R>(s, h_all, h_last, a);
  nb::gil_scoped_release unlocked;
  scan::gru_forward(s, a);
}

template <class R>
void gru_scan_backward(Rows<const R> x, Array<const R> w_in, Array<const R> w_hid,
                       Array<const R> bias, Maybe<const R> h0, Maybe<const R> /*record*/,
                       Maybe<const R> grad_h_all, Maybe<const R> grad_h_last,
                       std::optional<Rows<R>> grad_x, Maybe<R> grad_w_in, Maybe<R> grad_w_hid,
                       Maybe<R> grad_bias, Maybe<R> grad_h0, Maybe<R> /*workspace*/,
                       int64_t threads, Maybe<const int32_t> begins, Maybe<const R> h_starts,
                       Maybe<R> grad_h_starts) {
  const Shape<R> s = shape_of<R>(x, w_in, w_hid, bias, 3);
  ForwardArgs<R> in = inputs<R>(s, x, w_in, w_hid, bias, h0, std::nullopt, threads);
  packed<R>(s, begins, h_starts, std::nullopt, in);
  BackwardArgs<R> a = gradients<R>(s, in, grad_h_all, grad_h_last, grad_x, grad_w_in, grad_w_hid,
                                   grad_bias, grad_h0);
  check_optional(grad_h_starts, h_starts ? h_starts->size() : 0, "grad_h_starts");
  a.grad_h_starts = pointer_to(grad_h_starts);
  nb::gil_scoped_release unlocked;
  scan::gru_backward(s, a);
}

template <class R>
void lstm_scan_forward(Rows<const R> x, Array<const R> w_in, Array<const R> w_hid,
                       Array<const R> bias, Maybe<const R> h0, Maybe<const R> c0, Maybe<R> h_all,
                       Array<R> h_last, Array<R> c_last, Maybe<R> /*record*/, int64_t threads,
                       Maybe<const int32_t> begins, Maybe<const R> h_starts,
                       Maybe<const R> c_starts, Maybe<R> c_all) {
  const Shape<R> s = shape_of<R>(x, w_in, w_hid, bias, 4);
  ForwardArgs<R> a = inputs<R>(s, x, w_in, w_hid, bias, h0, c0, threads);
  packed<R>(s, begins, h_starts, c_starts, a);
  outputs<R>(s, h_all, h_last, a);
  check_optional(c_all, std::size_t(s.steps * s.vertices * s.hidden), "c_all");
  a.c_all = pointer_to(c_all);
  check_size(c_last, std::size_t(s.vertices * s.hidden), "c_last");
  a.c_last = c_last.data();
  nb::gil_scoped_release unlocked;
  scan::lstm_forward(s, a);
}

template <class R>
void lstm_scan_backward(Rows<const R> x, Array<const R> w_in, Array<const R> w_hid,
                        Array<const R> bias, Maybe<const R> h0, Maybe<const R> c0,
                        Maybe<const R> /*record*/, Maybe<const R> grad_h_all,
                        Maybe<const R> grad_h_last, Maybe<const R> grad_c_last,
                        std::optional<Rows<R>> grad_x, Maybe<R> grad_w_in, Maybe<R> grad_w_hid,
                        Maybe<R> grad_bias, Maybe<R> grad_h0, Maybe<R> grad_c0,
                        Maybe<R> /*workspace*/, int64_t threads, Maybe<const int32_t> begins,
                        Maybe<const R> h_starts, Maybe<const R> c_starts,
                        Maybe<const R> grad_c_all, Maybe<R> grad_h_starts,
                        Maybe<R> grad_c_starts) {
  const Shape<R> s = shape_of<R>(x, w_in, w_hid, bias, 4);
  ForwardArgs<R> in = inputs<R>(s, x, w_in, w_hid, bias, h0, c0, threads);
  packed<R>(s, begins, h_starts, c_starts, in);
  BackwardArgs<R> a = gradients<R>(s, in, grad_h_all, grad_h_last, grad_x, grad_w_in, grad_w_hid,
                                   grad_bias, grad_h0);
  check_optional(grad_c_all, std::size_t(s.steps * s.vertices * s.hidden), "grad_c_all");
  check_optional(grad_h_starts, h_starts ? h_starts->size() : 0, "grad_h_starts");
  check_optional(grad_c_starts, c_starts ? c_starts->size() : 0, "grad_c_starts");
  a.grad_c_all = pointer_to<const R>(grad_c_all);
  a.grad_h_starts = pointer_to(grad_h_starts);
  a.grad_c_starts = pointer_to(grad_c_starts);
  check_optional(grad_c_last, std::size_t(s.vertices * s.hidden), "grad_c_last");
  check_optional(grad_c0, std::size_t(s.vertices * s.hidden), "grad_c0");
  a.grad_c_last = pointer_to<const R>(grad_c_last);
  a.grad_c0 = pointer_to(grad_c0);
  nb::gil_scoped_release unlocked;
  scan::lstm_backward(s, a);
}

template <class R>
void bind_real(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };
  const auto maybe = [](const char* name) { return nb::arg(name).noconvert().none(); };
  const auto absent = [](const char* name) {
    return nb::arg(name).noconvert().none() = nb::none();
  };
  m.def("gru_scan_forward", &gru_scan_forward<R>, in("x"), in("w_in"), in("w_hid"), in("bias"),
        maybe("h0"), maybe("h_all"), in("h_last"), maybe("record"), nb::arg("threads"),
        absent("begins"),
        absent("h_starts"));
  m.def("gru_scan_backward", &gru_scan_backward<R>, in("x"), in("w_in"), in("w_hid"), in("bias"),
        maybe("h0"), maybe("record"), maybe("grad_h_all"), maybe("grad_h_last"), maybe("grad_x"),
        maybe("grad_w_in"), maybe("grad_w_hid"), maybe("grad_bias"), maybe("grad_h0"),
        maybe("workspace"), nb::arg("threads"),
        absent("begins"),
        absent("h_starts"),
        absent("grad_h_starts"));
  m.def("lstm_scan_forward", &lstm_scan_forward<R>, in("x"), in("w_in"), in("w_hid"), in("bias"),
        maybe("h0"), maybe("c0"), maybe("h_all"), in("h_last"), in("c_last"), maybe("record"),
        nb::arg("threads"),
        absent("begins"),
        absent("h_starts"),
        absent("c_starts"),
        absent("c_all"));
  m.def("lstm_scan_backward", &lstm_scan_backward<R>, in("x"), in("w_in"), in("w_hid"), in("bias"),
        maybe("h0"), maybe("c0"), maybe("record"), maybe("grad_h_all"), maybe("grad_h_last"),
        maybe("grad_c_last"), maybe("grad_x"), maybe("grad_w_in"), maybe("grad_w_hid"),
        maybe("grad_bias"), maybe("grad_h0"), maybe("grad_c0"), maybe("workspace"),
        nb::arg("threads"),
        absent("begins"),
        absent("h_starts"),
        absent("c_starts"),
        absent("grad_c_all"),
        absent("grad_h_starts"),
        absent("grad_c_starts"));
}

int64_t nothing(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) { return 0; }

}  // namespace

void bind_scan(nb::module_& m) {
  bind_real<float>(m);
  bind_real<double>(m);
  for (const char* name : {"scan_record_size", "scan_workspace_size"}) {
    m.def(name, &nothing, nb::arg("steps"), nb::arg("vertices"), nb::arg("features"),
          nb::arg("hidden"), nb::arg("gates"), nb::arg("itemsize"));
  }
}

}  // namespace dgbench
