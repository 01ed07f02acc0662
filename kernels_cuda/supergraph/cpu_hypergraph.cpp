// Making hypergraphs: of the edges of a supergraph, and of the clusters of another one.
#include "supergraph/cpu_hypergraph.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "label_propagation/cpu_label_sums.hpp"
#include "supergraph/cpu_edge_direction.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

// Nets of vertices and those that read their rows, see systems/dgc/refinement.py; returns (nets,
// pins, edge entries).
nb::tuple reader_hypergraph(Array<const std::int64_t> indptr, Array<const std::int32_t> indices,
                            Array<const std::uint8_t> direction, Array<const std::int64_t> start,
                            Array<const std::int32_t> entity, std::int32_t spatial,
                            std::int32_t temporal, bool all_steps, Array<std::int64_t> first,
                            Array<std::int32_t> net, Array<std::int32_t> net_weight,
                            Array<std::int64_t> edge_first, Array<std::int32_t> other,
                            Array<std::int32_t> edge_weight) {
  const auto count = static_cast<std::int64_t>(entity.size());
  const std::int64_t entities = static_cast<std::int64_t>(start.size()) - 1;
  const std::size_t per_vertex = all_steps ? 2 : 1;
  check_size(indptr, entity.size() + 1, "indptr");
  check_offsets(indptr.data(), indptr.size(), indices.size(), "indptr");
  check_offsets(start.data(), start.size(), entity.size(), "start");
  check_size(direction, indices.size(), "direction");
  check_size(first, entity.size() + 1, "first");
  check_size(edge_first, entity.size() + 1, "edge_first");
  check_size(net, indices.size() + per_vertex * entity.size(), "net");
  check_size(net_weight, entity.size() + start.size(), "net_weight");
  check_size(other, indices.size(), "other");
  check_size(edge_weight, indices.size(), "edge_weight");
  if (!ids_in_range(indices.data(), indices.size(), count)) reject("indices must lie in [0, V)");
  if (!ids_in_range(entity.data(), entity.size(), entities)) reject("entity must lie in [0, N)");
  std::int64_t nets = 0;
  std::int64_t pins = 0;
  std::int64_t edges = 0;
  {
    nb::gil_scoped_release release;
    std::vector<std::uint8_t> readers(count, 0);  // 2 stands for more
    std::vector<std::int32_t> number(count, -1);
    for (std::int64_t v = 0; v < count; ++v) {
      int count_read = 0;
      for (std::int64_t e = indptr.data()[v]; e < indptr.data()[v + 1]; ++e) {
        count_read += (direction.data()[e] & kOutgoing) != 0;
      }
      readers[v] = static_cast<std::uint8_t>(std::min(count_read, 2));
      if (count_read < 2) continue;
      net_weight.data()[nets] = spatial;
      number[v] = static_cast<std::int32_t>(nets++);
    }
    std::vector<std::int32_t> sequence(all_steps ? entities : 0, -1);
    for (std::int64_t i = 0; all_steps && i < entities; ++i) {
      const std::int64_t length = start.data()[i + 1] - start.data()[i];
      if (length < 3) continue;
      net_weight.data()[nets] = static_cast<std::int32_t>(length * temporal);
      sequence[i] = static_cast<std::int32_t>(nets++);
    }
    first.data()[0] = 0;
    edge_first.data()[0] = 0;
    for (std::int64_t v = 0; v < count; ++v) {
      const std::int64_t home = entity.data()[v];
      if (number[v] >= 0) net.data()[pins++] = number[v];
      if (all_steps && sequence[home] >= 0) net.data()[pins++] = sequence[home];
      for (std::int64_t e = indptr.data()[v]; e < indptr.data()[v + 1]; ++e) {
        const std::int32_t u = indices.data()[e];
        const std::uint8_t kind = direction.data()[e];
        std::int32_t weight = 0;
        if (kind == 0) {
          if (!all_steps) weight = temporal;
          if (all_steps && sequence[home] < 0) weight = 2 * temporal;
        }
        if (kind & kIncoming) {
          if (readers[u] == 1) {
            weight += spatial;
          } else {
            net.data()[pins++] = number[u];
          }
        }
        if ((kind & kOutgoing) && readers[v] == 1) weight += spatial;
        if (weight == 0) continue;
        other.data()[edges] = u;
        edge_weight.data()[edges++] = weight;
      }
      first.data()[v + 1] = pins;
      edge_first.data()[v + 1] = edges;
    }
  }
  return nb::make_tuple(nets, pins, edges);
}

