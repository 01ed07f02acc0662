// Attention of targets to their sampled neighbours, ragged rows as a sampler returns them:
//
//   temporal_attention_forward(offsets, times, edge_times, query [H, R, Z], neighbours [K, D],
//                              edges [K, E], weight [T], bias [T], out [H, R, Z], share [K, H],
//                              threads)
//   temporal_attention_backward(..., bias, share, grad [H, R, Z], to_query, to_neighbours,
//                               to_weight, to_bias, threads)
//
// z = [neighbour | edge | cos(weight age + bias)] with Z = D + E + T; shares are softmax(query z) over
// the neighbours of a target and the result is their weighed sum of z. Nothing of the size of z is
// written: a thread keeps the encodings of one target's neighbours, which its cache holds, and makes
// them again in the backward pass. Derivatives of the encoding are added up by pieces of targets that
// depend on their number alone, so the number of threads does not show.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <new>
#include <vector>

#include "attention/cpu_head_columns.hpp"
#include "attention/cpu_vector_exp.hpp"
#include "common/check.hpp"
#include "scan/cpu_common.hpp"
#include "time_encoding/cpu_encode.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

constexpr int kGroup = 2;                   // heads that go through a row together
constexpr std::int64_t kPieces = 64;        // that targets are cut into, for threads to share out
constexpr std::int64_t kTargets = 16;       // of a piece at least
constexpr std::int64_t kSerialFloats = 1 << 15;

constexpr std::int64_t padded(std::int64_t count) { return (count + 15) / 16 * 16; }

// Columns [at, at + width) of z: rows of a table.
struct Part {
  const float* rows;
  std::int64_t stride;
  int at, width;
};

struct TemporalRows {
  std::int64_t targets, entries;
  int heads, nodes, edges, time;  // heads, and D, E and T
  std::int64_t z, pitch;          // Z, and T in whole vectors
  const std::int64_t* offsets;
  const double* times;
  const double* edge_times;
  const float* query;
  const float* neighbour_rows;
  const float* edge_rows;
  std::vector<double> weight, bias;

  std::int64_t apart() const { return targets * z; }  // between the rows of a target's heads
  std::int64_t scratch(std::int64_t count) const {
    return 2 * count * pitch + 2 * padded(count * heads);
  }
  double age(std::int64_t target, std::int64_t entry) const {
    return times[target] - edge_times[entry];
  }
};

// What a thread has of one target.
struct Row {
  std::int64_t first, count;
  float* cosines;  // [count, pitch]
  float* sines;
  float* weights;  // [count, heads], padded
  float* other;    // the same
  Part parts[3];
  int num_parts;
};

Row row_of(const TemporalRows& a, std::int64_t target, float* scratch) {
  Row row{};
  row.first = a.offsets[target];
  row.count = a.offsets[target + 1] - row.first;
  row.cosines = scratch;
  row.sines = row.cosines + row.count * a.pitch;
  row.weights = row.sines + row.count * a.pitch;
  row.other = row.weights + padded(row.count * a.heads);
  const auto add = [&](const float* rows, std::int64_t stride, int at, int width) {
    if (width > 0) row.parts[row.num_parts++] = {rows, stride, at, width};
  };
  add(a.neighbour_rows + row.first * a.nodes, a.nodes, 0, a.nodes);
  add(a.edge_rows + row.first * a.edges, a.edges, a.nodes, a.edges);
  add(row.cosines, a.pitch, a.nodes + a.edges, a.time);
  return row;
}

void encode(const TemporalRows& a, const Frequencies& encoding, std::int64_t target, const Row& row,
            bool sines) {
  for (std::int64_t k = 0; a.time > 0 && k < row.count; ++k) {
    encode_age(encoding, a.age(target, row.first + k), row.cosines + k * a.pitch,
               sines ? row.sines + k * a.pitch : nullptr);
  }
}

// Products of G heads' rows of `by`, `apart` from each other, with the rows of every neighbour, to
// out[k * heads + g].
template <int G>
void dots(const Row& row, const float* by, std::int64_t apart, float* out, int heads) {
  for (std::int64_t k = 0; k < row.count; ++k) {
    Wide::Reg sum[G];
    for (int g = 0; g < G; ++g) sum[g] = Wide::zero();
    for (int p = 0; p < row.num_parts; ++p) {
      const Part& part = row.parts[p];
      const float* const x = part.rows + k * part.stride;
      const float* const y = by + part.at;
      int j = 0;
      for (; j + Wide::lanes <= part.width; j += Wide::lanes) {
        const Wide::Reg r = Wide::load(x + j);
        for (int g = 0; g < G; ++g) sum[g] = Wide::fma(r, Wide::load(y + g * apart + j), sum[g]);
      }
      if (j == part.width) continue;
      const auto mask = Wide::mask(0, part.width - j);
      const Wide::Reg r = Wide::load(x + j, mask);
      for (int g = 0; g < G; ++g) sum[g] = Wide::fma(r, Wide::load(y + g * apart + j, mask), sum[g]);
    }
    for (int g = 0; g < G; ++g) out[k * heads + g] = sum_of(sum[g]);
  }
}

