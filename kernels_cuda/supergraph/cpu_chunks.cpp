// Chunks of a supergraph: what they hold, what they send each other, who works on them (DGC 3.5).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/check.hpp"
#include "label_propagation/cpu_label_sums.hpp"
#include "supergraph/cpu_edge_direction.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

constexpr std::int64_t kFew = 64;  // entries that are sorted instead of hashed

// Sequences (entities with a step in the chunk) of each chunk, and the steps of the longest.
void chunk_sequences(Array<const std::int64_t> start, Array<const std::int32_t> chunk,
                     Array<std::int64_t> sequences, Array<std::int64_t> longest) {
  const std::int64_t entities = static_cast<std::int64_t>(start.size()) - 1;
  const auto chunks = static_cast<std::int64_t>(sequences.size());
  check_size(longest, sequences.size(), "longest");
  check_offsets(start.data(), start.size(), chunk.size(), "start");
  if (!ids_in_range(chunk.data(), chunk.size(), chunks)) reject("chunk must lie in [0, C)");
  nb::gil_scoped_release release;
  std::fill(sequences.data(), sequences.data() + chunks, 0);
  std::fill(longest.data(), longest.data() + chunks, 0);
  std::vector<std::int32_t> steps;
  for (std::int64_t v = 0; v < entities; ++v) {
    steps.assign(chunk.data() + start.data()[v], chunk.data() + start.data()[v + 1]);
    std::sort(steps.begin(), steps.end());
    for (std::size_t i = 0; i < steps.size();) {
      std::size_t j = i;
      while (j < steps.size() && steps[j] == steps[i]) ++j;
      const std::int32_t c = steps[i];
      ++sequences.data()[c];
      longest.data()[c] = std::max(longest.data()[c], static_cast<std::int64_t>(j - i));
      i = j;
    }
  }
}

// Edges that end in each chunk, and pairs with both ends inside, each once.
void chunk_edges(Array<const std::int64_t> indptr, Array<const std::int32_t> indices,
                 Array<const std::uint8_t> direction, Array<const std::int32_t> chunk,
                 Array<std::int64_t> edges, Array<std::int64_t> inner) {
  check_size(indptr, chunk.size() + 1, "indptr");
  check_size(direction, indices.size(), "direction");
  check_size(inner, edges.size(), "inner");
  check_offsets(indptr.data(), indptr.size(), indices.size(), "indptr");
  if (!ids_in_range(chunk.data(), chunk.size(), static_cast<std::int64_t>(edges.size()))) {
    reject("chunk must lie in [0, C)");
  }
  if (!ids_in_range(indices.data(), indices.size(), static_cast<std::int64_t>(chunk.size()))) {
    reject("indices must lie in [0, V)");
  }
  nb::gil_scoped_release release;
  std::fill(edges.data(), edges.data() + edges.size(), 0);
  std::fill(inner.data(), inner.data() + inner.size(), 0);
  for (std::size_t v = 0; v < chunk.size(); ++v) {
    const std::int32_t home = chunk.data()[v];
    std::int64_t incoming = 0;
    std::int64_t inside = 0;
    for (std::int64_t e = indptr.data()[v]; e < indptr.data()[v + 1]; ++e) {
      const std::uint8_t who = direction.data()[e];
      const auto u = static_cast<std::size_t>(indices.data()[e]);
      incoming += who & kIncoming;
      inside += who != 0 && u > v && chunk.data()[u] == home;
    }
    edges.data()[home] += incoming;
    inner.data()[home] += inside;
  }
}

// Weight of the entries whose ends lie in different parts.
std::int64_t weight_apart(Array<const std::int64_t> indptr, Array<const std::int32_t> indices,
                          Array<const std::int32_t> weight, Array<const std::int32_t> part) {
  check_size(indptr, part.size() + 1, "indptr");
  check_size(weight, indices.size(), "weight");
  check_offsets(indptr.data(), indptr.size(), indices.size(), "indptr");
  if (!ids_in_range(indices.data(), indices.size(), static_cast<std::int64_t>(part.size()))) {
    reject("indices must lie in [0, V)");
  }
  nb::gil_scoped_release release;
  std::int64_t sum = 0;
  for (std::size_t v = 0; v < part.size(); ++v) {
    for (std::int64_t e = indptr.data()[v]; e < indptr.data()[v + 1]; ++e) {
      if (part.data()[indices.data()[e]] != part.data()[v]) sum += weight.data()[e];
    }
  }
  return sum;
}

