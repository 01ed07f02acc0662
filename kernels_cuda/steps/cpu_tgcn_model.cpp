// A whole training step of the T-GCN model (Zhao et al.) with a node head and squared error:
//
//   tgcn_model_step(parameters, grads, moments, x, target, hidden, every, output, step, rate,
//                   beta_1, beta_2, eps, decay, threads) -> loss
//
// One type R, float32 or float64. parameters and grads [P] hold for each gate z, r, h: conv [F, H],
// its bias [H], linear [H, 2 H], its bias [H]; then the head [H] and its bias [1]. moments [2, P] or
// None (no update). x [T, N, F], aggregated, with any stride between steps and vertices. target
// [T, N]; without `every` only its last row counts. output [N, H], the last state, or None.
//
// A block of vertices goes through all steps, its loss and all steps back while its states and gates
// stay in cache: nothing is made twice, and nothing but weight gradients leaves the block.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include "steps/cpu_common.hpp"

namespace dgbench::steps {
namespace {

template <class R>
using Rows = nb::ndarray<const R, nb::ndim<3>, nb::device::cpu>;

template <class R>
struct TgcnModel {
  int64_t steps, vertices, features, hidden;
  int64_t hv, hp, gp;  // a padded row of H in vectors and elements, and of three gates
  const R *x, *target;
  int64_t x_step, x_row;
  bool every;
  R* output;

  // One gate's tensors in the flat parameters.
  int64_t conv(int64_t g) const { return g * per_gate(); }
  int64_t conv_bias(int64_t g) const { return conv(g) + features * hidden; }
  int64_t linear(int64_t g) const { return conv_bias(g) + hidden; }
  int64_t linear_bias(int64_t g) const { return linear(g) + 2 * hidden * hidden; }
  int64_t per_gate() const { return (features + 2 + 2 * hidden) * hidden; }
  int64_t head() const { return 3 * per_gate(); }
  int64_t size() const { return head() + hidden + 1; }

  // The cell as a plain GRU over aggregated features, as GcnGru.folded_weights has it.
  struct Folded {
    R *w_in, *w_hid, *bias, *w_hid_t, *top, *top_t, *head;
    static int64_t size(const TgcnModel& m) {
      return (m.features + m.hidden + 1 + m.hp) * m.gp + 6 * m.hp * m.hp + m.hp;
    }
    Folded(const TgcnModel& m, R* memory)
        : w_in(memory), w_hid(w_in + m.features * m.gp), bias(w_hid + m.hidden * m.gp),
          w_hid_t(bias + m.gp), top(w_hid_t + m.gp * m.hp), top_t(top + 3 * m.hp * m.hp),
          head(top_t + 3 * m.hp * m.hp) {}
  };

  void fold(const R* p, const Folded& w) const {
    std::fill_n(w.w_in, Folded::size(*this), R(0));
    const int64_t h = hidden;
    for (int64_t g = 0; g < 3; ++g) {
      R* top = w.top + g * hp * hp;
      R* top_t = w.top_t + g * hp * hp;
      const R* lin = p + linear(g);
      for (int64_t j = 0; j < h; ++j) {
        for (int64_t i = 0; i < h; ++i) {
          top[i * hp + j] = top_t[j * hp + i] = lin[j * 2 * h + i];
          w.w_hid[i * gp + g * hp + j] = w.w_hid_t[(g * hp + j) * hp + i] = lin[j * 2 * h + h + i];
        }
      }
      std::copy_n(p + linear_bias(g), h, w.bias + g * hp);
      multiply<R>(features, hv, {p + conv(g), h, top, hp, h}, {}, nullptr, 0, w.w_in + g * hp, gp);
      multiply<R>(1, hv, {p + conv_bias(g), h, top, hp, h}, {}, w.bias + g * hp, 0,
                  w.bias + g * hp, gp);
    }
    std::copy_n(p + head(), h, w.head);
  }

