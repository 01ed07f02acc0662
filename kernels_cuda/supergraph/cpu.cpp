// The supergraph of a sequence of snapshots (DGC 3.1): a vertex per vertex-step, ordered by entity
// and then by step, so that a temporal neighbour is the id before or after and rows come out sorted.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/check.hpp"
#include "common/lists.hpp"
#include "supergraph/cpu_edge_direction.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

template <class T>
using Arrays = std::vector<Array<T>>;

constexpr std::int64_t kEntities = 256;  // entities that a thread takes at a time

// T square matrices: row v of `in` lists the sources of edges into v, row v of `out` the targets of
// edges from v; both ascending.
struct Steps {
  std::vector<const std::int64_t*> offsets;
  std::vector<const std::int32_t*> columns;

  Steps(const Arrays<const std::int64_t>& indptr, const Arrays<const std::int32_t>& indices,
        std::int64_t entities) {
    if (indptr.size() != indices.size()) reject("indptr and indices differ in length");
    for (std::size_t t = 0; t < indptr.size(); ++t) {
      check_size(indptr[t], static_cast<std::size_t>(entities) + 1, "indptr[t]");
      check_offsets(indptr[t].data(), indptr[t].size(), indices[t].size(), "indptr[t]");
      if (!ids_in_range(indices[t].data(), indices[t].size(), entities)) {
        reject("indices[t] must lie in [0, N)");
      }
      offsets.push_back(indptr[t].data());
      columns.push_back(indices[t].data());
    }
  }
  std::int64_t count() const { return static_cast<std::int64_t>(offsets.size()); }
  std::int64_t begin(std::int64_t t, std::int64_t v) const { return offsets[t][v]; }
  std::int64_t end(std::int64_t t, std::int64_t v) const { return offsets[t][v + 1]; }
};

// Bits of entity v: word v * words + t / 64, bit t % 64.
struct Presence {
  std::uint64_t* bits;
  std::int64_t words;

  bool at(std::int64_t v, std::int64_t t) const {
    return bits[v * words + t / 64] >> (t % 64) & 1;
  }
  std::int64_t before(std::int64_t v, std::int64_t t) const {
    std::int64_t count = 0;
    const std::uint64_t* row = bits + v * words;
    for (std::int64_t w = 0; w < t / 64; ++w) count += __builtin_popcountll(row[w]);
    return count + __builtin_popcountll(row[t / 64] & ((std::uint64_t{1} << (t % 64)) - 1));
  }
};

// `start` numbers the steps in which each entity is present.
void check_start(const Array<const std::int64_t>& start, const Array<std::uint64_t>& bits,
                 std::int64_t words, std::size_t vertices) {
  check_offsets(start.data(), start.size(), vertices, "start");
  const std::size_t entities = start.size() - 1;
  if (words < 0) reject("words must not be negative");
  check_size(bits, entities * static_cast<std::size_t>(words), "bits");
  const std::uint64_t* row = bits.data();
  for (std::size_t v = 0; v < entities; ++v) {
    std::int64_t steps = 0;
    for (std::int64_t w = 0; w < words; ++w) steps += __builtin_popcountll(*row++);
    if (steps != start.data()[v + 1] - start.data()[v]) reject("start and bits differ in steps");
  }
}

// Where an entity is present. `fill` 0: in steps in which it has an edge; 1: from the first such
// step to the last; 2: from the first to the end. Writes its number of steps to `lengths`.
void mark_presence(Arrays<const std::int64_t> indptr, Arrays<const std::int32_t> indices,
                   Array<std::uint64_t> bits, std::int64_t words, Array<std::int64_t> lengths,
                   int fill, int threads) {
  const auto entities = static_cast<std::int64_t>(lengths.size());
  const Steps in(indptr, indices, entities);
  const std::int64_t steps = in.count();
  if (words != (steps + 63) / 64) reject("words does not fit the steps");
  check_size(bits, static_cast<std::size_t>(entities * words), "bits");
  nb::gil_scoped_release release;
  const Presence present{bits.data(), words};
  std::fill(bits.data(), bits.data() + entities * words, std::uint64_t{0});
  // Step by step: the columns of a row belong to other entities, so this part is not shared out.
  for (std::int64_t t = 0; t < steps; ++t) {
    const std::uint64_t bit = std::uint64_t{1} << (t % 64);
    std::uint64_t* word = bits.data() + t / 64;
    for (std::int64_t v = 0; v < entities; ++v) {
      bool is_read = false;
      for (std::int64_t e = in.begin(t, v); e < in.end(t, v); ++e) {
        const std::int64_t u = in.columns[t][e];
        if (u == v) continue;
        word[u * words] |= bit;
        is_read = true;
      }
      if (is_read) word[v * words] |= bit;
    }
  }
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(static)
  for (std::int64_t v = 0; v < entities; ++v) {
    std::int64_t first = steps;
    std::int64_t last = -1;
    std::int64_t count = 0;
    for (std::int64_t w = 0; w < words; ++w) {
      const std::uint64_t word = present.bits[v * words + w];
      if (word == 0) continue;
      first = std::min<std::int64_t>(first, w * 64 + __builtin_ctzll(word));
      last = w * 64 + 63 - __builtin_clzll(word);
      count += __builtin_popcountll(word);
    }
    if (last >= 0 && fill > 0) {
      if (fill == 2) last = steps - 1;
      for (std::int64_t t = first; t <= last; ++t) {
        present.bits[v * words + t / 64] |= std::uint64_t{1} << (t % 64);
      }
      count = last - first + 1;
    }
    lengths.data()[v] = count;
  }
}

