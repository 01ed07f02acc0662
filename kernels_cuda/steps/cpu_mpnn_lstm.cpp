// A whole training step of MPNN-LSTM with a node head and squared error at the last snapshot:
//
//   mpnn_lstm_step(parameters, grads, moments, x, raw, forward, backward, target, hidden, norm_eps,
//                  output, step, rate, beta_1, beta_2, eps, decay, threads) -> loss
//
// parameters and grads [P] hold: weight [F, H] and bias [H] of the first convolution, weight [H, H]
// and bias [H] of the second; weight and bias [H] of both norms; weight_ih, weight_hh, bias_ih and
// bias_hh of both LSTMs (torch.nn.LSTM, 2 H -> H and H -> H); the head [2 H + F + T - 1] and its bias
// [1]. moments [2, P] or None. x [T, N, F] is aggregated and dense, raw [T, N, F] are the features
// themselves with any stride between steps and vertices, for the skip columns; forward and backward
// are the frame's products with A-hat and its transpose. target [N]. output [N, 2 H + F + T - 1] of
// the last snapshot, or None.
//
// Both LSTMs, the loss and their way back are one pass over blocks of vertices; around it stand the
// norms, which need all rows, and the aggregation, which needs all vertices. Rows between them lie as
// the partitions have them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include "layers/cpu_layers.hpp"
#include "steps/cpu_frame_product.hpp"
#include "steps/cpu_lstm_block.hpp"

namespace dgbench::steps {
namespace {

using layers::Layer;

template <class R>
using Rows = nb::ndarray<const R, nb::ndim<3>, nb::device::cpu>;

template <class R>
struct MpnnLstm {
  int64_t steps, vertices, features, hidden;
  const R *x, *raw, *target;
  int64_t raw_step, raw_row;
  double norm_eps;
  R* output;
  const FrameProduct<R>*forward, *backward;

  int64_t skips() const { return features + steps - 1; }
  int64_t width() const { return 2 * hidden + skips(); }
  int64_t second() const { return (features + 1) * hidden; }
  int64_t norms() const { return second() + (hidden + 1) * hidden; }
  int64_t lstms() const { return norms() + 4 * hidden; }
  int64_t head() const {
    return lstms() + Lstm<R>(2 * hidden, hidden).size() + Lstm<R>(hidden, hidden).size();
  }
  int64_t size() const { return head() + width() + 1; }

  // Of one row: both records, the inputs [T, 2 H], dh and dc [hp] of both.
  int64_t record(const Lstm<R>& one, const Lstm<R>& two) const {
    return one.record(steps) + two.record(steps) + steps * 2 * hidden + 4 * one.hp;
  }
  // Gradients of both LSTMs, of the head in three parts (two padded states, skip columns), its bias.
  int64_t sums(const Lstm<R>& one, const Lstm<R>& two) const {
    return one.sums() + two.sums() + 2 * one.hp + skips() + 1;
  }

  double block(int64_t first, int64_t rows, const Lstm<R>& one, const Lstm<R>& two, const R* head,
               R* y1, R* y2, R* memory, R* sums_at) const {
    const int64_t hp = one.hp, all = steps * rows, in = 2 * hidden;
    R* const h1 = memory;
    R* const c1 = h1 + (all + rows) * hp;
    R* const gates1 = c1 + (all + rows) * hp;
    R* const h2 = gates1 + all * one.gp;
    R* const c2 = h2 + (all + rows) * hp;
    R* const gates2 = c2 + (all + rows) * hp;
    R* const joined = gates2 + all * two.gp;
    R* const dh1 = joined + all * in;
    R* const dh2 = dh1 + rows * hp;
    R* const dc = dh2 + rows * hp;
    for (int64_t t = 0; t < steps; ++t) {
      for (int64_t v = 0; v < rows; ++v) {
        const int64_t from = (forward->first(t) + (first + v) * forward->apart(t)) * hidden;
        R* to = joined + (t * rows + v) * in;
        std::copy_n(y1 + from, hidden, to);
        std::copy_n(y2 + from, hidden, to + hidden);
      }
    }
    one.forward(steps, rows, joined, in, h1, c1, gates1);
    two.forward(steps, rows, h1 + rows * hp, hp, h2, c2, gates2);

    R* const of_one = sums_at;
    R* const of_two = of_one + one.sums();
    R* const of_head = of_two + two.sums();
    const double loss = score(first, rows, hp, head, h1 + all * hp, h2 + all * hp, dh1, dh2, of_head);

    two.backward(steps, rows, c2, gates2, dh2, dc, nullptr);
    two.add_sums(steps, rows, h1 + rows * hp, hp, h2, gates2, of_two);
    R* const between = h2;  // of the first LSTM's states [T, rows, hp]; nothing reads h2 any more
    multiply<R>(all, two.hv, {gates2, two.gp, two.w_in_t, two.ip, two.gp}, {}, nullptr, 0, between,
                hp);
    one.backward(steps, rows, c1, gates1, dh1, dc, between);
    one.add_sums(steps, rows, joined, in, h1, gates1, of_one);
    R* const back = gates2;  // of the inputs [T, rows, ip <= 2 hp]
    multiply<R>(all, one.ip / Lanes<R>::count, {gates1, one.gp, one.w_in_t, one.ip, one.gp}, {},
                nullptr, 0, back, one.ip);
    for (int64_t t = 0; t < steps; ++t) {
      for (int64_t v = 0; v < rows; ++v) {
        const int64_t to = (forward->first(t) + (first + v) * forward->apart(t)) * hidden;
        const R* from = back + (t * rows + v) * one.ip;
        std::copy_n(from, hidden, y1 + to);  // each block reads and writes its own rows only
        std::copy_n(from + hidden, hidden, y2 + to);
      }
    }
    return loss;
  }

