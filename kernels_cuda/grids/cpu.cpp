// Edges of a stream by time interval, source part and destination part (T-GCN, section 4.1): a
// stable counting sort in two passes over the edges.
//
// Edges come in time order, so an interval is a range of places and only the two parts have to be
// found. Every thread takes a stretch of edges and counts just the intervals that it meets; the
// stretches are laid out in order, so that edges of a grid keep their order and the result does not
// depend on the number of threads. Nothing depends on the degrees of vertices.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/caught.hpp"
#include "common/check.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

constexpr std::int64_t kStretch = 32768;  // edges that are worth a thread
constexpr std::int64_t kBuckets = 4096;   // of the table that finds a vertex's part

// The part of a vertex: a table by its high bits gives the first part that may hold it.
class Parts {
 public:
  explicit Parts(Array<const std::int64_t> bounds)
      : bounds_(bounds.data(), bounds.data() + bounds.size()) {
    if (bounds_.size() < 2 || bounds_.front() != 0) reject("bounds must begin at 0");
    if (!std::is_sorted(bounds_.begin(), bounds_.end())) reject("bounds must not fall");
    if (count() > UINT16_MAX) reject("bounds has too many parts");
    while ((vertices() >> shift_) >= kBuckets) ++shift_;
    first_.resize(static_cast<std::size_t>(vertices() >> shift_) + 1);
    std::int64_t part = 0;
    for (std::size_t b = 0; b < first_.size(); ++b) {
      const std::int64_t low = static_cast<std::int64_t>(b) << shift_;
      while (part + 1 < count() && bounds_[part + 1] <= low) ++part;
      first_[b] = static_cast<std::uint16_t>(part);
    }
  }

  std::int64_t count() const { return static_cast<std::int64_t>(bounds_.size()) - 1; }
  std::int64_t vertices() const { return bounds_.back(); }
  std::int64_t begin(std::int64_t part) const { return bounds_[part]; }
  bool holds(std::int64_t v) const { return v >= 0 && v < vertices(); }

  std::int64_t of(std::int64_t v) const {
    std::int64_t part = first_[v >> shift_];
    while (v >= bounds_[part + 1]) ++part;
    return part;
  }

 private:
  std::vector<std::int64_t> bounds_;
  std::vector<std::uint16_t> first_;
  int shift_ = 0;
};

// What a call is about: edges, their intervals as places, and the threads' stretches.
struct Edges {
  const std::int64_t* src;
  const std::int64_t* dst;
  std::int64_t count;
  std::vector<std::int64_t> starts;  // of each interval, and the end of the last
  int threads;

  Edges(Array<const std::int64_t> from, Array<const std::int64_t> to,
        Array<const std::int64_t> intervals, int wanted)
      : src(from.data()), dst(to.data()), count(static_cast<std::int64_t>(from.size())),
        starts(intervals.data(), intervals.data() + intervals.size()) {
    check_size(to, from.size(), "dst");
    check_offsets(intervals.data(), intervals.size(), from.size(), "intervals");
    const std::int64_t worth = std::max<std::int64_t>(1, count / kStretch);
    threads = static_cast<int>(std::min<std::int64_t>({worth, std::max(1, wanted), 64}));
  }

  std::int64_t intervals() const { return static_cast<std::int64_t>(starts.size()) - 1; }
  std::int64_t first(int t) const {
    return count / threads * t + std::min<std::int64_t>(t, count % threads);
  }
  // The interval of a place: the last one that begins at or before it.
  std::int64_t interval(std::int64_t place) const {
    return std::upper_bound(starts.begin(), starts.end() - 1, place) - starts.begin() - 1;
  }
};

// Counts of one thread for the intervals it meets, [low, low + counts / G^2).
struct Stretch {
  std::int64_t low = 0;
  std::vector<std::int64_t> counts;
  bool good = true;
};

// Calls visit(edge, interval) for a thread's stretch, in order.
template <class Visit>
void walk(const Edges& edges, int t, const Visit& visit) {
  std::int64_t e = edges.first(t);
  const std::int64_t last = edges.first(t + 1);
  for (std::int64_t k = e < last ? edges.interval(e) : 0; e < last; ++k) {
    for (const std::int64_t stop = std::min(last, edges.starts[k + 1]); e < stop; ++e) visit(e, k);
  }
}

