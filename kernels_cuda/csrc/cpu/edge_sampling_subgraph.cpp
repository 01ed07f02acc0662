// Subgraphs by frontier sampling (T-GCN's Algorithms 1 and 5), and the edges that they induce.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "cpu/edge_sampling.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench::sampling {
namespace {

// The whole table of prefix sums anew after every replacement, as the paper's baselines do it: C-SAW
// makes the table of a frontier before every selection.
template <class Search, class Sum>
class Whole : public Search {
  using Sums = PrefixTable<Sum>;

 public:
  using Weight = typename Search::Weight;
  void replace(int64_t index, Weight weight) {
    const auto after = static_cast<Sum>(weight);
    this->Sums::free_.replace(index, this->Sums::weights_[index], after);
    this->Sums::weights_[index] = after;
    this->Sums::add_up(0, this->Sums::counts_);
    this->Sums::counts_.rebuilt++;
  }
};

template <class Body>
bool with_whole_table(const std::string& method, const Body& body) {
  using W = int64_t;
  const auto call = [&](auto search) { return body(std::move(search)), true; };
  if (method == "its_linear") return call(Whole<ItsSearch<W, Its::linear>, W>());
  if (method == "its_bitmap") return call(Whole<ItsSearch<W, Its::bitmap>, W>());
  if (method == "its_list") return call(Whole<ItsSearch<W, Its::list>, W>());
  if (method == "its_rebuild") return call(Whole<ItsSearch<W, Its::rebuild>, W>());
  if (method == "brs") return call(Whole<BrsSearch<W, Region::fresh>, double>());
  if (method == "brs_recycled") return call(Whole<BrsSearch<W, Region::recycled>, double>());
  if (method == "brs_literal") return call(Whole<BrsSearch<W, Region::literal>, double>());
  return false;
}

// body(search): one whose replacements redo all of a table of prefix sums if `whole`, else its part
// from the replaced entry on. Other methods change what they need to.
template <class Body>
void with_frontier_search(const std::string& method, int arity, bool whole, const Body& body) {
  if (whole && with_whole_table(method, body)) return;
  with_search<int64_t>(method, arity, [&](auto& search) { body(std::move(search)); });
}

struct Walk {
  Table table;
  Array<const int32_t> occupied;  // vertices with an edge
  int64_t frontier, draws;
  bool replacement, by_degree;

  int64_t weight(int64_t degree) const { return by_degree ? degree : degree > 0; }
};

struct Subgraphs {
  Subgraphs(int64_t count, int threads) : vertices(count, threads) {}
  Ragged<int32_t> vertices;  // ascending
  DrawCounts counts;
  int64_t reseeded = 0;
};

// One thread's memory.
template <class Search>
class Walker {
 public:
  Walker(const Walk& walk, Search search, Subgraphs& to, int thread)
      : walk_(walk), search_(std::move(search)), to_(to), thread_(thread),
        chosen_(walk.table.vertices), slots_(static_cast<std::size_t>(walk.frontier)),
        weights_(static_cast<std::size_t>(walk.frontier)) {}

  const DrawCounts& counts() const { return search_.counts(); }
  int64_t reseeded() const { return reseeded_; }

  void walk(int64_t g, DrawNumbers rng) {
    chosen_.clear();
    if (walk_.occupied.size() > 0) {
      place_frontier(rng);
      search_.begin(weights_.data(), walk_.frontier);
      chosen_.clear();
      for (int64_t i = 0; i < walk_.draws; ++i) step(rng);
    }
    auto& arena = to_.vertices.arena(thread_);
    const std::size_t begin = arena.size();
    arena.insert(arena.end(), chosen_.items().begin(), chosen_.items().end());
    std::sort(arena.begin() + static_cast<std::ptrdiff_t>(begin), arena.end());
    to_.vertices.close(g, thread_, begin);
  }

 private:
  struct Slot {
    int64_t row;
    int64_t degree;
    int32_t vertex;
  };

