// Samples around roots, layer by layer: of every vertex's neighbours (node-wise by definition), of
// their union (T-GCN's Algorithm 4), or of a pool that all roots of a batch share (layer-wise).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include <cmath>
#include <limits>

#include "common/lists.hpp"
#include "edge_sampling/cpu_draws.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench::sampling {
namespace {

enum class Space : int { vertex, edges, vertices };  // what one set is drawn from
enum class Weigh : int { one, degree, edge };

struct Sampled {
  int32_t eid, source, neighbour;
};

// Neighbours of one vertex that come into question: count records from `first` on.
struct Stretch {
  int32_t vertex;
  int64_t first, count;
};

struct Settings {
  const EdgeTable& table;
  Space space;
  Weigh weigh;
  const double* edge_weights;   // by edge id
  std::vector<int64_t> sizes;   // per layer, or empty: `share` of what there is
  double share;
  int layers;
  bool timed;

  int64_t wanted(int layer, int64_t there) const {
    if (!sizes.empty()) return std::min(sizes[layer], there);
    const double wanted = std::floor(share * static_cast<double>(there) + 0.5);
    return std::min(there, static_cast<int64_t>(wanted));
  }
};

// What all threads write to.
struct SampledOutput {
  SampledOutput(int layers, int64_t groups, int threads) : nodes(groups, threads) {
    for (int i = 0; i < layers; ++i) layer.emplace_back(groups, threads);
    pools.assign(static_cast<std::size_t>(groups) * layers, 0);
  }
  std::vector<Ragged<Sampled>> layer;
  Ragged<int32_t> nodes;       // of each group, in order of being reached
  std::vector<int64_t> pools;  // [groups, layers], elements there were to draw from
  DrawCounts counts;
};

// One thread's memory.
template <class W>
class Sampler {
 public:
  Sampler(const Settings& with, std::unique_ptr<PoolMethod<W>> method, SampledOutput& to,
          int thread)
      : set_(with), method_(std::move(method)), to_(to), thread_(thread),
        next_(with.table.vertices), reached_(with.table.vertices),
        candidates_(with.space == Space::vertices ? with.table.vertices : 0) {}

  DrawCounts counts() const { return method_->counts(); }

  // Group `g` are `count` roots; their bounds may be null.
  void sample(int64_t g, const int64_t* roots, const double* bounds, int64_t count, DrawNumbers rng) {
    next_.clear();
    reached_.clear();
    next_bounds_.clear();
    for (int64_t i = 0; i < count; ++i) {
      arrive(static_cast<int32_t>(roots[i]),
             bounds ? bounds[i] : std::numeric_limits<double>::infinity());
    }
    for (int layer = 0; layer < set_.layers; ++layer) {
      auto& arena = to_.layer[layer].arena(thread_);
      const std::size_t begin = arena.size();
      const int64_t pool = gather();
      to_.pools[g * set_.layers + layer] = pool;
      next_.clear();
      next_bounds_.clear();
      if (set_.space == Space::vertex) {
        for (const Stretch& one : stretches_) choose(&one, 1, one.count, layer, rng, arena);
      } else if (set_.space == Space::edges) {
        choose(stretches_.data(), stretches_.size(), pool, layer, rng, arena);
      } else {
        to_.pools[g * set_.layers + layer] = choose_vertices(layer, rng, arena);
      }
      to_.layer[layer].close(g, thread_, begin);
    }
    auto& nodes = to_.nodes.arena(thread_);
    const std::size_t begin = nodes.size();
    nodes.insert(nodes.end(), reached_.items().begin(), reached_.items().end());
    to_.nodes.close(g, thread_, begin);
  }

 private:
  // A vertex of the layer to come; of several times it is reached by, the latest counts.
  void arrive(int32_t v, double bound) {
    reached_.insert(v);
    if (next_.insert(v)) {
      if (set_.timed) next_bounds_.push_back(bound);
    } else if (set_.timed) {
      double& known = next_bounds_[next_.find(v)];
      known = std::max(known, bound);
    }
  }

  // The neighbours of the layer at hand; how many.
  int64_t gather() {
    const EdgeTable& table = set_.table;
    stretches_.clear();
    int64_t pool = 0;
    for (std::size_t i = 0; i < next_.items().size(); ++i) {
      const int32_t v = next_.items()[i];
      const int64_t count =
          set_.timed ? table.count_before(v, next_bounds_[i]) : table.degree(v);
      if (count == 0) continue;
      stretches_.push_back({v, table.indptr[v], count});
      pool += count;
    }
    return pool;
  }

  W weight_of(int32_t neighbour, int64_t record) const {
    if (set_.weigh == Weigh::degree) return static_cast<W>(set_.table.degree(neighbour));
    if (set_.weigh == Weigh::edge) return static_cast<W>(set_.edge_weights[set_.table.eid[record]]);
    return W(1);
  }

  const W* ones(int64_t n) {
    if (static_cast<int64_t>(ones_.size()) < n) ones_.resize(n + n / 2, W(1));
    return ones_.data();
  }