  // Gradients of the folded weights: w_in, w_hid, bias, then head and its bias.
  int64_t sums() const { return (features + hidden + 1) * gp + hp + 1; }

  void unfold(const R* p, const Folded& w, const R* sums, R* grads, R* spare) const {
    const int64_t h = hidden;
    const R* in = sums;
    const R* hid = in + features * gp;
    const R* bias = hid + h * gp;
    for (int64_t g = 0; g < 3; ++g) {
      R* lin = grads + linear(g);
      multiply<R, true>(h, hv, {p + conv(g), h, in + g * hp, gp, features},
                        {p + conv_bias(g), h, bias + g * hp, gp, 1}, nullptr, 0, spare, hp);
      for (int64_t j = 0; j < h; ++j) {
        for (int64_t i = 0; i < h; ++i) {
          lin[j * 2 * h + i] = spare[i * hp + j];
          lin[j * 2 * h + h + i] = hid[i * gp + g * hp + j];
        }
      }
      std::copy_n(bias + g * hp, h, grads + linear_bias(g));
      const R* back = w.top_t + g * hp * hp;
      multiply<R>(features, hv, {in + g * hp, gp, back, hp, h}, {}, nullptr, 0, spare, hp);
      scan::copy_out(spare, features, h, hp, grads + conv(g), h);
      multiply<R>(1, hv, {bias + g * hp, gp, back, hp, h}, {}, nullptr, 0, spare, hp);
      scan::copy_out(spare, 1, h, hp, grads + conv_bias(g), h);
    }
    std::copy_n(bias + gp, h, grads + head());
    grads[head() + h] = bias[gp + hp];
  }

  // Of one row: h [T + 1, hp], gates [T, gp], r * h [T, hp], x [T, F], d loss / d prediction [T],
  // dh and drh [hp].
  int64_t record() const { return (steps + 1) * hp + steps * (gp + hp + features + 1) + 2 * hp; }

