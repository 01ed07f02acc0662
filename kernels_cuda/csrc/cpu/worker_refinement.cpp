// Moves of vertices between workers that lower what workers send each other (DGC 3.5, our addition).
//
// What is sent is the connectivity of a hypergraph: a net holds a vertex-step and all that read it,
// and costs its weight for each worker beyond the first that holds one of its pins. Nets of two
// pins are edges and stand in a graph of their own. Vertices are visited in a fixed order by one
// thread, and all sums are integers: the result depends on the input only. Making the nets, joining
// clusters and moving vertices stand in one file, for they share one layout and nothing else reads it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/check.hpp"
#include "cpu/label_sums.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

constexpr std::int32_t kMostWorkers = 64;
constexpr std::int32_t kWide = 512;  // pins from which a net wakes nobody

struct Hypergraph {
  std::int64_t vertices;
  std::int64_t nets;
  const std::int64_t* first;  // nets of a vertex
  const std::int32_t* net;
  const std::int32_t* net_weight;
  const std::int64_t* edge_first;
  const std::int32_t* other;
  const std::int32_t* edge_weight;
  const std::int64_t* load;  // weight of a vertex
};

// Pins of every net, ascending.
struct Pins {
  std::vector<std::int64_t> first;
  std::vector<std::int32_t> vertex;

  explicit Pins(const Hypergraph& h)
      : first(static_cast<std::size_t>(h.nets) + 1, 0),
        vertex(static_cast<std::size_t>(h.first[h.vertices])) {
    for (std::int64_t e = 0; e < h.first[h.vertices]; ++e) ++first[h.net[e] + 1];
    for (std::int64_t n = 0; n < h.nets; ++n) first[n + 1] += first[n];
    std::vector<std::int64_t> next(first.begin(), first.end() - 1);
    for (std::int64_t v = 0; v < h.vertices; ++v) {
      for (std::int64_t e = h.first[v]; e < h.first[v + 1]; ++e) {
        vertex[next[h.net[e]]++] = static_cast<std::int32_t>(v);
      }
    }
  }
};

template <int P>  // 0: any number
class Refiner {
 public:
  Refiner(const Hypergraph& h, std::int32_t* part, int size, std::int64_t cap)
      : h_(h),
        pins_(h),
        part_(part),
        size_(P ? P : size),
        cap_(cap),
        count_(static_cast<std::size_t>(h.nets) * size_, 0),
        cut_(h.nets, 0),
        loads_(size_, 0),
        awake_(h.vertices, 1) {
    for (std::int64_t v = 0; v < h.vertices; ++v) loads_[part[v]] += h.load[v];
    for (std::int64_t n = 0; n < h.nets; ++n) {
      for (std::int64_t i = pins_.first[n]; i < pins_.first[n + 1]; ++i) {
        ++count(n, part[pins_.vertex[i]]);
      }
      mark(n);
    }
  }

  // Every awake vertex to the worker of the largest gain that has room; ties to the smaller load.
  std::int64_t sweep() {
    std::int64_t moved = 0;
    for (std::int64_t v = 0; v < h_.vertices; ++v) {
      if (!awake_[v]) continue;
      awake_[v] = 0;
      if (!at_border(v)) continue;
      weigh(v);
      const std::int32_t own = part_[v];
      const std::int64_t weight = h_.load[v];
      std::int64_t best_gain = 0;
      std::int32_t best = own;
      for (std::int32_t b = 0; b < parts(); ++b) {
        if (b == own || loads_[b] + weight > cap_) continue;
        const std::int64_t gain = gain_[b];
        const bool evens = loads_[b] + weight < loads_[best] + (best == own ? 0 : weight);
        if (gain > best_gain || (gain == best_gain && evens && weight > 0)) {
          best_gain = gain;
          best = b;
        }
      }
      if (best == own) continue;
      move(v, best);
      ++moved;
    }
    return moved;
  }

