// A whole training step of EvolveGCN-O with GRU cells, a node head and squared error:
//
//   evolvegcn_step(parameters, grads, moments, x, forward, backward, target, hidden, every, output,
//                  step, rate, beta_1, beta_2, eps, decay, threads) -> loss
//
// parameters and grads [P] hold for both layers: initial [F, H] or [H, H], weight_ih and weight_hh
// [3 H, H], bias_ih and bias_hh [3 H] (torch.nn.GRUCell); then the head [H] and its bias [1]. moments
// [2, P] or None. x [T, N, F] is aggregated, with any stride between steps and vertices; forward and
// backward are the frame's products with A-hat and its transpose. target [T, N]; without `every` only
// its last row counts. output [N, H] of the last snapshot, or None.
//
// The second layer and the head are linear, so with w the head and v_t = W2_t w a prediction is
// A-hat_t relu(a_t W1_t) v_t: one number a vertex is aggregated instead of H, forward and back.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include "scan/cpu_evolve.hpp"
#include "steps/cpu_common.hpp"
#include "steps/cpu_frame_product.hpp"

namespace dgbench::steps {
namespace {

using scan::Evolution;

template <class R>
using Rows = nb::ndarray<const R, nb::ndim<3>, nb::device::cpu>;

constexpr int64_t kUnitRows = 8;   // rows of a weight that evolve by themselves
constexpr int64_t kPieces = 64;    // of all rows of a frame, at most

template <class R>
R relu(R x) {
  return x < R(0) ? R(0) : x;  // NaN stays
}

// Rows of a layer's weight and all that is kept of their evolution.
template <class R>
struct Unit {
  int layer;
  int64_t first, rows;
  R *states, *gates, *carry, *sums;  // [T + 1, rows, hp], [T, rows, 4 hp], [rows, hp], [H + 1, 4 hp]
  R* head;                           // [hp], of layer 2
};

template <class R>
struct EvolveGcn {
  int64_t steps, vertices, features, hidden;
  int64_t hv, hp;
  const R *x, *target;
  int64_t x_step, x_row;
  bool every;
  R* output;
  const FrameProduct<R>*forward, *backward;

  int64_t inputs(int layer) const { return layer ? hidden : features; }
  int64_t initial(int layer) const { return layer ? cell(0) + cell_size() : 0; }
  int64_t cell(int layer) const { return initial(layer) + inputs(layer) * hidden; }
  int64_t cell_size() const { return 6 * hidden * (hidden + 1); }
  int64_t head() const { return cell(1) + cell_size(); }
  int64_t size() const { return head() + hidden + 1; }

  Evolution<R> evolution(int layer, int64_t first, int64_t rows, const R* p) const {
    const R* w_ih = p + cell(layer);
    const R* w_hh = w_ih + 3 * hidden * hidden;
    const R* b_ih = w_hh + 3 * hidden * hidden;
    return {steps, rows, hidden, p + initial(layer) + first * hidden, w_ih, w_hh, b_ih,
            b_ih + 3 * hidden};
  }

  // Scratch of a step: [T, F, hp] first-layer weights and their gradients, [T, hp] folded second
  // layers and theirs, and one number for each vertex of each snapshot, aggregated and not.
  struct Memory {
    R *w1, *dw1, *v, *dv, *head, *plain, *mixed, *packed[2], *back[2], *pieces;
  };

  void evolve(const Unit<R>& u, const R* p, const Memory& m) const {
    const Evolution<R> e = evolution(u.layer, u.first, u.rows, p);
    scan::copy_in(e.initial, u.rows, hidden, hp, u.states);
    for (int64_t t = 0; t < steps; ++t) {
      const R* before = u.states + t * u.rows * hp;
      R* after = u.states + (t + 1) * u.rows * hp;
      R* gates = u.gates + t * u.rows * e.gates;
      e.gates_of(before, m.packed[u.layer], gates);
      e.advance(gates, before, after);
      if (u.layer == 0) {
        std::copy_n(after, u.rows * hp, m.w1 + (t * features + u.first) * hp);
      } else {
        for (int64_t i = 0; i < u.rows; ++i) {
          m.v[t * hp + u.first + i] = dot(after + i * hp, m.head, hp);
        }
      }
    }
  }

