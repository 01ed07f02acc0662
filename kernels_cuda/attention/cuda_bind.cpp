// Bindings of the attention operators; see attention/cpu_rows.cpp and attention/cpu_packed.cpp for the
// arguments.
#include <cmath>

#include "attention/cuda_launchers.h"
#include "common/operator_definition.hpp"

using namespace nb::literals;

namespace dgbench {
namespace {

using Offsets = DeviceArray<const int64_t>;
using Ids = DeviceArray<const int32_t>;
using Floats = DeviceArray<const float>;
using Out = DeviceArray<float>;
using Rows3 = nb::ndarray<const float, nb::ndim<3>, Device>;  // any stride between rows
using Rows2 = nb::ndarray<const float, nb::ndim<2>, Device>;

AttendRows row_arguments(const Offsets& indptr, const Ids& indices, const Rows3& values,
                         const Rows2& source, const Floats& target, float slope,
                         const Ids& place) {
  if (indptr.size() == 0) reject("indptr is empty, expected rows + 1 offsets");
  AttendRows a{};
  a.indptr = indptr.data();
  a.indices = indices.data();
  a.rows = static_cast<int64_t>(indptr.size()) - 1;
  a.columns = static_cast<int64_t>(values.shape(0));
  a.heads = static_cast<int32_t>(values.shape(1));
  a.width = static_cast<int32_t>(values.shape(2));
  if (a.columns < a.rows) reject("values has fewer rows than indptr");
  if (a.width > dgb_attend_rows_width()) {
    reject("a head has " + std::to_string(a.width) + " columns, allowed are " +
           std::to_string(dgb_attend_rows_width()));
  }
  if ((a.width > 1 && values.stride(2) != 1) || (a.heads > 1 && values.stride(1) != a.width)) {
    reject("the rows of values must be dense");
  }
  if (source.shape(0) != values.shape(0) || source.shape(1) != values.shape(1) ||
      (a.heads > 1 && source.stride(1) != 1)) {
    reject("source must be [C, K] with dense rows");
  }
  check_size(target, static_cast<std::size_t>(a.rows * a.heads), "target");
  check_size(place, static_cast<std::size_t>(a.rows), "place");
  a.values = values.data();
  a.values_row = values.stride(0);
  a.source = source.data();
  a.source_row = source.stride(0);
  a.target = target.data();
  a.slope = slope;
  a.place = place.data();
  return a;
}

void attend_rows_forward(Offsets indptr, Ids indices, Rows3 values, Rows2 source, Floats target,
                         float slope, Ids place, Out out, MaybeDevice<float> stats,
                         MaybeDevice<float> positive, std::uintptr_t stream) {
  AttendRows a = row_arguments(indptr, indices, values, source, target, slope, place);
  const auto scores = static_cast<std::size_t>(a.rows * a.heads);
  check_size(out, scores * a.width, "out");
  check_optional(stats, 3 * scores, "stats");
  if (stats.has_value() != positive.has_value()) reject("stats and positive belong together");
  a.out = out.data();
  a.stats = address(stats);
  a.positive = address(positive);
  check_launch(dgb_attend_rows(&a, stream_of(stream)), "attend_rows_forward");
}

void attend_rows_backward(Offsets indptr, Ids indices, Rows3 values, Rows2 source, Floats target,
                          float slope, Ids place, Offsets receivers_ptr, Ids receivers, Floats grad,
                          Out out, Out stats, Out positive, Out entry, Out grad_values,
                          Out grad_source, Out grad_target, std::uintptr_t stream) {
  AttendRowsGrad b{};
  b.in = row_arguments(indptr, indices, values, source, target, slope, place);
  AttendRows& a = b.in;
  const auto scores = static_cast<std::size_t>(a.rows * a.heads);
  const auto columns = static_cast<std::size_t>(a.columns * a.heads);
  check_size(receivers_ptr, static_cast<std::size_t>(a.columns) + 1, "receivers_ptr");
  check_size(receivers, indices.size(), "receivers");
  check_size(grad, scores * a.width, "grad");
  check_size(out, scores * a.width, "out");
  check_size(stats, 3 * scores, "stats");
  check_size(entry, 4 * scores, "entry");
  check_size(grad_values, columns * a.width, "grad_values");
  check_size(grad_source, columns, "grad_source");
  check_size(grad_target, scores, "grad_target");
  a.out = out.data();
  a.stats = stats.data();
  a.positive = positive.data();
  b.receivers_ptr = receivers_ptr.data();
  b.receivers = receivers.data();
  b.grad = grad.data();
  b.entry = entry.data();
  b.grad_values = grad_values.data();
  b.grad_source = grad_source.data();
  b.grad_target = grad_target.data();
  check_launch(dgb_attend_rows_backward(&b, stream_of(stream)), "attend_rows_backward");
}

StepRows step_rows(const Rows3& x, const Rows3& like, const char* name) {
  for (int d = 0; d < 3; ++d) {
    if (x.shape(d) != like.shape(d)) reject(std::string(name) + " has another shape than q");
  }
  if (x.shape(2) > 1 && x.stride(2) != 1) reject(std::string(name) + " must have dense rows");
  return {x.data(), x.stride(0), x.stride(1)};
}

PackedAttention step_arguments(const Ids& sequence, const Offsets& first, const Rows3& q,
                               const Rows3& k, const Rows3& v, int64_t heads, bool causal) {
  PackedAttention a{};
  if (first.size() == 0) reject("first is empty, expected sequences + 1 offsets");
  a.sequences = static_cast<int64_t>(first.size()) - 1;
  check_size(sequence, 3 * static_cast<std::size_t>(a.sequences), "sequence");
  if (heads < 1 || q.shape(2) % heads != 0) reject("heads must divide the width of q");
  a.sequence = sequence.data();
  a.first = first.data();
  a.rows = static_cast<int64_t>(q.shape(1));
  a.heads = static_cast<int32_t>(heads);
  a.width = static_cast<int32_t>(q.shape(2) / heads);
  if (a.width > dgb_packed_attention_width()) {
    reject("a head has " + std::to_string(a.width) + " columns, allowed are " +
           std::to_string(dgb_packed_attention_width()));
  }
  a.causal = causal;
  a.scale = 1.0f / std::sqrt(static_cast<float>(a.width > 0 ? a.width : 1));
  a.q = step_rows(q, q, "q");
  a.k = step_rows(k, q, "k");
  a.v = step_rows(v, q, "v");
  return a;
}

void packed_attention_forward(Ids sequence, Offsets first, Ids wanted, Rows3 q, Rows3 k, Rows3 v,
                              int64_t heads, bool causal, Out out, std::uintptr_t stream) {
  PackedAttention a = step_arguments(sequence, first, q, k, v, heads, causal);
  check_size(out, q.size(), "out");
  a.wanted = wanted.data();
  a.out = out.data();
  if (a.width == 0) return;
  const auto count = static_cast<int64_t>(wanted.size());
  check_launch(dgb_packed_attention(&a, count, stream_of(stream)), "packed_attention_forward");
}

void packed_attention_backward(Ids sequence, Offsets first, Ids wanted, Rows3 q, Rows3 k, Rows3 v,
                               int64_t heads, bool causal, Rows3 grad, MaybeDevice<float> stats,
                               Out grad_q, Out grad_k, Out grad_v, std::uintptr_t stream) {
  PackedAttention a = step_arguments(sequence, first, q, k, v, heads, causal);
  a.wanted = wanted.data();
  a.grad = step_rows(grad, q, "grad");
  check_size(grad_q, q.size(), "grad_q");
  check_size(grad_k, q.size(), "grad_k");
  check_size(grad_v, q.size(), "grad_v");
  a.grad_q = grad_q.data();
  a.grad_k = grad_k.data();
  a.grad_v = grad_v.data();
  if (a.width == 0) return;
  const auto count = static_cast<int64_t>(wanted.size());
  if (!stats && count > 0) reject("stats is None, expected float32[wanted, heads, 3]");
  check_optional(stats, static_cast<std::size_t>(3 * count * a.heads), "stats");
  const auto steps = static_cast<int64_t>(q.shape(0));
  check_launch(dgb_packed_attention_backward(&a, count, steps, address(stats), stream_of(stream)),
               "packed_attention_backward");
}

}  // namespace

void bind_attention(nb::module_& m) {
  add_operator(m, "attend_rows_forward", &attend_rows_forward, "indptr"_a.noconvert(),
        "indices"_a.noconvert(), "values"_a.noconvert(), "source"_a.noconvert(),
        "target"_a.noconvert(), "slope"_a, "place"_a.noconvert(), "out"_a.noconvert(),
        "stats"_a.noconvert().none(), "positive"_a.noconvert().none(), "stream"_a);
  add_operator(m, "attend_rows_backward", &attend_rows_backward, "indptr"_a.noconvert(),
        "indices"_a.noconvert(), "values"_a.noconvert(), "source"_a.noconvert(),
        "target"_a.noconvert(), "slope"_a, "place"_a.noconvert(), "receivers_ptr"_a.noconvert(),
        "receivers"_a.noconvert(), "grad"_a.noconvert(), "out"_a.noconvert(),
        "stats"_a.noconvert(), "positive"_a.noconvert(), "entry"_a.noconvert(),
        "grad_values"_a.noconvert(), "grad_source"_a.noconvert(), "grad_target"_a.noconvert(),
        "stream"_a);
  add_operator(m, "packed_attention_forward", &packed_attention_forward, "sequence"_a.noconvert(),
        "first"_a.noconvert(), "wanted"_a.noconvert(), "q"_a.noconvert(), "k"_a.noconvert(),
        "v"_a.noconvert(), "heads"_a, "causal"_a, "out"_a.noconvert(), "stream"_a);
  add_operator(m, "packed_attention_backward", &packed_attention_backward, "sequence"_a.noconvert(),
        "first"_a.noconvert(), "wanted"_a.noconvert(), "q"_a.noconvert(), "k"_a.noconvert(),
        "v"_a.noconvert(), "heads"_a, "causal"_a, "grad"_a.noconvert(),
        "stats"_a.noconvert().none(), "grad_q"_a.noconvert(), "grad_k"_a.noconvert(),
        "grad_v"_a.noconvert(), "stream"_a);
}

}  // namespace dgbench
