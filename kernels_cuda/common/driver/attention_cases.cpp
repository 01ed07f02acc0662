// Attention over rows of a matrix and inside packed sequences, forward and backward.
#include "attention/cuda_launchers.h"
#include "common/driver/driver.hpp"
#include "time_encoding/cuda_launchers.h"

namespace dgbench::driver {
namespace {

void run_rows(const std::vector<int64_t>& lengths, int heads, int width) {
  Random random(lengths.size() + heads * 100 + width);
  const HostCsr csr = random_csr(lengths, kColumns, random);
  const int64_t rows = csr.rows();
  const int d = heads * width;
  const float slope = 0.2f;
  const std::vector<float> values = random.reals(kColumns * d);
  const std::vector<float> source = random.reals(kColumns * heads);
  const std::vector<float> target = random.reals(rows * heads), up = random.reals(rows * d);
  std::vector<double> out(rows * d), to_values(kColumns * d), to_source(kColumns * heads),
      to_target(rows * heads);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int64_t> columns(1, r);  // a row attends to itself too
    columns.insert(columns.end(), csr.indices.begin() + csr.indptr[r],
                   csr.indices.begin() + csr.indptr[r + 1]);
    for (int h = 0; h < heads; ++h) {
      std::vector<double> share, factor;
      double total = 0.0;
      for (const int64_t c : columns) {
        const double score = double{target[r * heads + h]} + source[c * heads + h];
        factor.push_back(score > 0 ? 1.0 : slope);
        share.push_back(std::exp(score * factor.back()));
        total += share.back();
      }
      double mean = 0.0;
      const int64_t at = r * d + h * width;
      for (std::size_t i = 0; i < columns.size(); ++i) {
        share[i] /= total;
        for (int k = 0; k < width; ++k) {
          const double value = values[columns[i] * d + h * width + k];
          out[at + k] += share[i] * value;
          mean += share[i] * up[at + k] * value;
        }
      }
      for (std::size_t i = 0; i < columns.size(); ++i) {
        double pull = -mean;
        for (int k = 0; k < width; ++k) {
          const int64_t to = columns[i] * d + h * width + k;
          pull += double{up[at + k]} * values[to];
          to_values[to] += share[i] * up[at + k];
        }
        to_source[columns[i] * heads + h] += share[i] * factor[i] * pull;
        to_target[r * heads + h] += share[i] * factor[i] * pull;
      }
    }
  }

  std::vector<int32_t> place;  // of rows with neighbours
  int32_t with_neighbours = 0;
  for (const int64_t length : lengths) place.push_back(length > 0 ? with_neighbours++ : 0);
  std::vector<int64_t> degrees(kColumns);
  for (const int32_t column : csr.indices) ++degrees[column];
  const std::vector<int64_t> receivers_ptr = offsets_of(degrees);
  std::vector<int64_t> next = receivers_ptr;
  std::vector<int32_t> receivers(csr.indices.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t p = csr.indptr[r]; p < csr.indptr[r + 1]; ++p) {
      receivers[next[csr.indices[p]]++] = static_cast<int32_t>(r);
    }
  }
  const DeviceArray<int64_t> indptr(csr.indptr), back_ptr(receivers_ptr);
  const DeviceArray<int32_t> indices(csr.indices), places(place), back(receivers);
  const DeviceArray<float> v(values), s(source), t(target), grad(up);
  const DeviceArray<float> result(out.size()), stats(3 * rows * heads),
      positive(static_cast<std::size_t>(with_neighbours) * d), entry(4 * rows * heads),
      grad_values(to_values.size()), grad_source(to_source.size()), grad_target(to_target.size());
  AttendRowsGrad b{};
  b.in = AttendRows{indptr.data(), indices.data(), rows,          kColumns,     heads,
                    width,         v.data(),       d,             s.data(),     heads,
                    t.data(),      slope,          result.data(), stats.data(), places.data(),
                    positive.data()};
  b.receivers_ptr = back_ptr.data();
  b.receivers = back.data();
  b.grad = grad.data();
  b.entry = entry.data();
  b.grad_values = grad_values.data();
  b.grad_source = grad_source.data();
  b.grad_target = grad_target.data();
  RUN(dgb_attend_rows(&b.in, nullptr));
  RUN(dgb_attend_rows_backward(&b, nullptr));
  const std::string name = named("rows, heads, width", {rows, heads, width});
  expect_close(result.host(), out, "attend_rows, " + name);
  expect_close(grad_values.host(), to_values, "grad_values, " + name);
  expect_close(grad_source.host(), to_source, "grad_source, " + name);
  expect_close(grad_target.host(), to_target, "grad_target, " + name);
}