  // Column k of the skip part of a vertex: its first features, then the last feature of later steps.
  R skip(int64_t vertex, int64_t k) const {
    if (k < features) return raw[vertex * raw_row + k];
    return raw[(k - features + 1) * raw_step + vertex * raw_row + features - 1];
  }

  double score(int64_t first, int64_t rows, int64_t hp, const R* head, const R* h1, const R* h2,
               R* dh1, R* dh2, R* of_head) const {
    const R factor = R(2.0 / double(vertices));
    R* of_skip = of_head + 2 * hp;
    const R* skip_weights = head + 2 * hp;
    double loss = 0;
    for (int64_t v = 0; v < rows; ++v) {
      const int64_t n = first + v;
      R found = dot(h1 + v * hp, head, hp) + dot(h2 + v * hp, head + hp, hp) + head[2 * hp + skips()];
      for (int64_t k = 0; k < skips(); ++k) found += skip(n, k) * skip_weights[k];
      const R gap = found - target[n];
      loss += double(gap) * double(gap);
      const R d = factor * gap;
      add_scaled(d, h1 + v * hp, hp, of_head);
      add_scaled(d, h2 + v * hp, hp, of_head + hp);
      for (int64_t k = 0; k < skips(); ++k) of_skip[k] += d * skip(n, k);
      of_skip[skips()] += d;
      for (int64_t j = 0; j < hp; ++j) {
        dh1[v * hp + j] = d * head[j];
        dh2[v * hp + j] = d * head[hp + j];
      }
      if (output) {
        R* out = output + n * width();
        std::copy_n(h1 + v * hp, hidden, out);
        std::copy_n(h2 + v * hp, hidden, out + hidden);
        for (int64_t k = 0; k < skips(); ++k) out[2 * hidden + k] = skip(n, k);
      }
    }
    return loss;
  }

