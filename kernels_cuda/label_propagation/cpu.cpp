// One semi-synchronous sweep of weighted label propagation with a cap on label sizes (DGC 3.3).
//
// Vertices are taken block by block and, inside a block, in rounds by a hash bit. In a round all
// vertices wish at once, from the labels as they stood before it; then the wishes are granted where
// labels have room. Votes are integers and a full label serves wishes in a total order, so neither
// the number of threads nor their timing shows in the result. A block's rows stay in cache for its
// rounds, and later blocks see what earlier ones did, as in an asynchronous sweep.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/caught.hpp"
#include "common/check.hpp"
#include "label_propagation/cpu_label_sums.hpp"
#include "label_propagation/functors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

constexpr std::int64_t kShortRow = 16;  // longer rows add up their votes in a hash table
constexpr std::int64_t kPiece = 512;    // vertices that a thread takes at a time
constexpr std::size_t kAhead = 8;       // rows between asking for labels and reading them

struct Graph {
  const std::int64_t* indptr;
  const std::int32_t* indices;
  const std::int32_t* edge_weight;    // null: 1 each
  const std::int32_t* vertex_weight;  // null: 1 each
  std::int64_t cap;

  std::int64_t weight(std::int64_t v) const { return vertex_weight ? vertex_weight[v] : 1; }
  std::int64_t edge(std::int64_t e) const { return edge_weight ? edge_weight[e] : 1; }
};

// The label that `v` wishes for, or its own; `gain` is what it would gain by it. Without `Checked` it
// does not ask whether there is room, which would wait for memory at every vertex: where the answer
// is then no, it is asked again with.
template <bool Checked>
std::int32_t wish(const Graph& g, const std::int32_t* labels, const std::int64_t* loads,
                  std::int32_t v, LabelSums& sums, std::int64_t& gain) {
  const std::int64_t first = g.indptr[v];
  const std::int64_t stop = g.indptr[v + 1];
  const std::int32_t own = labels[v];
  std::int64_t home = 0;
  Vote best{0, own};
  const auto consider = [&](const Vote& vote) {
    if (vote.weight > home && better(vote, best) &&
        (!Checked || has_room(loads[vote.label], g.weight(v), g.cap))) {
      best = vote;
    }
  };
  if (stop - first <= kShortRow) {
    Vote votes[kShortRow];
    int count = 0;
    for (std::int64_t e = first; e < stop; ++e) {
      const std::int32_t u = g.indices[e];
      const std::int32_t label = labels[u];
      const std::int64_t weight = u == v ? 0 : g.edge(e);
      if (label == own) {
        home += weight;
        continue;
      }
      int k = 0;
      while (k < count && votes[k].label != label) ++k;
      if (k == count) votes[count++] = Vote{0, label};
      votes[k].weight += weight;
    }
    for (int k = 0; k < count; ++k) consider(votes[k]);
  } else {
    sums.start(static_cast<std::size_t>(stop - first));
    for (std::int64_t e = first; e < stop; ++e) {
      const std::int32_t u = g.indices[e];
      const std::int32_t label = labels[u];
      const std::int64_t weight = u == v ? 0 : g.edge(e);
      if (label == own) {
        home += weight;
      } else {
        sums[label] += weight;
      }
    }
    sums.each(consider);
  }
  gain = best.weight - home;
  return best.label;
}

// The wishes of one round, and which of them are granted.
class Admission {
 public:
  explicit Admission(std::int64_t block) : wished(block, -1), gains(block, 0) {}

  // Room is what a label had before the round: who leaves in it makes room for the next. Where all
  // who wish for a label fit, all go; otherwise a prefix in the order of service does.
  void decide(const Graph& g, const std::int64_t* loads, std::int64_t first, std::int64_t size) {
    granted.clear();
    refused.clear();
    contested_.clear();
    wishes_.clear();
    for (std::int64_t i = 0; i < size; ++i) {
      if (wished[i] < 0) continue;
      wishes_.push_back(Wish{gains[i], wished[i], static_cast<std::int32_t>(first + i)});
      wished[i] = -1;
    }
    arrivals_.start(wishes_.size());
    for (const Wish& w : wishes_) arrivals_[w.label] += g.weight(w.vertex);
    for (const Wish& w : wishes_) {
      const bool fits = has_room(loads[w.label], arrivals_[w.label], g.cap);
      (fits ? granted : contested_).push_back(w);
    }
    std::sort(contested_.begin(), contested_.end(), served_before);
    std::int32_t label = -1;
    std::int64_t load = 0;
    bool open = true;
    for (const Wish& w : contested_) {
      if (w.label != label) {
        label = w.label;
        load = loads[label];
        open = true;
      }
      // Nobody behind the first who does not fit: a prefix is what a device's scan can take too.
      open = open && has_room(load, g.weight(w.vertex), g.cap);
      if (open) load += g.weight(w.vertex);
      (open ? granted : refused).push_back(w);
    }
  }

  std::vector<std::int32_t> wished;  // per place in the block, -1 for none
  std::vector<std::int64_t> gains;
  std::vector<Wish> granted;
  std::vector<Wish> refused;

 private:
  std::vector<Wish> wishes_;
  std::vector<Wish> contested_;
  LabelSums arrivals_;
};

