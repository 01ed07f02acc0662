// A temporal graph as sorted rows that are built anew whenever it grows, and sampled by a search in
// each root's row: the way of TGL (Zhou et al., VLDB 2022), with exact times. No prefetch and no
// grouping of roots, on purpose: it is what the blocks of GNNFlow are compared with.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/caught.hpp"
#include "common/check.hpp"
#include "common/counting.hpp"
#include "temporal_sample/functors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

constexpr std::int64_t kRoots = 64;  // roots that a thread takes at a time

// Rows of E events, or of 2E half edges: event i at its source, then at its destination, so that
// equal times keep the order of arrival. Events come in time order.
void build_tcsr(std::int64_t vertices, Array<const std::int64_t> src, Array<const std::int64_t> dst,
                Array<const double> t, Array<const std::int64_t> eid, bool undirected,
                Array<std::int64_t> indptr, Array<std::int64_t> neighbours,
                Array<std::int64_t> eids, Array<double> times, int threads) {
  const std::size_t events = src.size();
  const std::size_t records = undirected ? 2 * events : events;
  if (vertices < 0) reject("num_vertices must not be negative");
  check_size(dst, events, "dst");
  check_size(t, events, "t");
  check_size(eid, events, "eid");
  check_size(indptr, static_cast<std::size_t>(vertices) + 1, "indptr");
  check_size(neighbours, records, "neighbours");
  check_size(eids, records, "eids");
  check_size(times, records, "times");
  if (!ids_in_range(src.data(), events, vertices)) reject("src holds ids outside [0, N)");
  if (!ids_in_range(dst.data(), events, vertices)) reject("dst holds ids outside [0, N)");
  nb::gil_scoped_release release;
  if (!std::is_sorted(t.data(), t.data() + events)) reject("t must not decrease");
  const std::int64_t* ends[2] = {src.data(), dst.data()};
  const int sides = undirected ? 2 : 1;
  const auto owner = [&](std::int64_t i) {
    return sides == 2 ? ends[i & 1][i >> 1] : ends[0][i];
  };
  const auto place = [&](std::int64_t i, std::int64_t at) {
    const std::int64_t e = sides == 2 ? i >> 1 : i;
    neighbours.data()[at] = sides == 2 ? ends[~i & 1][e] : ends[1][e];
    eids.data()[at] = eid.data()[e];
    times.data()[at] = t.data()[e];
  };
  group_by(static_cast<std::int64_t>(records), vertices, std::max(1, threads), indptr.data(), owner,
           place);
}

// Which records of each root's row lie in [begin, end), or in [begin, end] if closed.
void search_tcsr(Array<const std::int64_t> indptr, Array<const double> times,
                 Array<const std::int64_t> nodes, Array<const double> begins,
                 Array<const double> ends, bool closed, Array<std::int64_t> first,
                 Array<std::int64_t> count, int threads) {
  const std::size_t roots = nodes.size();
  const auto vertices = static_cast<std::int64_t>(indptr.size()) - 1;  // -1: any id is refused
  check_size(begins, roots, "begins");
  check_size(ends, roots, "ends");
  check_size(first, roots, "first");
  check_size(count, roots, "count");
  if (!ids_in_range(nodes.data(), roots, vertices)) reject("nodes holds ids outside [0, N)");
  nb::gil_scoped_release release;
  const auto records = static_cast<std::int64_t>(times.size());
  for (std::size_t r = 0; r < roots; ++r) {
    const std::int64_t* row = indptr.data() + nodes.data()[r];
    if (row[0] < 0 || row[0] > row[1] || row[1] > records) reject("indptr does not fit times");
  }
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(dynamic, kRoots)
  for (std::size_t r = 0; r < roots; ++r) {
    const double* all = times.data();
    const double* row = all + indptr.data()[nodes.data()[r]];
    const double* stop = all + indptr.data()[nodes.data()[r] + 1];
    const double end = ends.data()[r];
    const double* low = std::lower_bound(row, stop, begins.data()[r]);
    const double* high = closed ? std::upper_bound(low, stop, end) : std::lower_bound(low, stop, end);
    first.data()[r] = low - all;
    count.data()[r] = high - low;
  }
}