  double run(const Flat<R>& flat, int64_t threads) const {
    static thread_local Scratch<R> weights_memory, frames_memory;
    const R* p = flat.parameters;
    R* g = flat.grads;
    Lstm<R> one(2 * hidden, hidden), two(hidden, hidden);
    const int64_t total_size = sums(one, two), frame = steps * vertices * hidden;
    R* memory = weights_memory.get(one.packed() + two.packed() + 2 * one.hp + skips() + 1 +
                                   total_size);
    one.pack(p + lstms(), memory);
    two.pack(p + lstms() + one.size(), memory + one.packed());
    R* packed_head = memory + one.packed() + two.packed();
    scan::copy_in(p + head(), 2, hidden, one.hp, packed_head);
    std::copy_n(p + head() + 2 * hidden, skips() + 1, packed_head + 2 * one.hp);
    R* total = packed_head + 2 * one.hp + skips() + 1;

    R* const hidden_1 = frames_memory.get(5 * frame + 1);
    R* const y1 = hidden_1 + frame;   // and its gradient
    R* const mixed = y1 + frame;      // the same
    R* const hidden_2 = mixed + frame;
    R* const y2 = hidden_2 + frame;   // the same
    std::vector<double> stats(std::size_t(4 * hidden));
    const int64_t rows = steps * vertices;
    const Layer<R> layer_1(1, rows, features, hidden, threads);
    const Layer<R> layer_2(1, rows, hidden, hidden, threads);
    const auto place = [&](int64_t i) {
      const int64_t t = i / vertices;
      return forward->first(t) + (i - t * vertices) * forward->apart(t);
    };
    const R* w1 = p;
    const R* w2 = p + second();
    const R* gain = p + norms();  // then shift, gain, shift
    R* of_norm = g + norms();
    layers::dense_norm_rows(layer_1, x, w1, w1 + features * hidden, gain, gain + hidden, norm_eps,
                            hidden_1, y1, stats.data(), place);
    forward->multiply(y1, mixed, hidden, threads);
    layers::dense_norm_rows(layer_2, mixed, w2, w2 + hidden * hidden, gain + 2 * hidden,
                            gain + 3 * hidden, norm_eps, hidden_2, y2, stats.data() + 2 * hidden,
                            layers::InOrder{});

    const double flops = 6.0 * double(rows) * double(5 * hidden * one.gp);
    const Cut cut(vertices, record(one, two) * int64_t(sizeof(R)), flops, threads);
    std::vector<double> losses(std::size_t(cut.blocks));
    sum_blocks<R>(cut, cut.block * record(one, two), total_size, total,
                  [&](int64_t b, R* scratch, R* part) {
                    losses[std::size_t(b)] = block(cut.first(b), cut.rows(b), one, two, packed_head,
                                                   y1, y2, scratch, part);
                  });
    one.unpack(total, g + lstms());
    two.unpack(total + one.sums(), g + lstms() + one.size());
    const R* of_head = total + one.sums() + two.sums();
    std::copy_n(of_head, hidden, g + head());
    std::copy_n(of_head + one.hp, hidden, g + head() + hidden);
    std::copy_n(of_head + 2 * one.hp, skips() + 1, g + head() + 2 * hidden);

    layers::dense_norm_rows_backward(layer_2, y2, hidden, hidden_2, mixed, w2, gain + 2 * hidden,
                                     stats.data() + 2 * hidden, mixed, g + second(),
                                     g + second() + hidden * hidden, of_norm + 2 * hidden,
                                     of_norm + 3 * hidden, layers::InOrder{});
    R* const through = hidden_2;  // what reaches y1 through the second layer
    backward->multiply(mixed, through, hidden, threads);
#pragma omp parallel for schedule(static) num_threads(layer_1.team) if (layer_1.team > 1)
    for (int64_t i = 0; i < frame; ++i) y1[i] += through[i];
    layers::dense_norm_rows_backward(layer_1, y1, hidden, hidden_1, x, w1, gain, stats.data(),
                                     static_cast<R*>(nullptr), g, g + features * hidden, of_norm,
                                     of_norm + hidden, place);
    flat.update();
    double loss = 0;
    for (const double part : losses) loss += part;
    return loss / double(vertices);
  }
};

template <class R>
double mpnn_lstm_step(Array<R> parameters, Array<R> grads, Maybe<R> moments, Cube<const R> x,
                      Rows<R> raw, const FrameProduct<R>& forward, const FrameProduct<R>& backward,
                      Array<const R> target, int64_t hidden, double norm_eps, Maybe<R> output,
                      int64_t step, double rate, double beta_1, double beta_2, double eps,
                      double decay, int64_t threads) {
  MpnnLstm<R> m{};
  m.steps = int64_t(x.shape(0));
  m.vertices = int64_t(x.shape(1));
  m.features = int64_t(x.shape(2));
  m.hidden = hidden;
  check_sizes(m.steps, m.vertices, m.features, hidden);
  if (m.steps * m.vertices < 2) reject("a norm needs two rows, x has one");
  if (raw.shape(0) != x.shape(0) || raw.shape(1) != x.shape(1) || raw.shape(2) != x.shape(2)) {
    reject("raw must have the shape of x");
  }
  if (m.features > 1 && raw.stride(2) != 1) reject("raw must have adjacent features");
  if (forward.steps() != m.steps || forward.vertices() != m.vertices) {
    reject("forward must be of as many snapshots and vertices as x");
  }
  if (!backward.same_layout(forward)) reject("backward must have the partitions of forward");
  m.x = x.data();
  m.raw = raw.data();
  m.raw_step = raw.stride(0);
  m.raw_row = raw.stride(1);
  m.target = target.data();
  m.norm_eps = norm_eps;
  m.output = output ? output->data() : nullptr;
  m.forward = &forward;
  m.backward = &backward;
  check_size(target, std::size_t(m.vertices), "target");
  check_optional(output, std::size_t(m.vertices * m.width()), "output");
  const Flat<R> flat(parameters, grads, moments, std::size_t(m.size()),
                     {step, rate, beta_1, beta_2, eps, decay});
  nb::gil_scoped_release unlocked;
  return m.run(flat, threads);
}

template <class R>
void bind_real(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };
  const auto maybe = [](const char* name) { return nb::arg(name).noconvert().none(); };
  m.def("mpnn_lstm_step", &mpnn_lstm_step<R>, in("parameters"), in("grads"), maybe("moments"),
        in("x"), in("raw"), nb::arg("forward"), nb::arg("backward"), in("target"),
        nb::arg("hidden"), nb::arg("norm_eps"), maybe("output"), nb::arg("step"), nb::arg("rate"),
        nb::arg("beta_1"), nb::arg("beta_2"), nb::arg("eps"), nb::arg("decay"),
        nb::arg("threads"));
}

}  // namespace
}  // namespace dgbench::steps

namespace dgbench {
void bind_mpnn_lstm_step(nb::module_& m) {
  steps::bind_real<float>(m);
  steps::bind_real<double>(m);
}
}  // namespace dgbench