  // Uniform over all vertices; without replacement by Floyd's way, one number a slot.
  void place_frontier(DrawNumbers& rng) {
    const int64_t n = walk_.table.vertices;
    for (int64_t i = 0; i < walk_.frontier; ++i) {
      int32_t v;
      if (walk_.replacement) {
        v = static_cast<int32_t>(scale_bits(rng(), n));
      } else {
        const int64_t last = n - walk_.frontier + i;
        v = static_cast<int32_t>(scale_bits(rng(), last + 1));
        if (!chosen_.insert(v)) chosen_.insert(v = static_cast<int32_t>(last));
      }
      put(i, v, rng);
    }
  }

  // A vertex without edges is replaced by one that has some.
  void put(int64_t i, int32_t v, DrawNumbers& rng) {
    const Table& table = walk_.table;
    int64_t degree = table.degree(v);
    if (degree == 0) {
      const auto some = static_cast<int64_t>(walk_.occupied.size());
      v = walk_.occupied.data()[scale_bits(rng(), some)];
      degree = table.degree(v);
      ++reseeded_;
    }
    slots_[i] = {table.indptr[v], degree, v};
    weights_[i] = walk_.weight(degree);
  }

  void step(DrawNumbers& rng) {
    const int64_t i = search_.draw(rng);
    const Slot slot = slots_[i];
    chosen_.insert(slot.vertex);
    put(i, walk_.table.dst[slot.row + scale_bits(rng(), slot.degree)], rng);
    search_.replace(i, weights_[i]);
  }

  const Walk& walk_;
  Search search_;
  Subgraphs& to_;
  const int thread_;
  VertexSet chosen_;
  std::vector<Slot> slots_;
  std::vector<int64_t> weights_;
  int64_t reseeded_ = 0;
};

std::unique_ptr<Subgraphs> sample_subgraphs(
    Array<const int64_t> indptr, Array<const int32_t> dst, Array<const int32_t> eid,
    Array<const double> t, Array<const int32_t> occupied, int64_t frontier, int64_t draws,
    int64_t count, const std::string& method, int arity, bool whole, bool replacement,
    bool by_degree, uint64_t seed, uint64_t call, int64_t first, int threads) {
  const Table table = table_of(indptr, dst, eid, t);
  if (frontier < 1 || draws < 0 || count < 0) reject("frontier, draws or count out of range");
  if (!replacement && frontier > table.vertices) reject("frontier is above the number of vertices");
  if (!ids_in_range(occupied.data(), occupied.size(), table.vertices)) {
    reject("occupied holds ids outside [0, N)");
  }
  for (std::size_t i = 0; i < occupied.size(); ++i) {
    if (table.degree(occupied.data()[i]) == 0) reject("occupied holds a vertex without edges");
  }
  if (!ids_in_range(dst.data(), dst.size(), table.vertices)) reject("dst out of range");
  const Walk walk{table, occupied, frontier, draws, replacement, by_degree};
  threads = static_cast<int>(std::clamp<int64_t>(count, 1, std::max(1, threads)));
  auto found = std::make_unique<Subgraphs>(count, threads);
  nb::gil_scoped_release release;
  with_frontier_search(method, arity, whole, [&](auto&& search) {
    using Search = std::decay_t<decltype(search)>;
    share_out(
        count, threads, 1,
        [&](int thread) {
          return std::make_unique<Walker<Search>>(walk, Search(search), *found, thread);
        },
        [&](Walker<Search>& walker, int64_t g) {
          walker.walk(g, numbers_of(seed, Use::subgraphs, call, first + g));
        },
        [&](Walker<Search>& walker) {
          found->counts.add(walker.counts());
          found->reseeded += walker.reseeded();
        });
  });
  return found;
}

// Edges between members: of vertices ascending, each in time order, each edge once.
struct Induced {
  Induced(int64_t count, int threads) : edges(count, threads) {}
  Ragged<int32_t> edges;
};

std::unique_ptr<Induced> induce(Array<const int64_t> indptr, Array<const int32_t> dst,
                                Array<const int32_t> eid, Array<const double> t, bool undirected,
                                Array<const int64_t> offsets, Array<const int64_t> vertices,
                                int threads) {
  const Table table = table_of(indptr, dst, eid, t);
  if (offsets.size() < 1) reject("offsets must not be empty");
  check_offsets(offsets.data(), offsets.size(), vertices.size(), "offsets");
  if (!ids_in_range(vertices.data(), vertices.size(), table.vertices)) {
    reject("vertices holds ids outside [0, N)");
  }
  if (!ids_in_range(dst.data(), dst.size(), table.vertices)) reject("dst out of range");
  const auto count = static_cast<int64_t>(offsets.size()) - 1;
  threads = static_cast<int>(std::clamp<int64_t>(count, 1, std::max(1, threads)));
  auto found = std::make_unique<Induced>(count, threads);
  nb::gil_scoped_release release;
  struct Members {
    int thread;
    std::vector<uint64_t> bits;
    bool holds(int32_t v) const { return bits[v >> 6] >> (v & 63) & 1; }
  };
  share_out(
      count, threads, 1,
      [&](int thread) {
        const auto words = static_cast<std::size_t>(table.vertices / 64 + 1);
        return std::make_unique<Members>(Members{thread, std::vector<uint64_t>(words)});
      },
      [&](Members& members, int64_t g) {
        const int64_t* const begin = vertices.data() + offsets.data()[g];
        const int64_t* const end = vertices.data() + offsets.data()[g + 1];
        for (const int64_t* v = begin; v < end; ++v) members.bits[*v >> 6] |= uint64_t{1} << (*v & 63);
        auto& arena = found->edges.arena(members.thread);
        const std::size_t from = arena.size();
        for (const int64_t* v = begin; v < end; ++v) {
          for (int64_t r = table.indptr[*v]; r < table.indptr[*v + 1]; ++r) {
            const int32_t other = table.dst[r];
            if (!members.holds(other)) continue;
            // At both ends: once, at the smaller; a self edge stands twice in a row of its own.
            if (undirected && other < *v) continue;
            if (undirected && other == *v && !arena.empty() && arena.size() > from &&
                arena.back() == table.eid[r]) {
              continue;
            }
            arena.push_back(table.eid[r]);
          }
        }
        found->edges.close(g, members.thread, from);
        for (const int64_t* v = begin; v < end; ++v) members.bits[*v >> 6] = 0;
      },
      [](Members&) {});
  return found;
}

template <class T>
void take(const Ragged<T>& from, Array<int64_t> offsets, Array<int64_t> out, int threads) {
  check_size(offsets, static_cast<std::size_t>(from.rows()) + 1, "offsets");
  check_size(out, static_cast<std::size_t>(from.total()), "out");
  nb::gil_scoped_release release;
  from.copy(offsets.data(), std::max(1, threads),
            [&](const T& one, int64_t at) { out.data()[at] = one; });
}

}  // namespace
}  // namespace dgbench::sampling