  // Draws k of n into bits_; all of them if they all weigh the same and are wanted.
  void draw(const W* weights, int64_t n, int64_t k, DrawNumbers& rng) {
    bits_.assign(static_cast<std::size_t>((n + 63) / 64), 0);
    if (k == n && set_.weigh == Weigh::one) {
      for (int64_t i = 0; i < n; ++i) bits_[i >> 6] |= uint64_t{1} << (i & 63);
    } else if (k > 0) {
      method_->draw(weights, n, k, rng, bits_.data());
    }
  }

  template <class Body>
  void for_drawn(const Body& body) const {
    for (std::size_t word = 0; word < bits_.size(); ++word) {
      for (uint64_t left = bits_[word]; left; left &= left - 1) {
        body(static_cast<int64_t>(word * 64) + __builtin_ctzll(left));
      }
    }
  }

  void keep(const Stretch& from, int64_t record, std::vector<Sampled>& out) {
    const int32_t neighbour = set_.table.dst[record];
    out.push_back({set_.table.eid[record], from.vertex, neighbour});
    arrive(neighbour, set_.timed ? set_.table.t[record] : 0);
  }

  // Edges out of the `pool` edges of some stretches.
  void choose(const Stretch* stretches, std::size_t count, int64_t pool, int layer, DrawNumbers& rng,
              std::vector<Sampled>& out) {
    const W* weights = nullptr;
    if (set_.weigh == Weigh::one) {
      weights = ones(pool);
    } else {
      weights_.clear();
      for (std::size_t s = 0; s < count; ++s) {
        for (int64_t r = stretches[s].first; r < stretches[s].first + stretches[s].count; ++r) {
          weights_.push_back(weight_of(set_.table.dst[r], r));
        }
      }
      weights = weights_.data();
    }
    draw(weights, pool, set_.wanted(layer, pool), rng);
    std::size_t s = 0;
    int64_t before = 0;  // elements of the stretches before s
    for_drawn([&](int64_t i) {
      while (i - before >= stretches[s].count) before += stretches[s++].count;
      keep(stretches[s], stretches[s].first + (i - before), out);
    });
  }

  // Vertices out of all neighbours, each counted once, and every edge that leads to one of them.
  int64_t choose_vertices(int layer, DrawNumbers& rng, std::vector<Sampled>& out) {
    candidates_.clear();
    for (const Stretch& one : stretches_) {
      for (int64_t r = one.first; r < one.first + one.count; ++r) {
        candidates_.insert(set_.table.dst[r]);
      }
    }
    const std::vector<int32_t>& pool = candidates_.items();
    const auto n = static_cast<int64_t>(pool.size());
    const W* weights = nullptr;
    if (set_.weigh == Weigh::one) {
      weights = ones(n);
    } else {
      weights_.clear();
      for (const int32_t v : pool) weights_.push_back(weight_of(v, 0));
      weights = weights_.data();
    }
    draw(weights, n, set_.wanted(layer, n), rng);
    for (const Stretch& one : stretches_) {
      for (int64_t r = one.first; r < one.first + one.count; ++r) {
        const int64_t i = candidates_.find(set_.table.dst[r]);
        if (bits_[i >> 6] >> (i & 63) & 1) keep(one, r, out);
      }
    }
    return n;
  }