struct Weights {
  std::int32_t spatial;
  std::int32_t temporal;
  bool per_length;  // a temporal edge of a sequence of L steps weighs L - 1 times as much

  std::int32_t of_sequence(std::int64_t length) const {
    return per_length ? static_cast<std::int32_t>(temporal * (length - 1)) : temporal;
  }
};

// The rows of entity v, one after another, by calling `entry(neighbour, weight, direction)` in
// ascending order. Two lists of the same step are merged; a neighbour in both counts twice.
template <class Entry>
void entity_rows(const Steps& in, const Steps& out, const Presence& present,
                 const std::int64_t* start, const Weights& weights, std::int64_t v,
                 const Entry& entry) {
  const std::int64_t length = start[v + 1] - start[v];
  if (length == 0) return;
  std::int64_t id = start[v];
  const std::int32_t along = weights.of_sequence(length);
  for (std::int64_t t = 0; t < in.count(); ++t) {
    if (!present.at(v, t)) continue;
    std::int64_t a = in.begin(t, v);
    std::int64_t b = out.begin(t, v);
    const std::int64_t a_end = in.end(t, v);
    const std::int64_t b_end = out.end(t, v);
    bool linked = false;
    const auto link = [&] {
      linked = true;
      if (id > start[v]) entry(id - 1, along, std::uint8_t{0});
      if (id + 1 < start[v + 1]) entry(id + 1, along, std::uint8_t{0});
    };
    constexpr std::int64_t kNone = INT64_MAX;
    while (a < a_end || b < b_end) {
      const std::int64_t x = a < a_end ? in.columns[t][a] : kNone;
      const std::int64_t y = b < b_end ? out.columns[t][b] : kNone;
      const std::int64_t u = std::min(x, y);
      a += x == u;
      b += y == u;
      if (u == v) continue;
      if (u > v && !linked) link();
      const std::int32_t both = x == y ? 2 : 1;
      const std::uint8_t direction = (x == u ? kIncoming : 0) | (y == u ? kOutgoing : 0);
      entry(start[u] + present.before(u, t), weights.spatial * both, direction);
    }
    if (!linked) link();
    ++id;
  }
}

// Lengths of all rows into offsets[id + 1].
void count_supergraph(Arrays<const std::int64_t> in_indptr, Arrays<const std::int32_t> in_indices,
                      Arrays<const std::int64_t> out_indptr, Arrays<const std::int32_t> out_indices,
                      Array<std::uint64_t> bits, std::int64_t words,
                      Array<const std::int64_t> start, Array<std::int64_t> offsets, int threads) {
  const std::int64_t entities = static_cast<std::int64_t>(start.size()) - 1;
  const Steps in(in_indptr, in_indices, entities);
  const Steps out(out_indptr, out_indices, entities);
  if (in.count() != out.count()) reject("two directions with different numbers of steps");
  if (words != (in.count() + 63) / 64) reject("words does not fit the steps");
  if (offsets.size() == 0) reject("offsets is empty, expected vertices + 1");
  check_start(start, bits, words, offsets.size() - 1);
  nb::gil_scoped_release release;
  const std::int64_t* first = start.data();
  std::int64_t* length = offsets.data();
  length[0] = 0;
  const Presence present{bits.data(), words};
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(dynamic, kEntities)
  for (std::int64_t v = 0; v < entities; ++v) {
    std::int64_t id = first[v];
    const std::int64_t last = first[v + 1] - 1;
    for (std::int64_t t = 0; t < in.count() && id <= last; ++t) {
      if (!present.at(v, t)) continue;
      const std::int32_t* a = in.columns[t] + in.begin(t, v);
      const std::int32_t* a_end = in.columns[t] + in.end(t, v);
      const std::int32_t* b = out.columns[t] + out.begin(t, v);
      const std::int32_t* b_end = out.columns[t] + out.end(t, v);
      std::int64_t count = (id > first[v]) + (id < last);
      while (a < a_end && b < b_end) {
        const std::int32_t u = std::min(*a, *b);
        a += *a == u;
        b += *b == u;
        count += u != v;
      }
      for (; a < a_end; ++a) count += *a != v;
      for (; b < b_end; ++b) count += *b != v;
      length[++id] = count;
    }
  }
  for (std::int64_t id = 0; id < first[entities]; ++id) length[id + 1] += length[id];
}