  // Moves vertices out of workers above the cap, those that cost least for their weight first.
  std::int64_t even() {
    std::int64_t moved = 0;
    for (int turn = 0; turn < 4; ++turn) {
      if (*std::max_element(loads_.begin(), loads_.end()) <= cap_) break;
      leaving_.clear();
      for (std::int64_t v = 0; v < h_.vertices; ++v) {
        if (loads_[part_[v]] <= cap_ || h_.load[v] == 0) continue;
        weigh(v);
        const std::int32_t to = roomiest_gain(v);
        if (to < 0) continue;
        leaving_.push_back(Leaving{-static_cast<double>(gain_[to]) / h_.load[v],
                                   static_cast<std::int32_t>(v)});
      }
      std::sort(leaving_.begin(), leaving_.end(), [](const Leaving& a, const Leaving& b) {
        return a.price != b.price ? a.price < b.price : a.vertex < b.vertex;
      });
      std::int64_t now = 0;
      for (const Leaving& l : leaving_) {
        if (loads_[part_[l.vertex]] <= cap_) continue;
        weigh(l.vertex);
        const std::int32_t to = roomiest_gain(l.vertex);
        if (to < 0) continue;
        move(l.vertex, to);
        ++now;
      }
      moved += now;
      if (now == 0) break;
    }
    return moved;
  }

 private:
  struct Leaving {
    double price;
    std::int32_t vertex;
  };

  int parts() const { return P ? P : size_; }
  std::int32_t& count(std::int64_t net, std::int32_t part) { return count_[net * parts() + part]; }

  void mark(std::int64_t net) {
    int some = 0;
    for (int b = 0; b < parts(); ++b) some += count(net, b) > 0;
    cut_[net] = some > 1;
  }

  // Whether v touches another worker, or nothing at all.
  bool at_border(std::int64_t v) const {
    const std::int64_t nets = h_.first[v + 1];
    for (std::int64_t e = h_.first[v]; e < nets; ++e) {
      if (cut_[h_.net[e]]) return true;
    }
    const std::int64_t edges = h_.edge_first[v + 1];
    for (std::int64_t e = h_.edge_first[v]; e < edges; ++e) {
      if (part_[h_.other[e]] != part_[v]) return true;
    }
    return h_.first[v] == nets && h_.edge_first[v] == edges;
  }

  // Gains of moving v to each worker into gain_.
  void weigh(std::int64_t v) {
    const std::int32_t own = part_[v];
    std::int64_t pay[kMostWorkers] = {};
    std::int64_t saved = 0;
    std::int64_t edges = 0;
    for (std::int64_t e = h_.first[v]; e < h_.first[v + 1]; ++e) {
      const std::int64_t n = h_.net[e];
      const std::int64_t w = h_.net_weight[n];
      const std::int32_t* at = count_.data() + n * parts();
      if (at[own] == 1) saved += w;
      for (int b = 0; b < parts(); ++b) pay[b] += at[b] == 0 ? w : 0;
    }
    for (std::int64_t e = h_.edge_first[v]; e < h_.edge_first[v + 1]; ++e) {
      const std::int64_t w = h_.edge_weight[e];
      const std::int32_t b = part_[h_.other[e]];
      // An edge is a net of two pins: it is paid at all workers but that of its other end.
      edges += w;
      pay[b] -= w;
      if (b != own) saved += w;
    }
    for (int b = 0; b < parts(); ++b) gain_[b] = saved - pay[b] - edges;
    gain_[own] = 0;
  }

  // The worker of the largest gain among those with room below the cap, -1 for none.
  std::int32_t roomiest_gain(std::int64_t v) const {
    std::int32_t best = -1;
    for (std::int32_t b = 0; b < parts(); ++b) {
      if (b == part_[v] || loads_[b] + h_.load[v] > cap_) continue;
      const bool better = best < 0 || gain_[b] > gain_[best] ||
                          (gain_[b] == gain_[best] && loads_[b] < loads_[best]);
      if (better) best = b;
    }
    return best;
  }

  void move(std::int64_t v, std::int32_t to) {
    const std::int32_t from = part_[v];
    part_[v] = to;
    loads_[from] -= h_.load[v];
    loads_[to] += h_.load[v];
    for (std::int64_t e = h_.first[v]; e < h_.first[v + 1]; ++e) {
      const std::int64_t n = h_.net[e];
      const std::int32_t left = --count(n, from);
      const std::int32_t now = ++count(n, to);
      mark(n);
      if (left > 1 && now > 2) continue;  // no gain of another pin has changed
      const std::int64_t begin = pins_.first[n];
      const std::int64_t end = pins_.first[n + 1];
      if (end - begin > kWide) continue;
      for (std::int64_t i = begin; i < end; ++i) awake_[pins_.vertex[i]] = 1;
    }
    for (std::int64_t e = h_.edge_first[v]; e < h_.edge_first[v + 1]; ++e) {
      awake_[h_.other[e]] = 1;
    }
  }