// Sums over the neighbours of weights[k * heads + g] times their rows, to G rows of `out`.
template <int G>
void sums(const Row& row, const float* weights, int heads, float* out, std::int64_t apart) {
  for (int p = 0; p < row.num_parts; ++p) {
    const Part& part = row.parts[p];
    for (int j = 0; j < part.width; j += Wide::lanes) {
      const auto mask = Wide::mask(0, part.width - j);
      Wide::Reg sum[G];
      for (int g = 0; g < G; ++g) sum[g] = Wide::zero();
      for (std::int64_t k = 0; k < row.count; ++k) {
        const Wide::Reg r = Wide::load(part.rows + k * part.stride + j, mask);
        for (int g = 0; g < G; ++g) {
          sum[g] = Wide::fma(Wide::broadcast(weights[k * heads + g]), r, sum[g]);
        }
      }
      for (int g = 0; g < G; ++g) Wide::store(out + g * apart + part.at + j, sum[g], mask);
    }
  }
}

void all_dots(const TemporalRows& a, const Row& row, const float* by, float* out) {
  const std::int64_t apart = a.apart();
  int h = 0;
  for (; h + kGroup <= a.heads; h += kGroup) {
    dots<kGroup>(row, by + h * apart, apart, out + h, a.heads);
  }
  for (; h < a.heads; ++h) dots<1>(row, by + h * apart, apart, out + h, a.heads);
}

void all_sums(const TemporalRows& a, const Row& row, const float* weights, float* out) {
  const std::int64_t apart = a.apart();
  int h = 0;
  for (; h + kGroup <= a.heads; h += kGroup) {
    sums<kGroup>(row, weights + h, a.heads, out + h * apart, apart);
  }
  for (; h < a.heads; ++h) sums<1>(row, weights + h, a.heads, out + h * apart, apart);
}

void forward(const TemporalRows& a, const Frequencies& encoding, std::int64_t target, float* out,
             float* share, float* scratch) {
  const Row row = row_of(a, target, scratch);
  encode(a, encoding, target, row, false);
  all_dots(a, row, a.query + target * a.z, row.weights);
  const std::int64_t numbers = row.count * a.heads;
  for (int h = 0; h < a.heads; ++h) {
    float top = row.weights[h];
    for (std::int64_t k = 1; k < row.count; ++k) {
      top = std::max(top, row.weights[k * a.heads + h]);
    }
    for (std::int64_t k = 0; k < row.count; ++k) row.weights[k * a.heads + h] -= top;
  }
  std::fill(row.weights + numbers, row.weights + padded(numbers), 0.0f);
  exp_below_zero(row.weights, numbers);
  for (int h = 0; h < a.heads; ++h) {
    float sum = 0;
    for (std::int64_t k = 0; k < row.count; ++k) sum += row.weights[k * a.heads + h];
    for (std::int64_t k = 0; k < row.count; ++k) row.weights[k * a.heads + h] /= sum;
  }
  std::copy_n(row.weights, numbers, share + row.first * a.heads);
  all_sums(a, row, row.weights, out + target * a.z);
}

void clear(const TemporalRows& a, std::int64_t target, float* out) {
  for (int h = 0; h < a.heads; ++h) std::fill_n(out + h * a.apart() + target * a.z, a.z, 0.0f);
}

struct Gradients {
  const float* share;
  const float* out;  // what comes back to the result
  float* query;
  float* neighbours;  // null where it is not asked for
};