  const Settings& set_;
  std::unique_ptr<PoolMethod<W>> method_;
  SampledOutput& to_;
  const int thread_;
  VertexSet next_, reached_, candidates_;
  std::vector<double> next_bounds_;
  std::vector<Stretch> stretches_;
  std::vector<W> ones_, weights_;
  std::vector<uint64_t> bits_;
};

// Roots in groups; group g is roots [groups[g], groups[g + 1]).
struct Groups {
  const int64_t* roots;
  const double* bounds;
  const int64_t* starts;
  int64_t count;
  int64_t first;  // ordinal of the first group in a whole of which this is a part
};

template <class W>
void sample_groups(const Settings& with, const std::string& method, int arity, const Groups& groups,
                   uint64_t seed, uint64_t call, int threads, SampledOutput& to) {
  const Use use = with.space == Space::vertex ? Use::roots : Use::pools;
  share_out(
      groups.count, threads, groups.count > 4096 ? 16 : 1,
      [&](int thread) {
        return std::make_unique<Sampler<W>>(with, make_pool_method<W>(method, arity), to, thread);
      },
      [&](Sampler<W>& sampler, int64_t g) {
        const int64_t begin = groups.starts[g];
        sampler.sample(g, groups.roots + begin, groups.bounds ? groups.bounds + begin : nullptr,
                       groups.starts[g + 1] - begin,
                       numbers_of(seed, use, call, groups.first + g));
      },
      [&](Sampler<W>& sampler) { to.counts.add(sampler.counts()); });
}

std::unique_ptr<SampledOutput> sample_roots(
    const EdgeTable& table, Array<const int64_t> roots, Maybe<const double> before,
    Array<const int64_t> starts, int space, int weigh, Maybe<const double> edge_weights,
    std::vector<int64_t> sizes, double share, int layers, const char* method, int arity,
    uint64_t seed, uint64_t call, int64_t first, int threads) {
  Settings with{table, static_cast<Space>(space), static_cast<Weigh>(weigh),
                pointer(edge_weights), std::move(sizes), share, layers, before.has_value()};
  check_optional(before, roots.size(), "before");
  if (starts.size() < 1) reject("starts must not be empty");
  check_offsets(starts.data(), starts.size(), roots.size(), "starts");
  if (space < 0 || space > 2 || weigh < 0 || weigh > 2) reject("space or weigh is not known");
  if (layers < 0 || (!with.sizes.empty() && static_cast<int>(with.sizes.size()) != layers)) {
    reject("sizes must hold one number for each layer");
  }
  for (const int64_t size : with.sizes) {
    if (size < 0) reject("sizes must be at least 0");
  }
  if (with.sizes.empty() && !(share >= 0 && share <= 1)) reject("share must lie in [0, 1]");
  if (with.weigh == Weigh::edge) {
    if (!edge_weights) reject("edge_weights must be given");
    check_size(*edge_weights, static_cast<std::size_t>(table.edges), "edge_weights");
  }
  if (!ids_in_range(roots.data(), roots.size(), table.vertices)) reject("roots out of range");
  const Groups groups{roots.data(), pointer(before), starts.data(),
                      static_cast<int64_t>(starts.size()) - 1, first};
  threads = static_cast<int>(std::clamp<int64_t>(groups.count, 1, std::max(1, threads)));
  auto found = std::make_unique<SampledOutput>(layers, groups.count, threads);
  nb::gil_scoped_release release;
  if (with.weigh == Weigh::edge) {
    sample_groups<double>(with, method, arity, groups, seed, call, threads, *found);
  } else {
    sample_groups<int64_t>(with, method, arity, groups, seed, call, threads, *found);
  }
  return found;
}

void take_layer(const SampledOutput& found, int layer, Array<int64_t> offsets, Array<int64_t> eids,
                Array<int64_t> sources, Array<int64_t> neighbours, int threads) {
  if (layer < 0 || layer >= static_cast<int>(found.layer.size())) reject("layer out of range");
  const Ragged<Sampled>& from = found.layer[layer];
  const auto total = static_cast<std::size_t>(from.total());
  check_size(offsets, static_cast<std::size_t>(from.rows()) + 1, "offsets");
  check_size(eids, total, "eids");
  check_size(sources, total, "sources");
  check_size(neighbours, total, "neighbours");
  nb::gil_scoped_release release;
  from.copy(offsets.data(), std::max(1, threads), [&](const Sampled& one, int64_t at) {
    eids.data()[at] = one.eid;
    sources.data()[at] = one.source;
    neighbours.data()[at] = one.neighbour;
  });
}

void take_nodes(const SampledOutput& found, Array<int64_t> offsets, Array<int64_t> nodes,
                Array<int64_t> pools, int threads) {
  check_size(offsets, static_cast<std::size_t>(found.nodes.rows()) + 1, "offsets");
  check_size(nodes, static_cast<std::size_t>(found.nodes.total()), "nodes");
  check_size(pools, found.pools.size(), "pools");
  nb::gil_scoped_release release;
  std::copy(found.pools.begin(), found.pools.end(), pools.data());
  found.nodes.copy(offsets.data(), std::max(1, threads),
                   [&](int32_t v, int64_t at) { nodes.data()[at] = v; });
}

}  // namespace
}  // namespace dgbench::sampling

namespace dgbench {

void bind_edge_sampling_roots(nb::module_& m) {
  using sampling::SampledOutput;
  nb::class_<SampledOutput>(m, "SampledRoots")
      .def("edges", [](const SampledOutput& f, int layer) { return f.layer.at(layer).total(); })
      .def("nodes", [](const SampledOutput& f) { return f.nodes.total(); })
      .def("counts", [](const SampledOutput& f) { return sampling::listed(f.counts); })
      .def("take_layer", &sampling::take_layer, "layer"_a, "offsets"_a.noconvert(),
           "eids"_a.noconvert(), "sources"_a.noconvert(), "neighbours"_a.noconvert(), "threads"_a)
      .def("take_nodes", &sampling::take_nodes, "offsets"_a.noconvert(), "nodes"_a.noconvert(),
           "pools"_a.noconvert(), "threads"_a);
  m.def("sample_roots", &sampling::sample_roots, "table"_a, "roots"_a.noconvert(),
        "before"_a.noconvert().none(), "starts"_a.noconvert(), "space"_a, "weigh"_a,
        "edge_weights"_a.noconvert().none(), "sizes"_a, "share"_a, "layers"_a, "method"_a, "arity"_a,
        "seed"_a, "call"_a, "first"_a, "threads"_a);
}

}  // namespace dgbench
