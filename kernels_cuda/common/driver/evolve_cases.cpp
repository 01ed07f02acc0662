// Evolution of weights: forward against a GRU cell in float64, backward against its differences.
#include "common/driver/driver.hpp"
#include "scan/cuda_launchers.h"

namespace dgbench::driver {
namespace {

struct Evolution {
  int64_t steps, rows;
  int width;
};

// The arguments in the order of `EvolveArgs`, so that one element of any can be moved.
using Given = std::vector<std::vector<double>>;

// Weights of all steps, [T, M, O].
std::vector<double> evolved(const Evolution& s, const Given& given) {
  const int O = s.width;
  std::vector<double> now = given[0], all;
  for (int64_t t = 0; t < s.steps; ++t) {
    for (int64_t v = 0; v < s.rows; ++v) {
      const std::vector<double> w(now.begin() + v * O, now.begin() + (v + 1) * O);
      const auto side = [&](int weight, int row) {
        double sum = given[weight + 2][row];
        for (int k = 0; k < O; ++k) sum += w[k] * given[weight][row * O + k];
        return sum;
      };
      for (int j = 0; j < O; ++j) {
        const double r = sigmoid(side(1, j) + side(2, j));
        const double z = sigmoid(side(1, O + j) + side(2, O + j));
        const double n = std::tanh(side(1, 2 * O + j) + r * side(2, 2 * O + j));
        now[v * O + j] = (1 - z) * n + z * w[j];
      }
    }
    all.insert(all.end(), now.begin(), now.end());
  }
  return all;
}

void run_evolution(const Evolution& s) {
  Random random(static_cast<uint64_t>(s.steps * 100 + s.rows * 10 + s.width));
  const std::string name = named("steps, rows, width", {s.steps, s.rows, s.width});
  const int64_t state = s.rows * s.width, square = int64_t{3} * s.width * s.width;
  const double scale = 1.0 / std::sqrt(s.width);
  const auto draw = [&](int64_t n, double factor) {
    std::vector<double> values;  // of float32, so that both sides begin with the same numbers
    for (const float value : random.reals(n)) values.push_back(static_cast<float>(factor * value));
    return values;
  };
  const auto put = [](const std::vector<double>& values) {
    return DeviceArray<float>(std::vector<float>(values.begin(), values.end()));
  };
  Given given = {draw(state, 1.0), draw(square, scale), draw(square, scale),
                 draw(3 * s.width, 1.0), draw(3 * s.width, 1.0)};
  const std::vector<double> up = draw(s.steps * state, 1.0);
  const DeviceArray<float> initial = put(given[0]), w_ih = put(given[1]), w_hh = put(given[2]),
                           b_ih = put(given[3]), b_hh = put(given[4]), grad = put(up);
  const DeviceArray<float> weights(up.size());
  const auto size = [&](bool backward) {
    return static_cast<std::size_t>(
        dgb_evolve_workspace_size(s.steps, s.rows, s.width, backward));
  };
  const DeviceArray<float> small(size(false)), large(size(true));
  EvolveArgs a{};
  a.steps = s.steps;
  a.rows = s.rows;
  a.width = s.width;
  a.initial = initial.data();
  a.w_ih = w_ih.data();
  a.w_hh = w_hh.data();
  a.b_ih = b_ih.data();
  a.b_hh = b_hh.data();
  a.weights = weights.data();
  a.workspace = small.data();
  RUN(dgb_evolve_forward(&a, nullptr));
  expect_close(weights.host(), evolved(s, given), "weights, " + name);

  const DeviceArray<float> grad_initial(state), grad_w_ih(square), grad_w_hh(square),
      grad_b_ih(3 * s.width), grad_b_hh(3 * s.width);
  a.grad = grad.data();
  a.grad_initial = grad_initial.data();
  a.grad_w_ih = grad_w_ih.data();
  a.grad_w_hh = grad_w_hh.data();
  a.grad_b_ih = grad_b_ih.data();
  a.grad_b_hh = grad_b_hh.data();
  a.workspace = large.data();
  RUN(dgb_evolve_backward(&a, nullptr));

  // The derivative of what the gradients that come in say, by moving one element both ways.
  const auto loss = [&] {
    const std::vector<double> all = evolved(s, given);
    double sum = 0.0;
    for (std::size_t i = 0; i < up.size(); ++i) sum += up[i] * all[i];
    return sum;
  };
  const DeviceArray<float>* const found[] = {&grad_initial, &grad_w_ih, &grad_w_hh, &grad_b_ih,
                                             &grad_b_hh};
  const char* const names[] = {"grad_initial", "grad_w_ih", "grad_w_hh", "grad_b_ih", "grad_b_hh"};
  for (int which = 0; which < 5; ++which) {
    std::vector<double>& values = given[which];
    const std::vector<float> host = found[which]->host();
    bool finite = true;
    for (const float value : host) finite = finite && std::isfinite(value);
    expect(finite, std::string(names[which]) + " is not finite, " + name);
    for (int k = 0; k < 4 && !values.empty(); ++k) {
      const int64_t i = k == 0 ? 0 : random.below(static_cast<int64_t>(values.size()));
      constexpr double kMove = 1e-5;
      const double kept = values[i];
      values[i] = kept + kMove;
      const double above = loss();
      values[i] = kept - kMove;
      const double below = loss();
      values[i] = kept;
      expect_close<float>({host[i]}, {(above - below) / (2 * kMove)},
                          std::string(names[which]) + " at " + std::to_string(i) + ", " + name,
                          1e-3);
    }
  }
}

DRIVER_CASE(evolve_gru) {
  run_evolution({1, 1, 1});
  run_evolution({3, 5, 3});
  run_evolution({16, 16, 32});
  run_evolution({2, 3, 70});  // more columns of gates than threads
  run_evolution({1, 2, 160});  // gates beyond shared memory
  run_evolution({2, 1100, 2});  // several rows a block on a device of 132 multiprocessors
  run_evolution({0, 4, 3});
  run_evolution({2, 0, 3});
}

}  // namespace
}  // namespace dgbench::driver