  void evolve_back(const Unit<R>& u, const R* p, const Memory& m, R* grads) const {
    const Evolution<R> e = evolution(u.layer, u.first, u.rows, p);
    std::fill_n(u.carry, u.rows * hp, R(0));
    std::fill_n(u.sums, e.packed_size(), R(0));
    std::fill_n(u.head, hp, R(0));
    for (int64_t t = steps - 1; t >= 0; --t) {
      const R* before = u.states + t * u.rows * hp;
      const R* after = u.states + (t + 1) * u.rows * hp;
      R* gates = u.gates + t * u.rows * e.gates;  // become their gradients
      for (int64_t i = 0; i < u.rows; ++i) {
        if (u.layer == 0) {
          add_scaled(R(1), m.dw1 + (t * features + u.first + i) * hp, hp, u.carry + i * hp);
        } else {
          const R d = m.dv[t * hp + u.first + i];
          add_scaled(d, m.head, hp, u.carry + i * hp);
          add_scaled(d, after + i * hp, hp, u.head);
        }
      }
      e.slopes(gates, before, u.carry, gates);
      multiply<R>(u.rows, hv, {gates, e.gates, m.back[u.layer], hp, e.gates}, {}, u.carry, hp,
                  u.carry, hp);
    }
    const int64_t all = steps * u.rows;
    add_products(hidden, 4 * hv, u.states, hp, u.gates, e.gates, all, u.sums, e.gates);
    scan::add_column_sums(u.gates, all, e.gates, u.sums + hidden * e.gates);
    scan::copy_out(u.carry, u.rows, hidden, hp, grads + initial(u.layer) + u.first * hidden,
                   hidden);
  }

  // Rows of all snapshots in pieces, the same for any number of threads.
  int64_t pieces_a_step() const {
    return std::clamp<int64_t>(vertices / 256, 1, std::max<int64_t>(1, kPieces / steps));
  }
  int64_t piece_size() const { return (features + 1) * hp; }

  // Calls body(t, first, rows, hidden rows of the first layer) block by block of a piece.
  template <class Body>
  void each_block(int64_t piece, const Memory& m, R* rows_memory, Body&& body) const {
    const int64_t pieces = pieces_a_step(), t = piece / pieces, c = piece % pieces;
    const int64_t end = (c + 1) * vertices / pieces;
    for (int64_t n = c * vertices / pieces; n < end; n += kMaxBlock) {
      const int64_t rows = std::min(kMaxBlock, end - n);
      multiply<R>(rows, hv,
                  {x + t * x_step + n * x_row, x_row, m.w1 + t * features * hp, hp, features}, {},
                  nullptr, 0, rows_memory, hp);
      body(t, n, rows, rows_memory);
    }
  }

  template <class Body>
  void each_piece(int team, Body&& body) const {
    std::atomic<bool> failed{false};
#pragma omp parallel num_threads(team) if (team > 1)
    {
      static thread_local Scratch<R> own;
      R* memory = own.try_get(2 * kMaxBlock * hp);
      if (!memory) failed = true;
#pragma omp for schedule(static)
      for (int64_t piece = 0; piece < steps * pieces_a_step(); ++piece) {
        if (memory) body(piece, memory);
      }
    }
    if (failed) throw std::bad_alloc();
  }

  // One number a vertex: relu(a_t W1_t) v_t.
  void project(int64_t piece, const Memory& m, R* memory) const {
    each_block(piece, m, memory, [&](int64_t t, int64_t n, int64_t rows, R* h) {
      R* out = m.plain + forward->first(t) + n * forward->apart(t);
      for (int64_t i = 0; i < rows; ++i) {
        R* row = h + i * hp;
        for (int64_t j = 0; j < hp; ++j) row[j] = relu(row[j]);
        out[i * forward->apart(t)] = dot(row, m.v + t * hp, hp);
      }
    });
  }