  const Hypergraph& h_;
  Pins pins_;
  std::int32_t* part_;
  int size_;
  std::int64_t cap_;
  std::vector<std::int32_t> count_;
  std::vector<std::uint8_t> cut_;  // nets with pins at two workers and more
  std::vector<std::int64_t> loads_;
  std::vector<std::uint8_t> awake_;
  std::vector<Leaving> leaving_;
  std::int64_t gain_[kMostWorkers] = {};
};

template <int P>
std::int64_t refine(const Hypergraph& h, std::int32_t* part, int size, std::int64_t cap,
                    int sweeps) {
  Refiner<P> refiner(h, part, size, cap);
  std::int64_t moved = refiner.even();
  for (int k = 0; k < sweeps; ++k) {
    const std::int64_t now = refiner.sweep();
    moved += now;
    if (now * 1000 < h.vertices && k > 0) break;
  }
  return moved;
}

Hypergraph checked(const Array<const std::int64_t>& first, const Array<const std::int32_t>& net,
                   const Array<const std::int32_t>& net_weight,
                   const Array<const std::int64_t>& edge_first,
                   const Array<const std::int32_t>& other,
                   const Array<const std::int32_t>& edge_weight,
                   const Array<const std::int64_t>& load) {
  const std::size_t vertices = load.size();
  check_size(first, vertices + 1, "first");
  check_size(edge_first, vertices + 1, "edge_first");
  check_size(edge_weight, other.size(), "edge_weight");
  check_offsets(first.data(), first.size(), net.size(), "first");
  check_offsets(edge_first.data(), edge_first.size(), other.size(), "edge_first");
  const auto count = static_cast<std::int64_t>(vertices);
  const auto nets = static_cast<std::int64_t>(net_weight.size());
  if (!ids_in_range(net.data(), net.size(), nets)) reject("net must lie in [0, nets)");
  if (!ids_in_range(other.data(), other.size(), count)) reject("other must lie in [0, V)");
  return Hypergraph{count,        nets,       first.data(),       net.data(),
                    net_weight.data(), edge_first.data(), other.data(), edge_weight.data(),
                    load.data()};
}