// Writes what each root takes of its records [first, first + count) to [offsets[r], offsets[r + 1]).
void take_tcsr(Array<const std::int64_t> neighbours, Array<const std::int64_t> eids,
               Array<const double> times, Array<const std::int64_t> first,
               Array<const std::int64_t> count, Array<const std::int64_t> offsets,
               Array<const std::int64_t> positions, std::uint32_t fanout, bool uniform,
               bool replace, std::uint64_t seed, std::uint32_t hop, std::uint32_t snapshot,
               std::uint32_t draw, Array<std::int64_t> out_neighbours,
               Array<std::int64_t> out_eids, Array<double> out_times, int threads) {
  const std::size_t roots = first.size();
  const std::size_t records = times.size();
  const std::size_t total = out_times.size();
  check_size(neighbours, records, "neighbours");
  check_size(eids, records, "eids");
  check_size(count, roots, "count");
  check_size(positions, roots, "positions");
  check_size(offsets, roots + 1, "offsets");
  check_offsets(offsets.data(), offsets.size(), total, "offsets");
  check_size(out_neighbours, total, "out_neighbours");
  check_size(out_eids, total, "out_eids");
  nb::gil_scoped_release release;
  const auto policy = uniform ? temporal::Policy::Uniform : temporal::Policy::Recent;
  const auto limit = static_cast<std::int64_t>(records);
  for (std::size_t r = 0; r < roots; ++r) {
    const std::int64_t from = first.data()[r];
    const std::int64_t n = count.data()[r];
    if (from < 0 || n < 0 || n > UINT32_MAX || from > limit - n) reject("count reaches too far");
    const std::int64_t wanted =
        temporal::taken(static_cast<std::uint32_t>(n), fanout, replace, policy);
    if (offsets.data()[r + 1] - offsets.data()[r] != wanted) reject("offsets do not fit count");
  }
  const DrawKey key = draw_key(seed, hop, snapshot, draw);
  Caught caught;
#pragma omp parallel num_threads(std::max(1, threads))
  {
    std::vector<std::uint32_t> chosen;
    caught.run([&] { chosen.resize(fanout); });
#pragma omp for schedule(dynamic, kRoots)
    for (std::size_t r = 0; r < roots; ++r) {
      if (caught.any()) continue;
      const auto n = static_cast<std::uint32_t>(count.data()[r]);
      const std::int64_t at = offsets.data()[r];
      const auto wanted = static_cast<std::uint32_t>(offsets.data()[r + 1] - at);
      if (uniform) {
        const auto position = static_cast<std::uint64_t>(positions.data()[r]);
        temporal::draw_uniform(n, fanout, replace, key, position, chosen.data());
      }
      for (std::uint32_t i = 0; i < wanted; ++i) {
        const std::int64_t place = first.data()[r] + (uniform ? chosen[i] : n - wanted + i);
        out_neighbours.data()[at + i] = neighbours.data()[place];
        out_eids.data()[at + i] = eids.data()[place];
        out_times.data()[at + i] = times.data()[place];
      }
    }
  }
  caught.rethrow();
}

}  // namespace

void bind_tcsr(nb::module_& m) {
  m.def("build_tcsr", &build_tcsr, "vertices"_a, "src"_a.noconvert(), "dst"_a.noconvert(),
        "t"_a.noconvert(), "eid"_a.noconvert(), "undirected"_a, "indptr"_a.noconvert(),
        "neighbours"_a.noconvert(), "eids"_a.noconvert(), "times"_a.noconvert(), "threads"_a);
  m.def("search_tcsr", &search_tcsr, "indptr"_a.noconvert(), "times"_a.noconvert(),
        "nodes"_a.noconvert(), "begins"_a.noconvert(), "ends"_a.noconvert(), "closed"_a,
        "first"_a.noconvert(), "count"_a.noconvert(), "threads"_a);
  m.def("take_tcsr", &take_tcsr, "neighbours"_a.noconvert(), "eids"_a.noconvert(),
        "times"_a.noconvert(), "first"_a.noconvert(), "count"_a.noconvert(),
        "offsets"_a.noconvert(), "positions"_a.noconvert(), "fanout"_a, "uniform"_a, "replace"_a,
        "seed"_a, "hop"_a, "snapshot"_a, "draw"_a, "out_neighbours"_a.noconvert(),
        "out_eids"_a.noconvert(), "out_times"_a.noconvert(), "threads"_a);
}

}  // namespace dgbench