namespace dgbench {

void bind_edge_sampling_subgraph(nb::module_& m) {
  using sampling::Induced;
  using sampling::Subgraphs;
  nb::class_<Subgraphs>(m, "SampledSubgraphs")
      .def("vertices", [](const Subgraphs& s) { return s.vertices.total(); })
      .def("counts", [](const Subgraphs& s) { return sampling::listed(s.counts); })
      .def_ro("reseeded", &Subgraphs::reseeded)
      .def("take", [](const Subgraphs& s, Array<int64_t> offsets, Array<int64_t> out,
                      int threads) { sampling::take(s.vertices, offsets, out, threads); },
           "offsets"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
  nb::class_<Induced>(m, "InducedEdges")
      .def("edges", [](const Induced& i) { return i.edges.total(); })
      .def("take", [](const Induced& i, Array<int64_t> offsets, Array<int64_t> out,
                      int threads) { sampling::take(i.edges, offsets, out, threads); },
           "offsets"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
  m.def("sample_subgraphs", &sampling::sample_subgraphs, "indptr"_a.noconvert(),
        "dst"_a.noconvert(), "eid"_a.noconvert(), "t"_a.noconvert(), "occupied"_a.noconvert(),
        "frontier"_a, "draws"_a, "count"_a, "method"_a, "arity"_a, "whole"_a, "replacement"_a,
        "by_degree"_a, "seed"_a, "call"_a, "first"_a, "threads"_a);
  m.def("induce", &sampling::induce, "indptr"_a.noconvert(), "dst"_a.noconvert(),
        "eid"_a.noconvert(), "t"_a.noconvert(), "undirected"_a, "offsets"_a.noconvert(),
        "vertices"_a.noconvert(), "threads"_a);
}

}  // namespace dgbench
