// Subgraphs by frontier sampling (T-GCN's Algorithms 1 and 5), and the edges that they induce.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/unique_ptr.h>

#include "common/lists.hpp"
#include "edge_sampling/cpu_draws.hpp"

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
  const auto call = [&](const auto& search) { return body(search), true; };
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
  with_search<int64_t>(method, arity, [&](const auto& search) { body(search); });
}

struct Walk {
  const EdgeTable& table;
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

constexpr int64_t kLanes = 4;   // subgraphs that a thread makes at a time
constexpr int64_t kAhead = 16;  // slots whose degrees are asked for before they are needed

// Which vertices a subgraph has. Listing them ascending is a pass over N / 64 words.
class Members {
 public:
  explicit Members(int64_t vertices) : bits_(static_cast<std::size_t>(vertices / 64 + 1)) {}
  bool holds(int32_t v) const { return bits_[v >> 6] >> (v & 63) & 1; }
  void insert(int32_t v) { bits_[v >> 6] |= uint64_t{1} << (v & 63); }
  void remove(int32_t v) { bits_[v >> 6] &= ~(uint64_t{1} << (v & 63)); }
  void clear() { std::fill(bits_.begin(), bits_.end(), 0); }
  void move_to(std::vector<int32_t>& out) {
    for (std::size_t word = 0; word < bits_.size(); ++word) {
      for (uint64_t left = bits_[word]; left; left &= left - 1) {
        out.push_back(static_cast<int32_t>(word * 64) + __builtin_ctzll(left));
      }
      bits_[word] = 0;
    }
  }

 private:
  std::vector<uint64_t> bits_;
};

// One subgraph in the making. A draw needs two reads that depend on each other and miss the cache, so
// it comes in three steps, and other subgraphs take theirs in between.
template <class Search>
class Frontier {
 public:
  explicit Frontier(const Walk& walk)
      : walk_(walk), table_(walk.table), chosen_(walk.table.vertices),
        slots_(static_cast<std::size_t>(walk.frontier)) {}

  const DrawCounts& counts() const { return search_.counts(); }
  int64_t reseeded() const { return reseeded_; }

  // Uniform over all vertices; without replacement by Floyd's way, one number a slot. The walk on a device
  // (edge_sampling/cuda.cu) takes the same numbers in the same order; the emulated tests hold that.
  void place(const DrawNumbers& rng, std::vector<int64_t>& weights) {
    rng_ = rng;
    weights.resize(slots_.size());
    const int64_t n = table_.vertices;
    for (int64_t i = 0; i < walk_.frontier; ++i) {
      const int64_t last = walk_.replacement ? n - 1 : n - walk_.frontier + i;
      auto v = static_cast<int32_t>(scale_bits(rng_(), last + 1));
      if (!walk_.replacement) {
        if (chosen_.holds(v)) v = static_cast<int32_t>(last);
        chosen_.insert(v);
      }
      slots_[i].vertex = v;
    }
    for (int64_t i = 0; i < walk_.frontier; ++i) {
      const int64_t ahead = std::min(i + kAhead, walk_.frontier - 1);
      __builtin_prefetch(table_.indptr + slots_[ahead].vertex);
      weights[i] = put(i, slots_[i].vertex);
    }
    if (!walk_.replacement) chosen_.clear();
    search_.begin(weights.data(), walk_.frontier);
  }

  void draw() {
    at_ = search_.draw(rng_);
    const Slot& slot = slots_[at_];
    chosen_.insert(slot.vertex);
    next_ = table_.dst + slot.row + scale_bits(rng_(), int64_t{slot.degree});
    __builtin_prefetch(next_);
  }
  void follow() const { __builtin_prefetch(table_.indptr + *next_); }
  void replace() {
    search_.replace(at_, put(at_, *next_));
  }
  void move_to(std::vector<int32_t>& out) { chosen_.move_to(out); }

 private:
  struct Slot {  // four to a line of memory
    int64_t row;
    int32_t vertex;
    uint32_t degree;
  };

  // Returns the weight. A vertex without edges is replaced by one that has some.
  int64_t put(int64_t i, int32_t v) {
    int64_t degree = table_.degree(v);
    if (degree == 0) {
      v = table_.occupied[scale_bits(rng_(), static_cast<int64_t>(table_.occupied.size()))];
      degree = table_.degree(v);
      ++reseeded_;
    }
    slots_[i] = {table_.indptr[v], v, static_cast<uint32_t>(degree)};
    return walk_.weight(degree);
  }

  const Walk& walk_;
  const EdgeTable& table_;
  Search search_;
  Members chosen_;
  std::vector<Slot> slots_;
  DrawNumbers rng_{0, 0};
  int64_t at_ = 0;
  const int32_t* next_ = nullptr;
  int64_t reseeded_ = 0;
};

// One thread's memory.
template <class Search>
class Walker {
 public:
  Walker(const Walk& walk, int64_t lanes, Subgraphs& to, int thread)
      : walk_(walk), to_(to), thread_(thread) {
    lanes_.reserve(static_cast<std::size_t>(lanes));
    for (int64_t i = 0; i < lanes; ++i) lanes_.emplace_back(walk);
  }