  void project_back(int64_t piece, const Memory& m, R* memory) const {
    R* of_w1 = m.pieces + piece * piece_size();
    R* of_v = of_w1 + features * hp;
    R* slope = memory + kMaxBlock * hp;
    std::fill_n(of_w1, piece_size(), R(0));
    each_block(piece, m, memory, [&](int64_t t, int64_t n, int64_t rows, const R* h) {
      const R* in = m.plain + forward->first(t) + n * forward->apart(t);
      const R* v = m.v + t * hp;
      for (int64_t i = 0; i < rows; ++i) {
        const R q = in[i * forward->apart(t)];
        for (int64_t j = 0; j < hp; j += Lanes<R>::count) {
          const Vec<R> row = load(h + i * hp + j);
          const Vec<R> on = row < Vec<R>{} ? Vec<R>{} : row;
          store(of_v + j, load(of_v + j) + on * q);
          store(slope + i * hp + j, row > Vec<R>{} ? load(v + j) * q : Vec<R>{});
        }
      }
      multiply<R, true>(features, hv, {x + t * x_step + n * x_row, x_row, slope, hp, rows}, {},
                        of_w1, hp, of_w1, hp);
    });
  }

  // Squared errors of snapshot t; what is aggregated becomes its gradient.
  double score(int64_t t, R bias, R* mixed, R* of_bias) const {
    const bool scored = every || t == steps - 1;
    const R factor = R(2.0 / (double(vertices) * double(every ? steps : 1)));
    R* at = mixed + forward->first(t);
    const int64_t apart = forward->apart(t);
    double loss = 0, slopes = 0;
    for (int64_t n = 0; n < vertices; ++n) {
      const R gap = scored ? at[n * apart] + bias - target[t * vertices + n] : R(0);
      loss += double(gap) * double(gap);
      at[n * apart] = factor * gap;
      slopes += double(factor * gap);
    }
    *of_bias = R(slopes);
    return loss;
  }

  // The hidden output of the last snapshot, which the loss does not need.
  void write_output(const std::vector<Unit<R>>& units, const Memory& m, int64_t threads) const {
    const int64_t frame = steps * vertices * hidden;
    std::vector<R> rows(std::size_t(2 * frame)), w2(std::size_t(hidden * hp));
    std::vector<R> block(std::size_t(kMaxBlock * hp));
    R* mixed = rows.data() + frame;
    for (const Unit<R>& u : units) {
      if (u.layer == 1) {
        std::copy_n(u.states + steps * u.rows * hp, u.rows * hp, w2.data() + u.first * hp);
      }
    }
    for (int64_t piece = 0; piece < steps * pieces_a_step(); ++piece) {
      each_block(piece, m, block.data(), [&](int64_t t, int64_t n, int64_t count, const R* h) {
        for (int64_t i = 0; i < count; ++i) {
          R* out = rows.data() + (forward->first(t) + (n + i) * forward->apart(t)) * hidden;
          for (int64_t j = 0; j < hidden; ++j) out[j] = relu(h[i * hp + j]);
        }
      });
    }
    forward->multiply(rows.data(), mixed, hidden, threads);
    const R* last = mixed + forward->first(steps - 1) * hidden;
    for (int64_t n = 0; n < vertices; ++n) {
      multiply<R>(1, hv, {last + n * forward->apart(steps - 1) * hidden, hidden, w2.data(), hp,
                          hidden}, {}, nullptr, 0, block.data(), hp);
      std::copy_n(block.data(), hidden, output + n * hidden);
    }
  }