  double block(int64_t first, int64_t rows, const Folded& w, R* memory, R* sums) const {
    constexpr int64_t lanes = Lanes<R>::count;
    const int64_t all = steps * rows;
    R* const h_all = memory;
    R* const gates_all = h_all + (all + rows) * hp;
    R* const rh_all = gates_all + all * gp;
    R* const dh = rh_all + all * hp;
    R* const drh = dh + rows * hp;
    R* const slope = drh + rows * hp;
    R* const x_all = slope + all;
    for (int64_t t = 0; t < steps; ++t) {
      for (int64_t v = 0; v < rows; ++v) {
        std::copy_n(x + t * x_step + (first + v) * x_row, features,
                    x_all + (t * rows + v) * features);
      }
    }
    std::fill_n(h_all, rows * hp, R(0));
    for (int64_t t = 0; t < steps; ++t) {
      const R* xt = x_all + t * rows * features;
      const R* h = h_all + t * rows * hp;
      R* next = h_all + (t + 1) * rows * hp;
      R* gates = gates_all + t * rows * gp;
      R* rh = rh_all + t * rows * hp;
      const int64_t before = t ? hidden : 0;  // the first state is zero
      multiply<R>(rows, 2 * hv, {xt, features, w.w_in, gp, features}, {h, hp, w.w_hid, gp, before},
                  w.bias, 0, gates, gp);
      for (int64_t v = 0; v < rows; ++v) {
        for (int64_t j = 0; j < hp; j += lanes) {
          const Vec<R> z = scan::sigmoid(load(gates + v * gp + j));
          const Vec<R> r = scan::sigmoid(load(gates + v * gp + hp + j));
          store(gates + v * gp + j, z);
          store(gates + v * gp + hp + j, r);
          store(rh + v * hp + j, r * load(h + v * hp + j));
        }
      }
      multiply<R>(rows, hv, {xt, features, w.w_in + 2 * hp, gp, features},
                  {rh, hp, w.w_hid + 2 * hp, gp, before}, w.bias + 2 * hp, 0, gates + 2 * hp, gp);
      for (int64_t v = 0; v < rows; ++v) {
        for (int64_t j = 0; j < hp; j += lanes) {
          const Vec<R> c = scan::tanh(load(gates + v * gp + 2 * hp + j));
          store(gates + v * gp + 2 * hp + j, c);
          store(next + v * hp + j, c + load(gates + v * gp + j) * (load(h + v * hp + j) - c));
        }
      }
    }
    if (output) {
      scan::copy_out(h_all + all * hp, rows, hidden, hp, output + first * hidden, hidden);
    }
    R* const of_in = sums;
    R* const of_hid = of_in + features * gp;
    R* const of_bias = of_hid + hidden * gp;
    R* const of_head = of_bias + gp;
    // The last number of a row of sums is the head's bias, behind a whole vector.
    const double loss = score(first, rows, w, h_all, slope, of_head);
    std::fill_n(dh, rows * hp, R(0));
    for (int64_t t = steps - 1; t >= 0; --t) {
      const R* h = h_all + t * rows * hp;
      R* gates = gates_all + t * rows * gp;  // becomes its gradient
      const bool scored = every || t == steps - 1;
      for (int64_t v = 0; v < rows; ++v) {
        const R from_loss = scored ? slope[t * rows + v] : R(0);
        for (int64_t j = 0; j < hp; j += lanes) {
          R* g = gates + v * gp + j;
          const Vec<R> z = load(g), c = load(g + 2 * hp);
          const Vec<R> grad = load(dh + v * hp + j) + load(w.head + j) * from_loss;
          store(g + 2 * hp, grad * (R(1) - z) * (R(1) - c * c));
          store(g, grad * (load(h + v * hp + j) - c) * z * (R(1) - z));
          store(dh + v * hp + j, grad * z);
        }
      }
      if (t == 0) {  // nothing comes through r where the state is zero
        for (int64_t v = 0; v < rows; ++v) std::fill_n(gates + v * gp + hp, hp, R(0));
        break;
      }
      multiply<R>(rows, hv, {gates + 2 * hp, gp, w.w_hid_t + 2 * hp * hp, hp, hp}, {}, nullptr, 0,
                  drh, hp);
      for (int64_t v = 0; v < rows; ++v) {
        for (int64_t j = 0; j < hp; j += lanes) {
          R* g = gates + v * gp + hp + j;
          const Vec<R> r = load(g), grad = load(drh + v * hp + j);
          store(g, grad * load(h + v * hp + j) * r * (R(1) - r));
          store(dh + v * hp + j, load(dh + v * hp + j) + grad * r);
        }
      }
      multiply<R>(rows, hv, {gates, gp, w.w_hid_t, hp, 2 * hp}, {}, dh, hp, dh, hp);
    }
    add_products(features, 3 * hv, x_all, features, gates_all, gp, all, of_in, gp);
    const int64_t later = all - std::min(all, rows);  // from the second step on
    add_products(hidden, 2 * hv, h_all + rows * hp, hp, gates_all + rows * gp, gp, later, of_hid,
                 gp);
    add_products(hidden, hv, rh_all + rows * hp, hp, gates_all + rows * gp + 2 * hp, gp, later,
                 of_hid + 2 * hp, gp);
    for (int64_t i = 0; i < all; i += kLongestSum) {
      scan::add_column_sums(gates_all + i * gp, std::min(kLongestSum, all - i), gp, of_bias);
    }
    return loss;
  }