// Vertices by chunk, ascending inside each; chunk c lies in [first[c], first[c + 1]).
void order_by_chunk(Array<const std::int32_t> chunk, Array<std::int64_t> first,
                    Array<std::int64_t> order) {
  const std::int64_t chunks = static_cast<std::int64_t>(first.size()) - 1;
  check_size(order, chunk.size(), "order");
  if (chunks < 0 || !ids_in_range(chunk.data(), chunk.size(), chunks)) {
    reject("chunk must lie in [0, C)");
  }
  nb::gil_scoped_release release;
  std::fill(first.data(), first.data() + first.size(), 0);
  for (std::size_t v = 0; v < chunk.size(); ++v) ++first.data()[chunk.data()[v] + 1];
  for (std::int64_t c = 0; c < chunks; ++c) first.data()[c + 1] += first.data()[c];
  std::vector<std::int64_t> next(first.data(), first.data() + chunks);
  for (std::size_t v = 0; v < chunk.size(); ++v) {
    order.data()[next[chunk.data()[v]]++] = static_cast<std::int64_t>(v);
  }
}

// Weights between different chunks as sparse rows with ascending columns. `columns` and `weight`
// have room for all entries of the graph; returns how many are used. `order` lists the vertices by
// chunk, chunk c in [first[c], first[c + 1]).
std::int64_t chunk_traffic(Array<const std::int64_t> indptr, Array<const std::int32_t> indices,
                           Array<const std::int32_t> edge_weight, Array<const std::int32_t> chunk,
                           Array<const std::int64_t> order, Array<const std::int64_t> first,
                           Array<std::int64_t> offsets, Array<std::int32_t> columns,
                           Array<std::int64_t> weight) {
  const auto vertices = static_cast<std::int64_t>(chunk.size());
  const std::int64_t chunks = static_cast<std::int64_t>(first.size()) - 1;
  check_size(indptr, chunk.size() + 1, "indptr");
  check_size(edge_weight, indices.size(), "edge_weight");
  check_size(order, chunk.size(), "order");
  check_size(offsets, first.size(), "offsets");
  check_size(columns, indices.size(), "columns");
  check_size(weight, indices.size(), "weight");
  check_offsets(indptr.data(), indptr.size(), indices.size(), "indptr");
  check_offsets(first.data(), first.size(), chunk.size(), "first");
  if (!ids_in_range(indices.data(), indices.size(), vertices)) {
    reject("indices must lie in [0, V)");
  }
  if (!ids_in_range(chunk.data(), chunk.size(), chunks)) reject("chunk must lie in [0, C)");
  if (!ids_in_range(order.data(), order.size(), vertices)) reject("order must lie in [0, V)");
  nb::gil_scoped_release release;
  LabelSums sums;
  std::vector<Vote> row;
  std::int64_t used = 0;
  offsets.data()[0] = 0;
  for (std::int64_t c = 0; c < chunks; ++c) {
    std::int64_t entries = 0;
    for (std::int64_t i = first.data()[c]; i < first.data()[c + 1]; ++i) {
      const std::int64_t v = order.data()[i];
      entries += indptr.data()[v + 1] - indptr.data()[v];
    }
    row.clear();
    const bool few = entries <= kFew;
    if (!few) sums.start(static_cast<std::size_t>(std::min(entries, chunks)));
    for (std::int64_t i = first.data()[c]; i < first.data()[c + 1]; ++i) {
      const std::int64_t v = order.data()[i];
      for (std::int64_t e = indptr.data()[v]; e < indptr.data()[v + 1]; ++e) {
        const std::int32_t other = chunk.data()[indices.data()[e]];
        if (other == c) continue;
        if (few) {
          row.push_back(Vote{edge_weight.data()[e], other});
        } else {
          sums[other] += edge_weight.data()[e];
        }
      }
    }
    if (!few) sums.each([&](const Vote& vote) { row.push_back(vote); });
    std::sort(row.begin(), row.end(),
              [](const Vote& a, const Vote& b) { return a.label < b.label; });
    const std::int64_t begin = used;
    for (const Vote& vote : row) {
      if (used > begin && columns.data()[used - 1] == vote.label) {
        weight.data()[used - 1] += vote.weight;
        continue;
      }
      columns.data()[used] = vote.label;
      weight.data()[used++] = vote.weight;
    }
    offsets.data()[c + 1] = used;
  }
  return used;
}