DRIVER_CASE(attend_rows) {
  for (const auto& lengths : kRowLengths) {
    for (const int width : kWidths) run_rows(lengths, 1, width);
    run_rows(lengths, 3, 8);
  }
  run_rows({4, 0, 200}, 1, dgb_attend_rows_width());
}

// Sequences in rows of steps: row, first step, length.
using Sequences = std::vector<std::vector<int32_t>>;

void run_packed(const Sequences& sequences, int64_t rows, int64_t steps, int heads, int width,
                bool causal) {
  Random random(sequences.size() * 10 + width);
  const int d = heads * width;
  const int64_t size = steps * rows * d;
  const std::vector<float> q = random.reals(size), k = random.reals(size), v = random.reals(size);
  const std::vector<float> up = random.reals(size);
  std::vector<int32_t> flat, wanted;
  std::vector<int64_t> first(1, 0);
  std::vector<double> out(size), to_q(size), to_k(size), to_v(size);
  const double scale = static_cast<float>(1.0 / std::sqrt(width));
  for (const auto& s : sequences) {
    flat.insert(flat.end(), s.begin(), s.end());
    for (int32_t i = 0; i < s[2]; ++i) {
      if (s[2] > 2 && i == 1) continue;  // a step nobody asks for
      wanted.push_back(i);
      for (int h = 0; h < heads; ++h) {
        const auto at = [&](int32_t step) {
          return ((s[1] + step) * rows + s[0]) * d + h * width;
        };
        const auto dot = [&](const std::vector<float>& a, int64_t ia,
                             const std::vector<float>& b, int64_t ib) {
          double sum = 0.0;
          for (int c = 0; c < width; ++c) sum += double{a[ia + c]} * b[ib + c];
          return sum;
        };
        const int32_t keys = causal ? i + 1 : s[2];
        std::vector<double> share;
        double total = 0.0, mean = 0.0;
        for (int32_t j = 0; j < keys; ++j) {
          share.push_back(std::exp(scale * dot(q, at(i), k, at(j))));
          total += share.back();
        }
        for (int32_t j = 0; j < keys; ++j) {
          share[j] /= total;
          mean += share[j] * dot(up, at(i), v, at(j));
        }
        for (int32_t j = 0; j < keys; ++j) {
          const double pull = scale * share[j] * (dot(up, at(i), v, at(j)) - mean);
          for (int c = 0; c < width; ++c) {
            out[at(i) + c] += share[j] * v[at(j) + c];
            to_v[at(j) + c] += share[j] * up[at(i) + c];
            to_q[at(i) + c] += pull * k[at(j) + c];
            to_k[at(j) + c] += pull * q[at(i) + c];
          }
        }
      }
    }
    first.push_back(static_cast<int64_t>(wanted.size()));
  }
  const auto count = static_cast<int64_t>(wanted.size());
  const DeviceArray<int32_t> sequence(flat), asked(wanted);
  const DeviceArray<int64_t> starts(first);
  const DeviceArray<float> dq(q), dk(k), dv(v), dup(up);
  // What is not wanted is not written.
  const DeviceArray<float> result(size, 0.0f), grad_q(size, 0.0f), grad_k(size), grad_v(size);
  const DeviceArray<float> stats(3 * count * heads);
  const auto strided = [&](const DeviceArray<float>& x) {
    return StepRows{x.data(), rows * d, d};
  };
  PackedAttention a{};
  a.sequences = static_cast<int64_t>(sequences.size());
  a.sequence = sequence.data();
  a.first = starts.data();
  a.wanted = asked.data();
  a.rows = rows;
  a.heads = heads;
  a.width = width;
  a.causal = causal;
  a.scale = static_cast<float>(scale);
  a.q = strided(dq);
  a.k = strided(dk);
  a.v = strided(dv);
  a.out = result.data();
  a.grad = strided(dup);
  a.grad_q = grad_q.data();
  a.grad_k = grad_k.data();
  a.grad_v = grad_v.data();
  RUN(dgb_packed_attention(&a, count, nullptr));
  RUN(dgb_packed_attention_backward(&a, count, steps, stats.data(), nullptr));
  const std::string name = named("sequences, heads, width, causal",
                                 {a.sequences, heads, width, causal});
  expect_close(result.host(), out, "packed_attention, " + name);
  expect_close(grad_q.host(), to_q, "grad_q, " + name);
  expect_close(grad_k.host(), to_k, "grad_k, " + name);
  expect_close(grad_v.host(), to_v, "grad_v, " + name);
}

