// Moves of vertices between workers that lower what workers send each other (DGC 3.5, our addition).
//
// What is sent is the connectivity of a hypergraph: a net holds a vertex-step and all that read it,
// and costs its weight for each worker beyond the first that holds one of its pins. Nets of two
// pins are edges and stand in a graph of their own. Vertices are visited in a fixed order by one
// thread, and all sums are integers: the result depends on the input only.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/check.hpp"
#include "supergraph/cpu_hypergraph.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

constexpr std::int32_t kMaxWorkers = 64;
constexpr std::int32_t kWide = 512;  // pins from which a net wakes nobody

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
    std::int64_t pay[kMaxWorkers] = {};
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
  std::int64_t gain_[kMaxWorkers] = {};
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

// Returns the number of moves; `part` is changed in place.
std::int64_t refine_workers(Array<const std::int64_t> first, Array<const std::int32_t> net,
                            Array<const std::int32_t> net_weight,
                            Array<const std::int64_t> edge_first,
                            Array<const std::int32_t> other,
                            Array<const std::int32_t> edge_weight,
                            Array<const std::int64_t> load, Array<std::int32_t> part, int workers,
                            std::int64_t cap, int sweeps) {
  const Hypergraph h = checked_hypergraph(first, net, net_weight, edge_first, other, edge_weight, load);
  check_size(part, load.size(), "part");
  if (workers < 1 || workers > kMaxWorkers) reject("workers must be 1 to 64");
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
  const Hypergraph h = checked_hypergraph(first, net, net_weight, edge_first, other, edge_weight, load);
  check_size(part, load.size(), "part");
  if (!ids_in_range(part.data(), part.size(), kMaxWorkers)) reject("part must lie in [0, 64)");
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

}  // namespace

void bind_worker_refinement(nb::module_& m) {
  m.def("refine_workers", &refine_workers, "first"_a.noconvert(), "net"_a.noconvert(),
        "net_weight"_a.noconvert(), "edge_first"_a.noconvert(), "other"_a.noconvert(),
        "edge_weight"_a.noconvert(), "load"_a.noconvert(), "part"_a.noconvert(), "workers"_a,
        "cap"_a, "sweeps"_a);
  m.def("connectivity", &connectivity, "first"_a.noconvert(), "net"_a.noconvert(),
        "net_weight"_a.noconvert(), "edge_first"_a.noconvert(), "other"_a.noconvert(),
        "edge_weight"_a.noconvert(), "load"_a.noconvert(), "part"_a.noconvert());
}

}  // namespace dgbench