  double run(const Flat<R>& flat, int64_t threads) const {
    static thread_local Scratch<R> kept;
    const R* p = flat.parameters;
    const int64_t gates = 4 * hp, packed = (hidden + 1) * gates, frame = steps * vertices;
    std::vector<Unit<R>> units;
    int64_t records = 0;
    const auto of_unit = [&](int64_t rows) {
      return ((steps + 2) * hp + steps * gates) * rows + packed + hp;
    };
    for (int layer = 1; layer >= 0; --layer) {
      for (int64_t i = 0; i < inputs(layer); i += kUnitRows) {
        units.push_back({layer, i, std::min(kUnitRows, inputs(layer) - i), nullptr, nullptr,
                         nullptr, nullptr, nullptr});
        records += of_unit(units.back().rows);
      }
    }
    const int64_t pieces = steps * pieces_a_step();
    R* at = kept.get(records + 2 * steps * (features + 1) * hp + hp + 2 * frame +
                     2 * (packed + gates * hp) + pieces * piece_size() + 1);
    const auto take = [&](int64_t count) {
      R* here = at;
      at += count;
      return here;
    };
    Memory m;
    for (Unit<R>& u : units) {
      u.states = take((steps + 1) * u.rows * hp);
      u.gates = take(steps * u.rows * gates);
      u.carry = take(u.rows * hp);
      u.sums = take(packed);
      u.head = take(hp);
    }
    for (int layer = 0; layer < 2; ++layer) {
      m.packed[layer] = take(packed);
      m.back[layer] = take(gates * hp);
      const Evolution<R> e = evolution(layer, 0, inputs(layer), p);
      e.pack(m.packed[layer]);
      e.transpose(m.packed[layer], m.back[layer]);
    }
    m.w1 = take(steps * features * hp);
    m.dw1 = take(steps * features * hp);
    m.v = take(steps * hp);
    m.dv = take(steps * hp);
    m.head = take(hp);
    m.plain = take(frame);
    m.mixed = take(frame);
    m.pieces = take(pieces * piece_size());
    scan::copy_in(p + head(), 1, hidden, hp, m.head);
    std::fill_n(m.v, steps * hp, R(0));

    const auto team_for = [&](double flops, int64_t most) {
      const auto useful = int64_t(std::min(flops / kFlopsPerThread, 4096.0));
      return int(std::clamp<int64_t>(std::min(threads, most), 1, std::max<int64_t>(1, useful)));
    };
    const auto count = int64_t(units.size());
    const double evolving = 2.0 * double(steps * (features + hidden)) * double(hidden * gates);
    const int evolvers = team_for(3 * evolving, count);
    const int projectors = team_for(4.0 * double(frame) * double((features + 8) * hp), pieces);

#pragma omp parallel for schedule(dynamic, 1) num_threads(evolvers) if (evolvers > 1)
    for (int64_t i = 0; i < count; ++i) evolve(units[std::size_t(i)], p, m);
    if (output) write_output(units, m, threads);
    each_piece(projectors, [&](int64_t piece, R* memory) { project(piece, m, memory); });
    forward->multiply(m.plain, m.mixed, 1, threads);
    std::vector<double> losses(std::size_t(steps), 0.0);
    std::vector<R> of_bias(std::size_t(steps), R(0));
    const R bias = p[head() + hidden];
#pragma omp parallel for schedule(static) num_threads(projectors) if (projectors > 1)
    for (int64_t t = 0; t < steps; ++t) {
      losses[std::size_t(t)] = score(t, bias, m.mixed, &of_bias[std::size_t(t)]);
    }
    backward->multiply(m.mixed, m.plain, 1, threads);
    each_piece(projectors, [&](int64_t piece, R* memory) { project_back(piece, m, memory); });
    join_pieces(m);
#pragma omp parallel for schedule(dynamic, 1) num_threads(evolvers) if (evolvers > 1)
    for (int64_t i = 0; i < count; ++i) evolve_back(units[std::size_t(i)], p, m, flat.grads);
    join_units(units, packed, p, flat.grads);
    double loss = 0, slopes = 0;
    for (int64_t t = 0; t < steps; ++t) {
      loss += losses[std::size_t(t)];
      slopes += double(of_bias[std::size_t(t)]);
    }
    flat.grads[head() + hidden] = R(slopes);
    flat.update();
    return loss / (double(vertices) * double(every ? steps : 1));
  }