// Algorithm 1 of DGC, see kernels_cuda/supergraph/op.py.
void assign_greedy(Array<const std::int64_t> order, Array<const double> workload,
                   Array<const std::int64_t> indptr, Array<const std::int32_t> indices,
                   Array<const std::int64_t> weight, std::int32_t workers, double target,
                   double epsilon, bool guarded, Array<std::int32_t> worker) {
  const std::size_t chunks = order.size();
  check_size(workload, chunks, "workload");
  check_size(indptr, chunks + 1, "indptr");
  check_size(weight, indices.size(), "weight");
  check_offsets(indptr.data(), indptr.size(), indices.size(), "indptr");
  check_size(worker, chunks, "worker");
  if (!ids_in_range(indices.data(), indices.size(), static_cast<std::int64_t>(chunks))) {
    reject("indices must lie in [0, C)");
  }
  if (workers < 1) reject("workers must be at least 1");
  if (!ids_in_range(order.data(), chunks, static_cast<std::int64_t>(chunks))) {
    reject("order must lie in [0, C)");
  }
  nb::gil_scoped_release release;
  std::fill(worker.data(), worker.data() + chunks, -1);
  std::vector<double> load(workers, 0.0);
  std::vector<std::int64_t> affinity(workers);
  for (std::size_t i = 0; i < chunks; ++i) {
    const std::int64_t a = order.data()[i];
    std::fill(affinity.begin(), affinity.end(), 0);
    for (std::int64_t e = indptr.data()[a]; e < indptr.data()[a + 1]; ++e) {
      const std::int32_t m = worker.data()[indices.data()[e]];
      if (m >= 0) affinity[m] += weight.data()[e];
    }
    std::int32_t best = 0;
    double best_score = 0.0;
    for (std::int32_t m = 0; m < workers; ++m) {
      const double headroom = target - load[m];
      double score = headroom * (static_cast<double>(affinity[m]) + epsilon);
      // Above the target a score would punish traffic: only the load counts there.
      if (guarded && headroom <= 0.0) score = headroom;
      const bool tie = guarded && score == best_score && load[m] < load[best];
      const bool wins = score > best_score || tie;
      if (m == 0 || wins) {
        best = m;
        best_score = score;
      }
    }
    worker.data()[a] = best;
    load[best] += workload.data()[a];
  }
}

}  // namespace

void bind_supergraph_chunks(nb::module_& m) {
  m.def("chunk_sequences", &chunk_sequences, "start"_a.noconvert(), "chunk"_a.noconvert(),
        "sequences"_a.noconvert(), "longest"_a.noconvert());
  m.def("chunk_edges", &chunk_edges, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "direction"_a.noconvert(), "chunk"_a.noconvert(), "edges"_a.noconvert(),
        "inner"_a.noconvert());
  m.def("weight_apart", &weight_apart, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "weight"_a.noconvert(), "part"_a.noconvert());
  m.def("order_by_chunk", &order_by_chunk, "chunk"_a.noconvert(), "first"_a.noconvert(),
        "order"_a.noconvert());
  m.def("chunk_traffic", &chunk_traffic, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "edge_weight"_a.noconvert(), "chunk"_a.noconvert(), "order"_a.noconvert(),
        "first"_a.noconvert(), "offsets"_a.noconvert(), "columns"_a.noconvert(),
        "weight"_a.noconvert());
  m.def("assign_greedy", &assign_greedy, "order"_a.noconvert(), "workload"_a.noconvert(),
        "indptr"_a.noconvert(), "indices"_a.noconvert(), "weight"_a.noconvert(), "workers"_a,
        "target"_a, "epsilon"_a, "guarded"_a, "worker"_a.noconvert());
}

}  // namespace dgbench