DRIVER_CASE(packed_attention) {
  for (const bool causal : {false, true}) {
    for (const int width : {1, 3, 9, 32, 33, dgb_packed_attention_width()}) {
      run_packed({{0, 0, 1}}, 1, 1, 1, width, causal);
      run_packed({{0, 0, 3}, {0, 3, 4}, {2, 1, 2}}, 3, 9, 2, width, causal);
      run_packed({}, 2, 2, 1, width, causal);
    }
    run_packed({{0, 0, 40}, {1, 0, 300}}, 2, 300, 1, 4, causal);
  }
}

int encoded(const EncodeAges<float>& e) { return dgb_encode_ages_float(&e, nullptr); }
int encoded(const EncodeAges<double>& e) { return dgb_encode_ages_double(&e, nullptr); }

template <class T>
void run_ages(int64_t count, int64_t width, bool sines) {
  Random random(static_cast<uint64_t>(count * width));
  std::vector<double> ages, right;
  std::vector<T> weight, bias;
  for (const float age : random.reals(count)) ages.push_back(1e6 * double{age});
  for (const float w : random.reals(width)) weight.push_back(w);
  for (const float b : random.reals(width)) bias.push_back(b);
  for (int64_t i = 0; i < count * width; ++i) {
    const long double angle =
        static_cast<long double>(ages[i / width]) * weight[i % width] + bias[i % width];
    right.push_back(static_cast<double>(sines ? std::sin(angle) : std::cos(angle)));
  }
  const DeviceArray<double> d_ages(ages);
  const DeviceArray<T> d_weight(weight), d_bias(bias), out(count * width);
  const EncodeAges<T> encoding{d_ages.data(), d_weight.data(), d_bias.data(), out.data(),
                               count,         width,           sines};
  RUN(encoded(encoding));
  const std::vector<T> found = out.host();
  double worst = 0;
  for (int64_t i = 0; i < count * width; ++i) {
    worst = std::max(worst, std::fabs(static_cast<double>(found[i]) - right[i]));
  }
  const std::vector<int> within{worst < 2e-7};
  expect_equal(within, std::vector<int>{1}, named("encode_ages: ages, width", {count, width}));
}

DRIVER_CASE(encode_ages) {
  for (const bool sines : {false, true}) {
    for (const int64_t count : {1, 300}) {
      run_ages<float>(count, 37, sines);
      run_ages<double>(count, 37, sines);
    }
  }
}

}  // namespace
}  // namespace dgbench::driver