  void join_pieces(const Memory& m) const {
    const int64_t pieces = pieces_a_step();
    for (int64_t t = 0; t < steps; ++t) {
      const R* from = m.pieces + t * pieces * piece_size();
      for (int64_t i = 0; i < piece_size(); ++i) {
        R sum = 0;
        for (int64_t c = 0; c < pieces; ++c) sum += from[c * piece_size() + i];
        (i < features * hp ? m.dw1[t * features * hp + i] : m.dv[t * hp + i - features * hp]) = sum;
      }
    }
  }

  void join_units(const std::vector<Unit<R>>& units, int64_t packed, const R* p,
                  R* grads) const {
    const Unit<R>* total[2] = {nullptr, nullptr};
    for (const Unit<R>& u : units) {
      const Unit<R>*& first = total[u.layer];
      if (!first) {
        first = &u;
        continue;
      }
      for (int64_t i = 0; i < packed; ++i) first->sums[i] += u.sums[i];
      for (int64_t j = 0; j < hp; ++j) first->head[j] += u.head[j];
    }
    for (int layer = 0; layer < 2; ++layer) {
      R* in = grads + cell(layer);
      R* hid = in + 3 * hidden * hidden;
      R* in_bias = hid + 3 * hidden * hidden;
      evolution(layer, 0, inputs(layer), p)
          .unpack(total[layer]->sums, in, hid, in_bias, in_bias + 3 * hidden);
    }
    std::copy_n(total[1]->head, hidden, grads + head());
  }
};

template <class R>
double evolvegcn_step(Array<R> parameters, Array<R> grads, Maybe<R> moments, Rows<R> x,
                      const FrameProduct<R>& forward, const FrameProduct<R>& backward,
                      Matrix<const R> target, int64_t hidden, bool every, Maybe<R> output,
                      int64_t step, double rate, double beta_1, double beta_2, double eps,
                      double decay, int64_t threads) {
  EvolveGcn<R> m{};
  m.steps = int64_t(x.shape(0));
  m.vertices = int64_t(x.shape(1));
  m.features = int64_t(x.shape(2));
  m.hidden = hidden;
  check_sizes(m.steps, m.vertices, m.features, hidden);
  if (m.features > 1 && x.stride(2) != 1) reject("x must have adjacent features");
  if (forward.steps() != m.steps || forward.vertices() != m.vertices) {
    reject("forward must be of as many snapshots and vertices as x");
  }
  if (!backward.same_layout(forward)) reject("backward must have the partitions of forward");
  m.hp = padded<R>(hidden);
  m.hv = m.hp / Lanes<R>::count;
  m.x = x.data();
  m.x_step = x.stride(0);
  m.x_row = x.stride(1);
  m.target = target.data();
  m.every = every;
  m.output = output ? output->data() : nullptr;
  m.forward = &forward;
  m.backward = &backward;
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
  m.def("evolvegcn_step", &evolvegcn_step<R>, in("parameters"), in("grads"), maybe("moments"),
        in("x"), nb::arg("forward"), nb::arg("backward"), in("target"), nb::arg("hidden"),
        nb::arg("every"), maybe("output"), nb::arg("step"), nb::arg("rate"), nb::arg("beta_1"),
        nb::arg("beta_2"), nb::arg("eps"), nb::arg("decay"), nb::arg("threads"));
}

}  // namespace
}  // namespace dgbench::steps

namespace dgbench {
void bind_evolvegcn_step(nb::module_& m) {
  steps::bind_real<float>(m);
  steps::bind_real<double>(m);
}
}  // namespace dgbench