// Adds what the encoding gets to `slopes`: of the weights [pitch], then of the bias [pitch].
void backward(const TemporalRows& a, const Frequencies& encoding, const Gradients& to,
              std::int64_t target, float* slopes, float* scratch) {
  const Row row = row_of(a, target, scratch);
  encode(a, encoding, target, row, true);
  const float* const given = to.out + target * a.z;
  const float* const query = a.query + target * a.z;
  const float* const share = to.share + row.first * a.heads;
  float* const score = row.weights;
  all_dots(a, row, given, score);
  for (int h = 0; h < a.heads; ++h) {
    float mean = 0;
    for (std::int64_t k = 0; k < row.count; ++k) {
      mean += share[k * a.heads + h] * score[k * a.heads + h];
    }
    for (std::int64_t k = 0; k < row.count; ++k) {
      score[k * a.heads + h] = share[k * a.heads + h] * (score[k * a.heads + h] - mean);
    }
  }
  all_sums(a, row, score, to.query + target * a.z);
  // z of neighbour k enters the sums by its share and the scores by the query.
  const auto of_z = [&](std::int64_t k, std::int64_t column, Wide::Mask mask) {
    Wide::Reg sum = Wide::zero();
    for (int h = 0; h < a.heads; ++h) {
      sum = Wide::fma(Wide::broadcast(share[k * a.heads + h]),
                      Wide::load(given + h * a.apart() + column, mask), sum);
      sum = Wide::fma(Wide::broadcast(score[k * a.heads + h]),
                      Wide::load(query + h * a.apart() + column, mask), sum);
    }
    return sum;
  };
  for (std::int64_t k = 0; to.neighbours && k < row.count; ++k) {
    float* const out = to.neighbours + (row.first + k) * a.nodes;
    for (int j = 0; j < a.nodes; j += Wide::lanes) {
      const auto mask = Wide::mask(0, a.nodes - j);
      Wide::store(out + j, of_z(k, j, mask), mask);
    }
  }
  for (int j = 0; j < a.time; j += Wide::lanes) {
    const auto mask = Wide::mask(0, a.time - j);
    Wide::Reg by_weight = Wide::load(slopes + j);
    Wide::Reg by_bias = Wide::load(slopes + a.pitch + j);
    for (std::int64_t k = 0; k < row.count; ++k) {
      const Wide::Reg slope = Wide::mul(of_z(k, a.nodes + a.edges + j, mask),
                                        Wide::load(row.sines + k * a.pitch + j, mask));
      const auto age = static_cast<float>(a.age(target, row.first + k));
      by_weight = Wide::fma(Wide::broadcast(-age), slope, by_weight);
      by_bias = Wide::fma(Wide::broadcast(-1.0f), slope, by_bias);
    }
    const auto all = Wide::mask(0, Wide::lanes);
    Wide::store(slopes + j, by_weight, all);
    Wide::store(slopes + a.pitch + j, by_bias, all);
  }
}

std::int64_t pieces_of(const TemporalRows& a) {
  return std::clamp<std::int64_t>(a.targets / kTargets, 1, kPieces);
}

// Runs body(target, piece, scratch) for all targets, those of a piece one after the other.
template <class Body>
void each_target(const TemporalRows& a, int threads, const Body& body) {
  const std::int64_t pieces = pieces_of(a);
  std::atomic<bool> failed{false};
#pragma omp parallel num_threads(std::max(1, threads)) if (a.entries * a.z > kSerialFloats && threads > 1)
  {
    static thread_local scan::Scratch<float> memory;
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const std::int64_t stop = a.targets * (piece + 1) / pieces;
      for (std::int64_t r = a.targets * piece / pieces; r < stop && !failed; ++r) {
        float* const scratch = memory.try_get(a.scratch(a.offsets[r + 1] - a.offsets[r]));
        if (scratch) {
          body(r, piece, scratch);
        } else {
          failed = true;
        }
      }
    }
  }
  if (failed) throw std::bad_alloc();
}

using Floats2 = Matrix<const float>;
using Floats3 = Cube<const float>;
using MaybeRows = std::optional<Floats2>;

TemporalRows checked(const Array<const std::int64_t>& offsets, const Array<const double>& times,
                     const Array<const double>& edge_times, const Floats3& query,
                     const Floats2& neighbours, const MaybeRows& edges,
                     const Maybe<const float>& weight, const Maybe<const float>& bias) {
  TemporalRows a{};
  a.targets = static_cast<std::int64_t>(query.shape(1));
  a.entries = static_cast<std::int64_t>(neighbours.shape(0));
  a.heads = static_cast<int>(query.shape(0));
  a.z = static_cast<std::int64_t>(query.shape(2));
  a.nodes = static_cast<int>(neighbours.shape(1));
  check_size(times, query.shape(1), "times");
  check_size(edge_times, neighbours.shape(0), "edge_times");
  check_size(offsets, query.shape(1) + 1, "offsets");
  check_offsets(offsets.data(), offsets.size(), neighbours.shape(0), "offsets");
  if (edges) {
    require(edges->shape(0) == neighbours.shape(0), "edges and neighbours must be as many");
    a.edges = static_cast<int>(edges->shape(1));
    a.edge_rows = edges->data();
  }
  require(weight.has_value() == bias.has_value(), "weight and bias belong together");
  if (weight) {
    check_size(*bias, weight->size(), "bias");
    a.time = static_cast<int>(weight->size());
    a.pitch = padded(a.time);
    a.weight.assign(weight->data(), weight->data() + a.time);
    a.bias.assign(bias->data(), bias->data() + a.time);
  }
  require(a.heads >= 1 && a.z == a.nodes + a.edges + a.time,
          "query must have as many columns as neighbours, edges and weight together");
  a.offsets = offsets.data();
  a.times = times.data();
  a.edge_times = edge_times.data();
  a.query = query.data();
  a.neighbour_rows = neighbours.data();
  return a;
}