std::vector<Stretch> count_stretches(const Edges& edges, const Parts& parts) {
  const std::int64_t g = parts.count();
  std::vector<Stretch> found(edges.threads);
  Caught caught;
#pragma omp parallel for num_threads(edges.threads) schedule(static, 1)
  for (int t = 0; t < edges.threads; ++t) {
    Stretch& mine = found[t];
    const std::int64_t begin = edges.first(t);
    const std::int64_t end = edges.first(t + 1);
    if (begin == end) continue;
    mine.low = edges.interval(begin);
    caught.run([&] { mine.counts.assign((edges.interval(end - 1) - mine.low + 1) * g * g, 0); });
    if (caught.any()) continue;
    bool good = true;
    walk(edges, t, [&](std::int64_t e, std::int64_t k) {
      if (!parts.holds(edges.src[e]) || !parts.holds(edges.dst[e])) {
        good = false;
        return;
      }
      const std::int64_t cell = parts.of(edges.src[e]) * g + parts.of(edges.dst[e]);
      ++mine.counts[(k - mine.low) * g * g + cell];
    });
    mine.good = good;
  }
  caught.rethrow();
  for (const Stretch& mine : found) {
    if (!mine.good) reject("src or dst holds ids outside the parts");
  }
  return found;
}

void check_cells(std::size_t size, const Edges& edges, const Parts& parts, const char* name) {
  const std::int64_t cells = edges.intervals() * parts.count() * parts.count();
  if (static_cast<std::int64_t>(size) != cells) {
    reject(std::string(name) + " has " + std::to_string(size) + " elements, expected " +
           std::to_string(cells));
  }
}

// Adds the edges of each grid to counts[T, G, G].
void count_grids(Array<const std::int64_t> src, Array<const std::int64_t> dst,
                 Array<const std::int64_t> intervals, Array<const std::int64_t> bounds,
                 Array<std::int64_t> counts, int threads) {
  const Edges edges(src, dst, intervals, threads);
  const Parts parts(bounds);
  check_cells(counts.size(), edges, parts, "counts");
  nb::gil_scoped_release release;
  for (const Stretch& mine : count_stretches(edges, parts)) {
    std::int64_t* to = counts.data() + mine.low * parts.count() * parts.count();
    for (std::size_t c = 0; c < mine.counts.size(); ++c) to[c] += mine.counts[c];
  }
}

// Where edges are written: `order` gets `base` plus an edge's place among those of the call, `from`
// and `to` (or null) its vertices counted from the beginning of their parts.
struct Sorted {
  std::int64_t* order;
  std::int32_t* from = nullptr;
  std::int32_t* to = nullptr;
  std::int64_t base;

  Sorted(Array<std::int64_t> places, const Maybe<std::int32_t>& local_src,
         const Maybe<std::int32_t>& local_dst, std::int64_t first)
      : order(places.data()), base(first) {
    check_optional(local_src, places.size(), "local_src");
    check_optional(local_dst, places.size(), "local_dst");
    if (local_src.has_value() != local_dst.has_value()) reject("local_src comes with local_dst");
    if (local_src) from = local_src->data();
    if (local_dst) to = local_dst->data();
  }
};

// Writes each edge to the next free place of its grid, which ends at `ends`, and moves
// cursors[T, G, G] on.
void place(const Edges& edges, const Parts& parts, std::vector<Stretch>& stretches,
           std::int64_t* cursors, const std::int64_t* ends, const Sorted& out) {
  const std::int64_t g = parts.count();
  std::vector<std::int64_t> next(cursors, cursors + edges.intervals() * g * g);
  for (const Stretch& mine : stretches) {
    std::int64_t* cursor = next.data() + mine.low * g * g;
    const std::int64_t* end = ends + mine.low * g * g;
    for (std::size_t c = 0; c < mine.counts.size(); ++c) {
      const std::int64_t here = mine.counts[c];
      if (cursor[c] < 0 || cursor[c] > end[c] - here) reject("cursors leave no room for edges");
      cursor[c] += here;
    }
  }
  for (Stretch& mine : stretches) {
    std::int64_t* cursor = cursors + mine.low * g * g;
    for (std::size_t c = 0; c < mine.counts.size(); ++c) {
      const std::int64_t here = mine.counts[c];
      mine.counts[c] = cursor[c];
      cursor[c] += here;
    }
  }
#pragma omp parallel for num_threads(edges.threads) schedule(static, 1)
  for (int t = 0; t < edges.threads; ++t) {
    Stretch& mine = stretches[t];
    walk(edges, t, [&](std::int64_t e, std::int64_t k) {
      const std::int64_t i = parts.of(edges.src[e]);
      const std::int64_t j = parts.of(edges.dst[e]);
      const std::int64_t at = mine.counts[((k - mine.low) * g + i) * g + j]++;
      out.order[at] = out.base + e;
      if (out.from) {
        out.from[at] = static_cast<std::int32_t>(edges.src[e] - parts.begin(i));
        out.to[at] = static_cast<std::int32_t>(edges.dst[e] - parts.begin(j));
      }
    });
  }
}