  // Summed squared error of a block, its slopes, and the head's gradient.
  double score(int64_t first, int64_t rows, const Folded& w, const R* h_all, R* slope,
               R* of_head) const {
    const double scored = double(vertices) * double(every ? steps : 1);
    const R factor = R(2.0 / scored);
    double loss = 0;
    for (int64_t t = every ? 0 : steps - 1; t < steps; ++t) {
      R bias = 0;
      for (int64_t v = 0; v < rows; ++v) {
        const R* h = h_all + ((t + 1) * rows + v) * hp;
        const R gap = dot(h, w.head, hp) + w.head[hp] - target[t * vertices + first + v];
        loss += double(gap) * double(gap);
        const R d = factor * gap;
        slope[t * rows + v] = d;
        add_scaled(d, h, hp, of_head);
        bias += d;
      }
      of_head[hp] += bias;
    }
    return loss;
  }

  double run(const Flat<R>& flat, int64_t threads) const {
    static thread_local Scratch<R> kept;
    // One more for the head's bias, behind the padded head.
    const int64_t weights = Folded::size(*this) + Lanes<R>::count;
    R* memory = kept.get(weights + sums() + std::max(hp, features) * hp + 1);
    const Folded w(*this, memory);
    fold(flat.parameters, w);
    w.head[hp] = flat.parameters[head() + hidden];
    const double flops = 6.0 * double(steps * vertices) * double((features + hidden) * gp);
    const Cut cut(vertices, record() * int64_t(sizeof(R)), flops, threads);
    R* total = memory + weights;
    std::vector<double> losses(std::size_t(cut.blocks));
    sum_blocks<R>(cut, cut.block * record(), sums(), total, [&](int64_t b, R* scratch, R* part) {
      losses[std::size_t(b)] = block(cut.first(b), cut.rows(b), w, scratch, part);
    });
    unfold(flat.parameters, w, total, flat.grads, total + sums());
    flat.update();
    double loss = 0;
    for (const double one : losses) loss += one;
    return loss / (double(vertices) * double(every ? steps : 1));
  }
};

template <class R>
double tgcn_model_step(Array<R> parameters, Array<R> grads, Maybe<R> moments, Rows<R> x,
                       Matrix<const R> target, int64_t hidden, bool every, Maybe<R> output,
                       int64_t step, double rate, double beta_1, double beta_2, double eps,
                       double decay, int64_t threads) {
  TgcnModel<R> m{};
  m.steps = int64_t(x.shape(0));
  m.vertices = int64_t(x.shape(1));
  m.features = int64_t(x.shape(2));
  m.hidden = hidden;
  check_sizes(m.steps, m.vertices, m.features, hidden);
  if (m.features > 1 && x.stride(2) != 1) reject("x must have adjacent features");
  m.hp = padded<R>(hidden);
  m.hv = m.hp / Lanes<R>::count;
  m.gp = 3 * m.hp;
  m.x = x.data();
  m.x_step = x.stride(0);
  m.x_row = x.stride(1);
  m.target = target.data();
  m.every = every;
  m.output = output ? output->data() : nullptr;
  check_size(target, std::size_t(m.steps * m.vertices), "target");
  check_optional(output, std::size_t(m.vertices * hidden), "output");
  const Flat<R> flat(parameters, grads, moments, std::size_t(m.size()),
                     {step, rate, beta_1, beta_2, eps, decay});
  nb::gil_scoped_release unlocked;
  return m.run(flat, threads);
}

template <class R>
void bind_real(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };
  const auto maybe = [](const char* name) { return nb::arg(name).noconvert().none(); };
  m.def("tgcn_model_step", &tgcn_model_step<R>, in("parameters"), in("grads"), maybe("moments"),
        in("x"), in("target"), nb::arg("hidden"), nb::arg("every"), maybe("output"),
        nb::arg("step"), nb::arg("rate"), nb::arg("beta_1"), nb::arg("beta_2"), nb::arg("eps"),
        nb::arg("decay"), nb::arg("threads"));
}

}  // namespace

}  // namespace dgbench::steps

namespace dgbench {
void bind_tgcn_model_step(nb::module_& m) {
  steps::bind_real<float>(m);
  steps::bind_real<double>(m);
}
}  // namespace dgbench
