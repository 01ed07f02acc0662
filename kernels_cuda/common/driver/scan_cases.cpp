// GRU and LSTM over time: forward against a loop in float64, backward against its differences.
#include <functional>

#include "common/driver/driver.hpp"
#include "scan/cuda_launchers.h"

namespace dgbench::driver {
namespace {

struct Shape {
  int64_t steps, vertices;
  int features, hidden, gates;
  bool packed;
  int32_t products = kPlainProducts;
};

// Inputs in one array each, so that one element of any can be moved.
struct Inputs {
  std::vector<double> x, w_in, w_hid, bias, h0, c0, h_starts, c_starts;
  std::vector<int32_t> begins;
};

struct Outputs {
  std::vector<double> h_all, h_last, c_last, c_all;
};

Outputs forward(const Shape& s, const Inputs& in) {
  const int H = s.hidden, F = s.features, GH = s.gates * H;
  std::vector<double> h = in.h0, c = in.c0;
  Outputs out;
  for (int64_t t = 0; t < s.steps; ++t) {
    for (int64_t v = 0; v < s.vertices; ++v) {
      double* const own = h.data() + v * H;
      double* const cell = c.data() + v * H;
      const int32_t from = s.packed ? in.begins[t * s.vertices + v] : -1;
      for (int j = 0; from != -1 && j < H; ++j) {
        own[j] = from < 0 ? 0.0 : in.h_starts[from * H + j];
        cell[j] = from < 0 ? 0.0 : in.c_starts[from * H + j];
      }
      const double* const x = in.x.data() + (t * s.vertices + v) * F;
      const auto gate = [&](int m, const std::vector<double>& state) {
        double sum = in.bias[m];
        for (int k = 0; k < F; ++k) sum += x[k] * in.w_in[k * GH + m];
        for (int k = 0; k < H; ++k) sum += state[k] * in.w_hid[k * GH + m];
        return sum;
      };
      const std::vector<double> old(own, own + H);
      if (s.gates == 3) {
        std::vector<double> reset(H);
        for (int j = 0; j < H; ++j) reset[j] = sigmoid(gate(H + j, old)) * old[j];
        for (int j = 0; j < H; ++j) {
          const double update = sigmoid(gate(j, old));
          own[j] = update * old[j] + (1 - update) * std::tanh(gate(2 * H + j, reset));
        }
      } else {
        for (int j = 0; j < H; ++j) {
          cell[j] = sigmoid(gate(H + j, old)) * cell[j] +
                    sigmoid(gate(j, old)) * std::tanh(gate(2 * H + j, old));
          own[j] = sigmoid(gate(3 * H + j, old)) * std::tanh(cell[j]);
        }
      }
    }
    out.h_all.insert(out.h_all.end(), h.begin(), h.end());
    out.c_all.insert(out.c_all.end(), c.begin(), c.end());
  }
  out.h_last = h;
  out.c_last = c;
  return out;
}

std::vector<float> narrow(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

void run_scan(const Shape& s) {
  Random random(static_cast<uint64_t>(s.vertices * 100 + s.hidden * 10 + s.gates));
  const std::string name = named(s.packed ? "packed, steps, vertices, F, H, gates, products"
                                          : "steps, vertices, F, H, gates, products",
                                 {s.steps, s.vertices, s.features, s.hidden, s.gates, s.products});
  const auto draw = [&](int64_t n, double scale) {
    // Of float32, so that both sides begin with the same numbers.
    std::vector<double> values;
    for (const float value : random.reals(n)) {
      values.push_back(static_cast<float>(scale * value));
    }
    return values;
  };
  const int64_t state = s.vertices * s.hidden, width = int64_t{s.gates} * s.hidden;
  const double scale = 1.0 / std::sqrt(s.hidden);
  constexpr int64_t kStarts = 2;
  Inputs in;
  in.x = draw(s.steps * s.vertices * s.features, 1.0);
  in.w_in = draw(s.features * width, scale);
  in.w_hid = draw(s.hidden * width, scale);
  in.bias = draw(width, 1.0);
  in.h0 = draw(state, 1.0);
  in.c0 = draw(state, 1.0);
  in.h_starts = draw(kStarts * s.hidden, 1.0);
  in.c_starts = draw(kStarts * s.hidden, 1.0);
  in.begins.assign(s.steps * s.vertices, -1);
  if (s.packed && s.steps > 1 && s.vertices > 2) {  // each start is used once
    in.begins[s.vertices] = 1;
    in.begins[1] = 0;
    in.begins[s.vertices + 2] = -2;
  }

  const DeviceArray<float> x(narrow(in.x)), w_in(narrow(in.w_in)), w_hid(narrow(in.w_hid)),
      bias(narrow(in.bias)), h0(narrow(in.h0)), c0(narrow(in.c0)), h_starts(narrow(in.h_starts)),
      c_starts(narrow(in.c_starts));
  const DeviceArray<int32_t> begins(in.begins);
  const DeviceArray<float> h_all(s.steps * state), c_all(s.steps * state), h_last(state),
      c_last(state);
  const DeviceArray<float> record(static_cast<std::size_t>(
      dgb_scan_record_size(s.steps, s.vertices, s.features, s.hidden, s.gates)));
  const bool lstm = s.gates == 4;
  ScanArgs a{};
  a.steps = s.steps;
  a.vertices = s.vertices;
  a.features = s.features;
  a.hidden = s.hidden;
  a.gates = s.gates;
  a.x = x.data();
  a.x_step = s.vertices * s.features;
  a.x_row = s.features;
  a.w_in = w_in.data();
  a.w_hid = w_hid.data();
  a.bias = bias.data();
  a.h0 = h0.data();
  a.c0 = lstm ? c0.data() : nullptr;
  a.h_all = h_all.data();
  a.h_last = h_last.data();
  a.c_last = lstm ? c_last.data() : nullptr;
  a.c_all = lstm ? c_all.data() : nullptr;
  a.record = record.data();
  a.products = s.products;
  if (s.packed) {
    a.begins = begins.data();
    a.h_starts = h_starts.data();
    a.c_starts = lstm ? c_starts.data() : nullptr;
  }
  RUN(dgb_scan_forward(&a, nullptr));
  const Outputs right = forward(s, in);
  expect_close(h_all.host(), right.h_all, "h_all, " + name);
  expect_close(h_last.host(), right.h_last, "h_last, " + name);
  if (lstm) {
    expect_close(c_last.host(), right.c_last, "c_last, " + name);
    expect_close(c_all.host(), right.c_all, "c_all, " + name);
  }

  const std::vector<double> up_all = draw(s.steps * state, 1.0), up_last = draw(state, 1.0);
  const DeviceArray<float> grad_all(narrow(up_all)), grad_last(narrow(up_last));
  const DeviceArray<float> grad_x(in.x.size()), grad_w_in(in.w_in.size()),
      grad_w_hid(in.w_hid.size()), grad_bias(in.bias.size()), grad_h0(state), grad_c0(state);
  const DeviceArray<float> grad_h_starts(in.h_starts.size(), 0.0f);
  const DeviceArray<float> grad_c_starts(in.c_starts.size(), 0.0f);
  const DeviceArray<float> workspace(static_cast<std::size_t>(
      dgb_scan_workspace_size(s.steps, s.vertices, s.features, s.hidden, s.gates)));
  ScanGradArgs g{};
  g.in = a;
  g.grad_h_all = grad_all.data();
  g.grad_h_last = grad_last.data();
  g.grad_c_last = lstm ? grad_last.data() : nullptr;
  g.grad_x = grad_x.data();
  g.grad_x_step = a.x_step;
  g.grad_x_row = a.x_row;
  g.grad_w_in = grad_w_in.data();
  g.grad_w_hid = grad_w_hid.data();
  g.grad_bias = grad_bias.data();
  g.grad_h0 = grad_h0.data();
  g.grad_c0 = lstm ? grad_c0.data() : nullptr;
  g.workspace = workspace.data();
  g.grad_c_all = lstm ? grad_all.data() : nullptr;
  if (s.packed) {
    g.grad_h_starts = grad_h_starts.data();
    g.grad_c_starts = lstm ? grad_c_starts.data() : nullptr;
  }
  RUN(dgb_scan_backward(&g, nullptr));

  // The derivative of what the gradients that come in say, by moving one element both ways.
  const auto loss = [&] {
    const Outputs out = forward(s, in);
    double sum = 0.0;
    for (std::size_t i = 0; i < up_all.size(); ++i) {
      sum += up_all[i] * (out.h_all[i] + (lstm ? out.c_all[i] : 0.0));
    }
    for (std::size_t i = 0; i < up_last.size(); ++i) {
      sum += up_last[i] * (out.h_last[i] + (lstm ? out.c_last[i] : 0.0));
    }
    return sum;
  };
  const auto compare = [&](std::vector<double>& values, const DeviceArray<float>& grad,
                           const char* what) {
    const std::vector<float> found = grad.host();
    bool finite = true;
    for (const float value : found) finite = finite && std::isfinite(value);
    expect(finite, std::string(what) + " is not finite, " + name);
    for (int k = 0; k < 3 && !values.empty(); ++k) {
      const int64_t i = k == 0 ? 0 : random.below(static_cast<int64_t>(values.size()));
      constexpr double kMove = 1e-5;
      const double kept = values[i];
      values[i] = kept + kMove;
      const double above = loss();
      values[i] = kept - kMove;
      const double below = loss();
      values[i] = kept;
      expect_close<float>({found[i]}, {(above - below) / (2 * kMove)},
                          std::string(what) + " at " + std::to_string(i) + ", " + name, 1e-3);
    }
  };
  compare(in.x, grad_x, "grad_x");
  compare(in.w_in, grad_w_in, "grad_w_in");
  compare(in.w_hid, grad_w_hid, "grad_w_hid");
  compare(in.bias, grad_bias, "grad_bias");
  compare(in.h0, grad_h0, "grad_h0");
  if (lstm) compare(in.c0, grad_c0, "grad_c0");
  if (s.packed) compare(in.h_starts, grad_h_starts, "grad_h_starts");
  if (s.packed && lstm) compare(in.c_starts, grad_c_starts, "grad_c_starts");
}

void run_gates(int gates) {
  for (const bool packed : {false, true}) {
    run_scan({3, 1, 3, 1, gates, packed});
    run_scan({3, 67, 1, 3, gates, packed});
    run_scan({2, 35, 3, 32, gates, packed});
  }
  run_scan({2, 5, 8, 100, gates, false});
  run_scan({1, 9, 4, 160, gates, false});  // weights beyond shared memory
  // Tiles of many vertices on a device of 132 multiprocessors, weight gradients in several parts.
  run_scan({2, 9000, 1, 2, gates, true});
  run_scan({0, 4, 2, 3, gates, false});
  run_scan({2, 0, 2, 3, gates, false});
}

// Products split for tensor cores, or plain ones where the device has none for these sizes.
void run_split(int gates) {
  expect(!dgb_scan_splits(8, 65, gates) && !dgb_scan_splits(8, 0, gates), "too wide or no state");
  for (const bool packed : {false, true}) {
    run_scan({3, 1, 1, 1, gates, packed, kSplitProducts});
    run_scan({4, 67, 6, 6, gates, packed, kSplitProducts});
    run_scan({2, 35, 16, 32, gates, packed, kSplitProducts});
    run_scan({2, 21, 9, 37, gates, packed, kSplitProducts});
  }
  run_scan({2, 17, 64, 64, gates, false, kSplitProducts});
  run_scan({30, 5, 2, 8, gates, false, kSplitProducts});
  run_scan({1, 70'000, 1, 2, gates, true, kSplitProducts});  // eight tiles of rows in a block
  run_scan({2, 5, 8, 100, gates, false, kSplitProducts});
  run_scan({0, 4, 2, 3, gates, false, kSplitProducts});
  run_scan({2, 0, 2, 3, gates, false, kSplitProducts});
}

DRIVER_CASE(scan_split_gru) { run_split(3); }
DRIVER_CASE(scan_split_lstm) { run_split(4); }
DRIVER_CASE(scan_gru) { run_gates(3); }
DRIVER_CASE(scan_lstm) { run_gates(4); }

}  // namespace
}  // namespace dgbench::driver