// Joins the vertices of each cluster. Nets inside one cluster go, nets of two clusters become edges.
// Outputs have room for as many entries as there are; returns (nets, pins, edge entries).
nb::tuple contract_hypergraph(Array<const std::int64_t> first, Array<const std::int32_t> net,
                              Array<const std::int32_t> net_weight,
                              Array<const std::int64_t> edge_first,
                              Array<const std::int32_t> other,
                              Array<const std::int32_t> edge_weight,
                              Array<const std::int64_t> load, Array<const std::int32_t> cluster,
                              Array<std::int64_t> out_first, Array<std::int32_t> out_net,
                              Array<std::int32_t> out_net_weight,
                              Array<std::int64_t> out_edge_first, Array<std::int32_t> out_other,
                              Array<std::int64_t> out_edge_weight, Array<std::int64_t> out_load) {
  const Hypergraph h = checked_hypergraph(first, net, net_weight, edge_first, other, edge_weight, load);
  const auto clusters = static_cast<std::int64_t>(out_load.size());
  check_size(cluster, load.size(), "cluster");
  check_size(out_first, out_load.size() + 1, "out_first");
  check_size(out_edge_first, out_load.size() + 1, "out_edge_first");
  check_size(out_net, net.size(), "out_net");
  check_size(out_net_weight, net_weight.size(), "out_net_weight");
  check_size(out_other, net.size() + other.size(), "out_other");
  check_size(out_edge_weight, out_other.size(), "out_edge_weight");
  if (!ids_in_range(cluster.data(), cluster.size(), clusters)) reject("cluster must lie in [0, C)");
  std::int64_t nets = 0;
  std::int64_t pins = 0;
  std::int64_t edges = 0;
  {
    nb::gil_scoped_release release;
    const std::int32_t* c = cluster.data();
    std::vector<std::int64_t> begin(clusters + 1, 0);
    std::vector<std::int32_t> order(h.vertices);
    for (std::int64_t v = 0; v < h.vertices; ++v) ++begin[c[v] + 1];
    for (std::int64_t k = 0; k < clusters; ++k) begin[k + 1] += begin[k];
    {
      std::vector<std::int64_t> next(begin.begin(), begin.end() - 1);
      for (std::int64_t v = 0; v < h.vertices; ++v) {
        order[next[c[v]]++] = static_cast<std::int32_t>(v);
      }
    }
    std::vector<std::int32_t> last(h.nets, -1);
    std::vector<std::int32_t> size(h.nets, 0);
    std::vector<std::int64_t> sum(h.nets, 0);  // of the clusters of a net: one gives the other
    for (std::int64_t k = 0; k < clusters; ++k) {
      out_load.data()[k] = 0;
      for (std::int64_t i = begin[k]; i < begin[k + 1]; ++i) {
        const std::int64_t v = order[i];
        out_load.data()[k] += h.load[v];
        for (std::int64_t e = h.first[v]; e < h.first[v + 1]; ++e) {
          const std::int32_t n = h.net[e];
          if (last[n] == k) continue;
          last[n] = static_cast<std::int32_t>(k);
          ++size[n];
          sum[n] += k;
        }
      }
    }
    std::vector<std::int32_t> number(h.nets, -1);
    for (std::int64_t n = 0; n < h.nets; ++n) {
      last[n] = -1;
      if (size[n] < 3) continue;
      out_net_weight.data()[nets] = h.net_weight[n];
      number[n] = static_cast<std::int32_t>(nets++);
    }
    LabelSums sums;
    std::vector<Vote> row;
    out_first.data()[0] = 0;
    out_edge_first.data()[0] = 0;
    for (std::int64_t k = 0; k < clusters; ++k) {
      std::int64_t most = 0;
      for (std::int64_t i = begin[k]; i < begin[k + 1]; ++i) {
        const std::int64_t v = order[i];
        most += h.first[v + 1] - h.first[v] + h.edge_first[v + 1] - h.edge_first[v];
      }
      sums.start(static_cast<std::size_t>(std::min(most, clusters)));
      for (std::int64_t i = begin[k]; i < begin[k + 1]; ++i) {
        const std::int64_t v = order[i];
        for (std::int64_t e = h.first[v]; e < h.first[v + 1]; ++e) {
          const std::int32_t n = h.net[e];
          if (last[n] == k || size[n] < 2) continue;
          last[n] = static_cast<std::int32_t>(k);
          if (size[n] == 2) {
            sums[static_cast<std::int32_t>(sum[n] - k)] += h.net_weight[n];
          } else {
            out_net.data()[pins++] = number[n];
          }
        }
        for (std::int64_t e = h.edge_first[v]; e < h.edge_first[v + 1]; ++e) {
          const std::int32_t to = c[h.other[e]];
          if (to != k) sums[to] += h.edge_weight[e];
        }
      }
      row.clear();
      sums.each([&](const Vote& vote) { row.push_back(vote); });
      std::sort(row.begin(), row.end(),
                [](const Vote& a, const Vote& b) { return a.label < b.label; });
      for (const Vote& vote : row) {
        out_other.data()[edges] = vote.label;
        out_edge_weight.data()[edges++] = vote.weight;
      }
      out_first.data()[k + 1] = pins;
      out_edge_first.data()[k + 1] = edges;
    }
  }
  return nb::make_tuple(nets, pins, edges);
}

}  // namespace

void bind_hypergraph(nb::module_& m) {
  m.def("reader_hypergraph", &reader_hypergraph, "indptr"_a.noconvert(),
        "indices"_a.noconvert(), "direction"_a.noconvert(), "start"_a.noconvert(),
        "entity"_a.noconvert(), "spatial"_a, "temporal"_a, "all_steps"_a, "first"_a.noconvert(),
        "net"_a.noconvert(), "net_weight"_a.noconvert(), "edge_first"_a.noconvert(),
        "other"_a.noconvert(), "edge_weight"_a.noconvert());
  m.def("contract_hypergraph", &contract_hypergraph, "first"_a.noconvert(), "net"_a.noconvert(),
        "net_weight"_a.noconvert(), "edge_first"_a.noconvert(), "other"_a.noconvert(),
        "edge_weight"_a.noconvert(), "load"_a.noconvert(), "cluster"_a.noconvert(),
        "out_first"_a.noconvert(), "out_net"_a.noconvert(), "out_net_weight"_a.noconvert(),
        "out_edge_first"_a.noconvert(), "out_other"_a.noconvert(),
        "out_edge_weight"_a.noconvert(), "out_load"_a.noconvert());
}

}  // namespace dgbench