void fill_supergraph(Arrays<const std::int64_t> in_indptr, Arrays<const std::int32_t> in_indices,
                     Arrays<const std::int64_t> out_indptr, Arrays<const std::int32_t> out_indices,
                     Array<std::uint64_t> bits, std::int64_t words,
                     Array<const std::int64_t> start, Array<const std::int64_t> offsets,
                     Array<std::int32_t> columns, Array<std::int32_t> edge_weight,
                     Array<std::uint8_t> direction, Array<std::int32_t> step,
                     Array<std::int32_t> entity, std::int32_t spatial, std::int32_t temporal,
                     bool per_length, int threads) {
  const std::int64_t entities = static_cast<std::int64_t>(start.size()) - 1;
  const Steps in(in_indptr, in_indices, entities);
  const Steps out(out_indptr, out_indices, entities);
  if (in.count() != out.count()) reject("two directions with different numbers of steps");
  const std::size_t vertices = entity.size();
  if (words != (in.count() + 63) / 64) reject("words does not fit the steps");
  check_start(start, bits, words, vertices);
  check_size(offsets, vertices + 1, "offsets");
  check_size(step, vertices, "step");
  check_offsets(offsets.data(), offsets.size(), columns.size(), "offsets");
  check_size(edge_weight, columns.size(), "edge_weight");
  check_size(direction, columns.size(), "direction");
  nb::gil_scoped_release release;
  const Presence present{bits.data(), words};
  const Weights weights{spatial, temporal, per_length};
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(dynamic, kEntities)
  for (std::int64_t v = 0; v < entities; ++v) {
    std::int64_t id = start.data()[v];
    if (id == start.data()[v + 1]) continue;
    std::int64_t place = offsets.data()[id];
    for (std::int64_t t = 0; t < in.count(); ++t) {
      if (!present.at(v, t)) continue;
      step.data()[id] = static_cast<std::int32_t>(t);
      entity.data()[id++] = static_cast<std::int32_t>(v);
    }
    entity_rows(
        in, out, present, start.data(), weights, v,
        [&](std::int64_t neighbour, std::int32_t weight, std::uint8_t who) {
          columns.data()[place] = static_cast<std::int32_t>(neighbour);
          direction.data()[place] = who;
          edge_weight.data()[place++] = weight;
        });
  }
}

}  // namespace

void bind_supergraph(nb::module_& m) {
  m.def("mark_presence", &mark_presence, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "bits"_a.noconvert(), "words"_a, "lengths"_a.noconvert(), "fill"_a, "threads"_a);
  m.def("count_supergraph", &count_supergraph, "in_indptr"_a.noconvert(),
        "in_indices"_a.noconvert(), "out_indptr"_a.noconvert(), "out_indices"_a.noconvert(),
        "bits"_a.noconvert(), "words"_a, "start"_a.noconvert(), "offsets"_a.noconvert(),
        "threads"_a);
  m.def("fill_supergraph", &fill_supergraph, "in_indptr"_a.noconvert(), "in_indices"_a.noconvert(),
        "out_indptr"_a.noconvert(), "out_indices"_a.noconvert(), "bits"_a.noconvert(), "words"_a,
        "start"_a.noconvert(), "offsets"_a.noconvert(), "columns"_a.noconvert(),
        "edge_weight"_a.noconvert(), "direction"_a.noconvert(), "step"_a.noconvert(),
        "entity"_a.noconvert(), "spatial"_a, "temporal"_a, "per_length"_a, "threads"_a);
}

}  // namespace dgbench