// offsets[T * G * G + 1] receives the first place of each grid.
void sort_grids(Array<const std::int64_t> src, Array<const std::int64_t> dst,
                Array<const std::int64_t> intervals, Array<const std::int64_t> bounds,
                Array<std::int64_t> offsets, Array<std::int64_t> order,
                Maybe<std::int32_t> local_src, Maybe<std::int32_t> local_dst, int threads) {
  const Edges edges(src, dst, intervals, threads);
  const Parts parts(bounds);
  if (offsets.size() == 0) reject("offsets is empty");
  check_cells(offsets.size() - 1, edges, parts, "offsets");
  check_size(order, src.size(), "order");
  const Sorted out(order, local_src, local_dst, 0);
  nb::gil_scoped_release release;
  std::vector<Stretch> stretches = count_stretches(edges, parts);
  std::int64_t* starts = offsets.data();
  std::fill(starts, starts + offsets.size(), 0);
  const std::int64_t cells = parts.count() * parts.count();
  for (const Stretch& mine : stretches) {
    std::int64_t* to = starts + 1 + mine.low * cells;
    for (std::size_t c = 0; c < mine.counts.size(); ++c) to[c] += mine.counts[c];
  }
  std::partial_sum(starts, starts + offsets.size(), starts);
  std::vector<std::int64_t> cursors(starts, starts + offsets.size() - 1);
  place(edges, parts, stretches, cursors.data(), starts + 1, out);
}

// The same for a piece of a stream whose grids begin at offsets[T * G * G + 1]: `cursors`[T, G, G]
// hold where each of them goes on.
void place_grids(Array<const std::int64_t> src, Array<const std::int64_t> dst,
                 Array<const std::int64_t> intervals, Array<const std::int64_t> bounds,
                 std::int64_t base, Array<const std::int64_t> offsets,
                 Array<std::int64_t> cursors, Array<std::int64_t> order,
                 Maybe<std::int32_t> local_src, Maybe<std::int32_t> local_dst, int threads) {
  const Edges edges(src, dst, intervals, threads);
  const Parts parts(bounds);
  check_cells(cursors.size(), edges, parts, "cursors");
  check_size(offsets, cursors.size() + 1, "offsets");
  check_offsets(offsets.data(), offsets.size(), order.size(), "offsets");
  const Sorted out(order, local_src, local_dst, base);
  nb::gil_scoped_release release;
  std::vector<Stretch> stretches = count_stretches(edges, parts);
  place(edges, parts, stretches, cursors.data(), offsets.data() + 1, out);
}

}  // namespace

void bind_grids(nb::module_& m) {
  m.def("count_grids", &count_grids, "src"_a.noconvert(), "dst"_a.noconvert(),
        "intervals"_a.noconvert(), "bounds"_a.noconvert(), "counts"_a.noconvert(), "threads"_a);
  m.def("sort_grids", &sort_grids, "src"_a.noconvert(), "dst"_a.noconvert(),
        "intervals"_a.noconvert(), "bounds"_a.noconvert(), "offsets"_a.noconvert(),
        "order"_a.noconvert(), "local_src"_a.noconvert().none(), "local_dst"_a.noconvert().none(),
        "threads"_a);
  m.def("place_grids", &place_grids, "src"_a.noconvert(), "dst"_a.noconvert(),
        "intervals"_a.noconvert(), "bounds"_a.noconvert(), "base"_a, "offsets"_a.noconvert(),
        "cursors"_a.noconvert(), "order"_a.noconvert(), "local_src"_a.noconvert().none(),
        "local_dst"_a.noconvert().none(), "threads"_a);
}

}  // namespace dgbench