  // Subgraphs [from, to), no more than there are lanes; numbers(g) gives each its own.
  template <class Numbers>
  void walk(int64_t from, int64_t to, const Numbers& numbers) {
    const auto count = static_cast<std::size_t>(to - from);
    if (!walk_.table.occupied.empty()) {
      for (std::size_t i = 0; i < count; ++i) {
        lanes_[i].place(numbers(from + static_cast<int64_t>(i)), weights_);
      }
      for (int64_t d = 0; d < walk_.draws; ++d) {
        for (std::size_t i = 0; i < count; ++i) lanes_[i].draw();
        for (std::size_t i = 0; i < count; ++i) lanes_[i].follow();
        for (std::size_t i = 0; i < count; ++i) lanes_[i].replace();
      }
    }
    auto& arena = to_.vertices.arena(thread_);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t begin = arena.size();
      lanes_[i].move_to(arena);
      to_.vertices.close(from + static_cast<int64_t>(i), thread_, begin);
    }
  }

  void report() const {
    for (const auto& lane : lanes_) {
      to_.counts.add(lane.counts());
      to_.reseeded += lane.reseeded();
    }
  }

 private:
  const Walk& walk_;
  Subgraphs& to_;
  const int thread_;
  std::vector<Frontier<Search>> lanes_;
  std::vector<int64_t> weights_;  // of a first frontier
};

std::unique_ptr<Subgraphs> sample_subgraphs(
    const EdgeTable& table, int64_t frontier, int64_t draws, int64_t count,
    const char* method, int arity, bool whole, bool replacement, bool by_degree,
    uint64_t seed, uint64_t call, int64_t first, int threads) {
  if (frontier < 1 || draws < 0 || count < 0) reject("frontier, draws or count out of range");
  if (!replacement && frontier > table.vertices) reject("frontier is above the number of vertices");
  const Walk walk{table, frontier, draws, replacement, by_degree};
  threads = static_cast<int>(std::clamp<int64_t>(count, 1, std::max(1, threads)));
  auto found = std::make_unique<Subgraphs>(count, threads);
  nb::gil_scoped_release release;
  with_frontier_search(method, arity, whole, [&](const auto& search) {  // its class
    using Search = std::decay_t<decltype(search)>;
    const int64_t lanes = std::min(kLanes, (count + threads - 1) / threads);
    const auto numbers = [&](int64_t g) {
      return numbers_of(seed, Use::subgraphs, call, first + g);
    };
    share_out(
        lanes ? (count + lanes - 1) / lanes : 0, threads, 1,
        [&](int thread) {
          return std::make_unique<Walker<Search>>(walk, lanes, *found, thread);
        },
        [&](Walker<Search>& walker, int64_t i) {
          walker.walk(i * lanes, std::min(count, (i + 1) * lanes), numbers);
        },
        [](Walker<Search>& walker) { walker.report(); });
  });
  return found;
}

// Edges between members: of vertices ascending, each in time order, each edge once.
struct Induced {
  Induced(int64_t count, int threads) : edges(count, threads) {}
  Ragged<int32_t> edges;
};

std::unique_ptr<Induced> induce(const EdgeTable& table, Array<const int64_t> offsets,
                                Array<const int64_t> vertices, int threads) {
  if (offsets.size() < 1) reject("offsets must not be empty");
  check_offsets(offsets.data(), offsets.size(), vertices.size(), "offsets");
  if (!ids_in_range(vertices.data(), vertices.size(), table.vertices)) {
    reject("vertices holds ids outside [0, N)");
  }
  const auto count = static_cast<int64_t>(offsets.size()) - 1;
  threads = static_cast<int>(std::clamp<int64_t>(count, 1, std::max(1, threads)));
  auto found = std::make_unique<Induced>(count, threads);
  nb::gil_scoped_release release;
  struct Marked {
    int thread;
    Members members;
  };
  share_out(
      count, threads, 1,
      [&](int thread) {
        return std::make_unique<Marked>(Marked{thread, Members(table.vertices)});
      },
      [&](Marked& marked, int64_t g) {
        Members& members = marked.members;
        const int64_t* const begin = vertices.data() + offsets.data()[g];
        const int64_t* const end = vertices.data() + offsets.data()[g + 1];
        for (const int64_t* v = begin; v < end; ++v) members.insert(static_cast<int32_t>(*v));
        auto& arena = found->edges.arena(marked.thread);
        const std::size_t from = arena.size();
        for (const int64_t* v = begin; v < end; ++v) {
          for (int64_t r = table.indptr[*v]; r < table.indptr[*v + 1]; ++r) {
            const int32_t other = table.dst[r];
            if (!members.holds(other)) continue;
            // At both ends: once, at the smaller; a self edge stands twice in a row of its own.
            if (table.undirected && other < *v) continue;
            if (table.undirected && other == *v && !arena.empty() && arena.size() > from &&
                arena.back() == table.eid[r]) {
              continue;
            }
            arena.push_back(table.eid[r]);
          }
        }
        found->edges.close(g, marked.thread, from);
        for (const int64_t* v = begin; v < end; ++v) members.remove(static_cast<int32_t>(*v));
      },
      [](Marked&) {});
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
  m.def("sample_subgraphs", &sampling::sample_subgraphs, "table"_a, "frontier"_a, "draws"_a,
        "count"_a, "method"_a, "arity"_a, "whole"_a, "replacement"_a,
        "by_degree"_a, "seed"_a, "call"_a, "first"_a, "threads"_a);
  m.def("induce", &sampling::induce, "table"_a, "offsets"_a.noconvert(),
        "vertices"_a.noconvert(), "threads"_a);
}

}  // namespace dgbench
