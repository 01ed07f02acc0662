// A temporal graph as sorted rows that are built anew whenever it grows, and sampled by a search in
// each root's row: the way of TGL (Zhou et al., VLDB 2022), with exact times. No prefetch and no
// grouping of roots, on purpose: it is what the blocks of GNNFlow are compared with.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/caught.hpp"
#include "common/check.hpp"
#include "common/counting.hpp"
#include "common/lists.hpp"
#include "temporal_sample/cpu_hops.hpp"
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

// Records of a root: the first, and how many.
struct Found {
  std::int64_t first;
  std::int64_t count;
};

// Samples all hops around the roots of a batch into `out`; see temporal_sample/cpu_hops.hpp.
std::vector<std::int64_t> sample_tcsr(
    Array<const std::int64_t> indptr, Array<const std::int64_t> neighbours,
    Array<const std::int64_t> eids, Array<const double> times, Array<const std::int64_t> nodes,
    Array<const double> ends, Maybe<const std::int64_t> positions, double length,
    std::vector<std::uint32_t> fanouts, std::vector<std::int64_t> capacities,
    std::uint32_t snapshots, bool prop_time, bool uniform, bool closed, bool replace,
    std::uint64_t seed, std::uint32_t draw, std::uint32_t hop, std::uint32_t snapshot, int threads,
    Array<std::int64_t> out) {
  const std::size_t roots = nodes.size();
  const auto vertices = static_cast<std::int64_t>(indptr.size()) - 1;  // -1: any id is refused
  const auto records = static_cast<std::int64_t>(times.size());
  check_size(neighbours, times.size(), "neighbours");
  check_size(eids, times.size(), "eids");
  check_size(ends, roots, "ends");
  check_optional(positions, roots, "positions");
  const temporal::HopsRequest batch{
      nodes.data(), ends.data(), nullptr, pointer(positions), static_cast<std::int64_t>(roots),
      length, prop_time, snapshots, seed, draw, hop, snapshot, fanouts, capacities};
  check_size(out, static_cast<std::size_t>(batch.words(65535)), "out");
  const auto policy = uniform ? temporal::Policy::Uniform : temporal::Policy::Recent;
  threads = std::max(1, threads);
  nb::gil_scoped_release release;
  std::vector<Found> found;  // of the targets of a hop
  const auto search = [&](const temporal::HopRequest& one) {
    const double* const all = times.data();
#pragma omp parallel for num_threads(threads) schedule(dynamic, kRoots)
    for (std::int64_t r = 0; r < one.targets; ++r) {
      const std::int64_t* const row = indptr.data() + one.nodes[r];
      const double* const stop = all + row[1];
      const double end = one.ends[r];
      const double* const low =
          std::isinf(length) ? all + row[0] : std::lower_bound(all + row[0], stop, end - length);
      const double* const high =
          closed ? std::upper_bound(low, stop, end) : std::lower_bound(low, stop, end);
      found[r] = {low - all, high - low};
    }
  };
  const auto take = [&](const temporal::HopRequest& one, const temporal::SampleOutput& output) {
    Caught caught;
#pragma omp parallel num_threads(threads)
    {
      std::vector<std::uint32_t> chosen;
      caught.run([&] { chosen.resize(one.fanout); });
#pragma omp for schedule(dynamic, kRoots)
      for (std::int64_t r = 0; r < one.targets; ++r) {
        if (caught.any()) continue;
        const auto n = static_cast<std::uint32_t>(found[r].count);
        const std::int64_t at = output.offsets[r];
        const auto wanted = static_cast<std::uint32_t>(output.offsets[r + 1] - at);
        if (uniform) {
          const auto position = static_cast<std::uint64_t>(one.positions[r]);
          temporal::draw_uniform(n, one.fanout, replace, one.key, position, chosen.data());
        }
        for (std::uint32_t i = 0; i < wanted; ++i) {
          const std::int64_t place = found[r].first + (uniform ? chosen[i] : n - wanted + i);
          output.neighbours[at + i] = neighbours.data()[place];
          output.eids[at + i] = eids.data()[place];
          output.times[at + i] = times.data()[place];
        }
      }
    }
    caught.rethrow();
  };
  return temporal::sample_hops(
      batch, out.data(),
      [&](const temporal::HopRequest& one, const temporal::SampleOutput& output,
          std::int64_t capacity) -> std::int64_t {
        for (std::int64_t r = 0; r < one.targets; ++r) {
          const std::int64_t node = one.nodes[r];
          if (node < 0 || node >= vertices || one.ends[r] != one.ends[r]) return -1 - r;
          const std::int64_t* const row = indptr.data() + node;
          const bool fits = row[0] >= 0 && row[0] <= row[1] && row[1] <= records;
          if (!fits || row[1] - row[0] > UINT32_MAX) return -1 - r;
        }
        if (found.size() < static_cast<std::size_t>(one.targets)) found.resize(one.targets);
        search(one);
        output.offsets[0] = 0;
        for (std::int64_t r = 0; r < one.targets; ++r) {
          const auto n = static_cast<std::uint32_t>(found[r].count);
          output.offsets[r + 1] =
              output.offsets[r] + temporal::taken(n, one.fanout, replace, policy);
        }
        const std::int64_t count = output.offsets[one.targets];
        if (count <= capacity) take(one, output);
        return count;
      });
}

}  // namespace

void bind_tcsr(nb::module_& m) {
  m.def("build_tcsr", &build_tcsr, "vertices"_a, "src"_a.noconvert(), "dst"_a.noconvert(),
        "t"_a.noconvert(), "eid"_a.noconvert(), "undirected"_a, "indptr"_a.noconvert(),
        "neighbours"_a.noconvert(), "eids"_a.noconvert(), "times"_a.noconvert(), "threads"_a);
  m.def("sample_tcsr", &sample_tcsr, "indptr"_a.noconvert(), "neighbours"_a.noconvert(),
        "eids"_a.noconvert(), "times"_a.noconvert(), "nodes"_a.noconvert(), "ends"_a.noconvert(),
        "positions"_a.noconvert().none(), "length"_a, "fanouts"_a, "capacities"_a, "snapshots"_a,
        "prop_time"_a, "uniform"_a, "closed"_a, "replace"_a, "seed"_a, "draw"_a, "hop"_a,
        "snapshot"_a, "threads"_a, "out"_a.noconvert());
}

}  // namespace dgbench