void temporal_attention_forward(Array<const std::int64_t> offsets, Array<const double> times,
                                Array<const double> edge_times, Floats3 query, Floats2 neighbours,
                                MaybeRows edges, Maybe<const float> weight, Maybe<const float> bias,
                                Cube<float> out, Matrix<float> share, int threads) {
  const TemporalRows a =
      checked(offsets, times, edge_times, query, neighbours, edges, weight, bias);
  check_size(out, query.size(), "out");
  check_size(share, neighbours.shape(0) * query.shape(0), "share");
  const Frequencies encoding(a.weight.data(), a.bias.data(), a.time);
  nb::gil_scoped_release release;
  each_target(a, threads, [&](std::int64_t r, std::int64_t, float* scratch) {
    if (a.offsets[r] == a.offsets[r + 1]) {
      clear(a, r, out.data());
    } else {
      forward(a, encoding, r, out.data(), share.data(), scratch);
    }
  });
}

void temporal_attention_backward(Array<const std::int64_t> offsets, Array<const double> times,
                                 Array<const double> edge_times, Floats3 query, Floats2 neighbours,
                                 MaybeRows edges, Maybe<const float> weight,
                                 Maybe<const float> bias, Floats2 share, Floats3 grad,
                                 Cube<float> to_query, std::optional<Matrix<float>> to_neighbours,
                                 Maybe<float> to_weight, Maybe<float> to_bias, int threads) {
  const TemporalRows a =
      checked(offsets, times, edge_times, query, neighbours, edges, weight, bias);
  check_size(share, neighbours.shape(0) * query.shape(0), "share");
  check_size(grad, query.size(), "grad");
  check_size(to_query, query.size(), "to_query");
  if (to_neighbours) check_size(*to_neighbours, neighbours.size(), "to_neighbours");
  require(to_weight.has_value() == weight.has_value() && to_bias.has_value() == bias.has_value(),
          "to_weight and to_bias belong to weight and bias");
  check_optional(to_weight, a.time, "to_weight");
  check_optional(to_bias, a.time, "to_bias");
  const Gradients to{share.data(), grad.data(), to_query.data(),
                     to_neighbours ? to_neighbours->data() : nullptr};
  const Frequencies encoding(a.weight.data(), a.bias.data(), a.time);
  nb::gil_scoped_release release;
  const std::int64_t each = 2 * a.pitch;
  std::vector<float> slopes(pieces_of(a) * each, 0.0f);
  each_target(a, threads, [&](std::int64_t r, std::int64_t piece, float* scratch) {
    if (a.offsets[r] == a.offsets[r + 1]) {
      clear(a, r, to.query);
    } else {
      backward(a, encoding, to, r, slopes.data() + piece * each, scratch);
    }
  });
  for (std::int64_t t = 0; t < a.time; ++t) {
    double of_weight = 0, of_bias = 0;
    for (std::int64_t piece = 0; piece < pieces_of(a); ++piece) {
      of_weight += slopes[piece * each + t];
      of_bias += slopes[piece * each + a.pitch + t];
    }
    to_weight->data()[t] = static_cast<float>(of_weight);
    to_bias->data()[t] = static_cast<float>(of_bias);
  }
}

}  // namespace

void bind_temporal_attention(nb::module_& m) {
  m.def("temporal_attention_forward", &temporal_attention_forward, "offsets"_a.noconvert(),
        "times"_a.noconvert(), "edge_times"_a.noconvert(), "query"_a.noconvert(),
        "neighbours"_a.noconvert(), "edges"_a.noconvert().none(), "weight"_a.noconvert().none(),
        "bias"_a.noconvert().none(), "out"_a.noconvert(), "share"_a.noconvert(), "threads"_a);
  m.def("temporal_attention_backward", &temporal_attention_backward, "offsets"_a.noconvert(),
        "times"_a.noconvert(), "edge_times"_a.noconvert(), "query"_a.noconvert(),
        "neighbours"_a.noconvert(), "edges"_a.noconvert().none(), "weight"_a.noconvert().none(),
        "bias"_a.noconvert().none(), "share"_a.noconvert(), "grad"_a.noconvert(),
        "to_query"_a.noconvert(), "to_neighbours"_a.noconvert().none(),
        "to_weight"_a.noconvert().none(), "to_bias"_a.noconvert().none(), "threads"_a);
}

}  // namespace dgbench