// Returns (vertices that moved, vertices that were looked at). `active` uint8[N] is read and kept up
// to date where it is given; then only vertices with a neighbour that moved are looked at. Where
// memory runs out the moves of some rounds are made, and `labels` and `loads` still fit each other.
nb::tuple label_sweep(Array<const std::int64_t> indptr, Array<const std::int32_t> indices,
                      Maybe<const std::int32_t> edge_weight, Maybe<const std::int32_t> vertex_weight,
                      Array<std::int32_t> labels, Array<std::int64_t> loads,
                      Maybe<std::uint8_t> active, std::int64_t cap, std::uint32_t salt,
                      std::uint32_t rounds, std::int64_t block, int threads) {
  const std::size_t count = labels.size();
  if (indptr.size() != count + 1) reject("indptr must have one more element than labels");
  check_offsets(indptr.data(), indptr.size(), indices.size(), "indptr");
  check_size(loads, count, "loads");
  check_optional(edge_weight, indices.size(), "edge_weight");
  check_optional(vertex_weight, count, "vertex_weight");
  check_optional(active, count, "active");
  if (rounds == 0 || (rounds & (rounds - 1)) != 0) reject("rounds must be a power of two");
  if (block < 1 || cap < 1) reject("block and cap must be at least 1");
  const auto vertices = static_cast<std::int64_t>(count);
  if (!ids_in_range(labels.data(), count, vertices)) reject("labels must lie in [0, N)");
  const Graph g{indptr.data(), indices.data(), pointer(edge_weight), pointer(vertex_weight), cap};
  std::int32_t* const label = labels.data();
  std::int64_t* const load = loads.data();
  std::uint8_t* const flags = active ? active->data() : nullptr;
  block = std::min(block, std::max<std::int64_t>(1, vertices));
  std::int64_t moved = 0;
  std::int64_t looked = 0;
  {
    nb::gil_scoped_release release;
    Admission admission(block);
    Caught caught;
    // Wishes of the vertices of this round in [from, to); returns how many were looked at.
    const auto make_wishes = [&](std::int64_t first, std::int64_t from, std::int64_t to,
                                 std::uint32_t round, LabelSums& sums,
                                 std::vector<std::int32_t>& due) {
      due.clear();
      for (std::int64_t v = from; v < to; ++v) {
        if (flags && !flags[v]) continue;
        const auto id = static_cast<std::uint32_t>(v);
        if ((label_hash(id, salt) & (rounds - 1)) != round) continue;
        due.push_back(static_cast<std::int32_t>(v));
        if (flags) flags[v] = 0;
      }
      for (std::size_t k = 0; k < due.size(); ++k) {
        if (k + kAhead < due.size()) {
          const std::int32_t next = due[k + kAhead];
          const std::int64_t stop = std::min(g.indptr[next + 1], g.indptr[next] + kShortRow);
          for (std::int64_t e = g.indptr[next]; e < stop; ++e) {
            __builtin_prefetch(label + g.indices[e]);
          }
        }
        const std::int32_t v = due[k];
        std::int64_t& gain = admission.gains[v - first];
        const std::int32_t target = wish<false>(g, label, load, v, sums, gain);
        if (target == label[v]) continue;
        admission.wished[v - first] = target;
        __builtin_prefetch(load + target);
      }
      for (const std::int32_t v : due) {
        std::int32_t& wished = admission.wished[v - first];
        if (wished < 0 || has_room(load[wished], g.weight(v), g.cap)) continue;
        wished = wish<true>(g, label, load, v, sums, admission.gains[v - first]);
        if (wished == label[v]) wished = -1;
      }
      return static_cast<std::int64_t>(due.size());
    };
#pragma omp parallel num_threads(std::max(1, threads)) reduction(+ : looked)
    {
      LabelSums sums;
      std::vector<std::int32_t> due;
      caught.run([&] { due.reserve(kPiece); });
      for (std::int64_t first = 0; first < vertices; first += block) {
        const std::int64_t size = std::min(block, vertices - first);
        const std::int64_t pieces = (size + kPiece - 1) / kPiece;
        for (std::uint32_t round = 0; round < rounds; ++round) {
#pragma omp for schedule(dynamic, 1)
          for (std::int64_t piece = 0; piece < pieces; ++piece) {
            const std::int64_t from = first + piece * kPiece;
            const std::int64_t to = std::min(from + kPiece, first + size);
            caught.run([&] { looked += make_wishes(first, from, to, round, sums, due); });
          }
#pragma omp single
          caught.run([&] {
            admission.decide(g, load, first, size);
            for (const Wish& w : admission.granted) {
              load[label[w.vertex]] -= g.weight(w.vertex);
              load[w.label] += g.weight(w.vertex);
              label[w.vertex] = w.label;
            }
            if (flags) {
              for (const Wish& w : admission.refused) flags[w.vertex] = 1;
            }
            moved += static_cast<std::int64_t>(admission.granted.size());
          });
          if (flags) {
            const auto granted = static_cast<std::int64_t>(admission.granted.size());
#pragma omp for schedule(static)
            for (std::int64_t k = 0; k < granted; ++k) {
              const std::int32_t v = admission.granted[k].vertex;
              for (std::int64_t e = g.indptr[v]; e < g.indptr[v + 1]; ++e) {
                // Several may wake the same vertex, all with the same value.
                __atomic_store_n(flags + g.indices[e], std::uint8_t{1}, __ATOMIC_RELAXED);
              }
            }
          }
        }
      }
    }
    caught.rethrow();
  }
  return nb::make_tuple(moved, looked);
}

}  // namespace

void bind_label_propagation(nb::module_& m) {
  m.def("label_sweep", &label_sweep, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "edge_weight"_a.noconvert().none(), "vertex_weight"_a.noconvert().none(),
        "labels"_a.noconvert(), "loads"_a.noconvert(), "active"_a.noconvert().none(), "cap"_a,
        "salt"_a, "rounds"_a, "block"_a, "threads"_a);
}

}  // namespace dgbench