// Nets of who hears whom, see systems/dgc/refinement.py; returns (nets, pins, edge entries).
nb::tuple hearing_hypergraph(Array<const std::int64_t> indptr, Array<const std::int32_t> indices,
                             Array<const std::uint8_t> direction, Array<const std::int64_t> start,
                             Array<const std::int32_t> entity, std::int32_t spatial,
                             std::int32_t temporal, bool all_steps, Array<std::int64_t> first,
                             Array<std::int32_t> net, Array<std::int32_t> net_weight,
                             Array<std::int64_t> edge_first, Array<std::int32_t> other,
                             Array<std::int32_t> edge_weight) {
  constexpr std::uint8_t kHears = 1;
  constexpr std::uint8_t kHeard = 2;
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
      int heard = 0;
      for (std::int64_t e = indptr.data()[v]; e < indptr.data()[v + 1]; ++e) {
        heard += (direction.data()[e] & kHeard) != 0;
      }
      readers[v] = static_cast<std::uint8_t>(std::min(heard, 2));
      if (heard < 2) continue;
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
        if (kind & kHears) {
          if (readers[u] == 1) {
            weight += spatial;
          } else {
            net.data()[pins++] = number[u];
          }
        }
        if ((kind & kHeard) && readers[v] == 1) weight += spatial;
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

// Returns the number of moves; `part` is changed in place.
std::int64_t refine_workers(Array<const std::int64_t> first, Array<const std::int32_t> net,
                            Array<const std::int32_t> net_weight,
                            Array<const std::int64_t> edge_first,
                            Array<const std::int32_t> other,
                            Array<const std::int32_t> edge_weight,
                            Array<const std::int64_t> load, Array<std::int32_t> part, int workers,
                            std::int64_t cap, int sweeps) {
  const Hypergraph h = checked(first, net, net_weight, edge_first, other, edge_weight, load);
  check_size(part, load.size(), "part");
  if (workers < 1 || workers > kMostWorkers) reject("workers must be 1 to 64");
  if (!ids_in_range(part.data(), part.size(), workers)) reject("part must lie in [0, P)");
  nb::gil_scoped_release release;
  switch (workers) {
    case 2: return refine<2>(h, part.data(), 2, cap, sweeps);
    case 4: return refine<4>(h, part.data(), 4, cap, sweeps);
    case 8: return refine<8>(h, part.data(), 8, cap, sweeps);
    default: return refine<0>(h, part.data(), workers, cap, sweeps);
  }
}

// Sum over nets and edges of weight * (workers with a pin - 1).
std::int64_t connectivity(Array<const std::int64_t> first, Array<const std::int32_t> net,
                          Array<const std::int32_t> net_weight,
                          Array<const std::int64_t> edge_first, Array<const std::int32_t> other,
                          Array<const std::int32_t> edge_weight, Array<const std::int64_t> load,
                          Array<const std::int32_t> part) {
  const Hypergraph h = checked(first, net, net_weight, edge_first, other, edge_weight, load);
  check_size(part, load.size(), "part");
  if (!ids_in_range(part.data(), part.size(), kMostWorkers)) reject("part must lie in [0, 64)");
  nb::gil_scoped_release release;
  std::vector<std::uint64_t> seen(static_cast<std::size_t>(h.nets), 0);
  std::int64_t sum = 0;
  std::int64_t twice = 0;
  for (std::int64_t v = 0; v < h.vertices; ++v) {
    const std::int32_t own = part.data()[v];
    for (std::int64_t e = h.first[v]; e < h.first[v + 1]; ++e) {
      seen[h.net[e]] |= std::uint64_t{1} << own;
    }
    for (std::int64_t e = h.edge_first[v]; e < h.edge_first[v + 1]; ++e) {
      if (part.data()[h.other[e]] != own) twice += h.edge_weight[e];
    }
  }
  for (std::int64_t n = 0; n < h.nets; ++n) {
    if (seen[n]) sum += h.net_weight[n] * (__builtin_popcountll(seen[n]) - 1);
  }
  return sum + twice / 2;
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
  const Hypergraph h = checked(first, net, net_weight, edge_first, other, edge_weight, load);
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

void bind_worker_refinement(nb::module_& m) {
  m.def("hearing_hypergraph", &hearing_hypergraph, "indptr"_a.noconvert(),
        "indices"_a.noconvert(), "direction"_a.noconvert(), "start"_a.noconvert(),
        "entity"_a.noconvert(), "spatial"_a, "temporal"_a, "all_steps"_a, "first"_a.noconvert(),
        "net"_a.noconvert(), "net_weight"_a.noconvert(), "edge_first"_a.noconvert(),
        "other"_a.noconvert(), "edge_weight"_a.noconvert());
  m.def("refine_workers", &refine_workers, "first"_a.noconvert(), "net"_a.noconvert(),
        "net_weight"_a.noconvert(), "edge_first"_a.noconvert(), "other"_a.noconvert(),
        "edge_weight"_a.noconvert(), "load"_a.noconvert(), "part"_a.noconvert(), "workers"_a,
        "cap"_a, "sweeps"_a);
  m.def("connectivity", &connectivity, "first"_a.noconvert(), "net"_a.noconvert(),
        "net_weight"_a.noconvert(), "edge_first"_a.noconvert(), "other"_a.noconvert(),
        "edge_weight"_a.noconvert(), "load"_a.noconvert(), "part"_a.noconvert());
  m.def("contract_hypergraph", &contract_hypergraph, "first"_a.noconvert(), "net"_a.noconvert(),
        "net_weight"_a.noconvert(), "edge_first"_a.noconvert(), "other"_a.noconvert(),
        "edge_weight"_a.noconvert(), "load"_a.noconvert(), "cluster"_a.noconvert(),
        "out_first"_a.noconvert(), "out_net"_a.noconvert(), "out_net_weight"_a.noconvert(),
        "out_edge_first"_a.noconvert(), "out_other"_a.noconvert(),
        "out_edge_weight"_a.noconvert(), "out_load"_a.noconvert());
}

}  // namespace dgbench
