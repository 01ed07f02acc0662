// Binding of the temporal sampler: checks, then one body for each layout of records.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/check.hpp"
#include "common/lists.hpp"
#include "temporal_sample/cpu_group.hpp"
#include "temporal_sample/cpu_hops.hpp"
#include "temporal_sample/cpu_sample.hpp"
#include "temporal_store/cpu_store.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using temporal::SampleOutput;
using temporal::SampleRequest;
using temporal::TemporalStore;

constexpr int kRootsPerGroup = 32;           // looked up in step
constexpr std::uint32_t kLongFanout = 1024;  // fan-out from which a root is work enough by itself

template <class Record>
std::int64_t sample_layout(const SampleRequest& request, const SampleOutput& output,
                           std::int64_t capacity, bool grouped, int threads) {
  if (grouped && request.fanout <= kLongFanout) {
    return temporal::sample_all<temporal::Group<Record, kRootsPerGroup>>(request, output, capacity,
                                                                         threads);
  }
  return temporal::sample_all<temporal::Single<Record>>(request, output, capacity, threads);
}

// Samples all hops around the roots of a batch into `out`; see cpu_hops.hpp for both.
std::vector<std::int64_t> temporal_sample(
    const TemporalStore& store, Array<const std::int64_t> nodes, Array<const double> ends,
    Maybe<const double> begins, Maybe<const std::int64_t> positions, double length,
    std::vector<std::uint32_t> fanouts, std::vector<std::int64_t> capacities,
    std::uint32_t snapshots, bool prop_time, bool uniform, bool closed, bool replace,
    std::uint64_t seed, std::uint32_t draw, std::uint32_t hop, std::uint32_t snapshot, bool linear,
    bool grouped, int threads, Array<std::int64_t> out) {
  const std::size_t roots = nodes.size();
  check_size(ends, roots, "ends");
  check_optional(begins, roots, "begins");
  check_optional(positions, roots, "positions");
  const temporal::HopsRequest batch{
      nodes.data(), ends.data(), pointer(begins), pointer(positions),
      static_cast<std::int64_t>(roots), length, prop_time, snapshots, seed, draw, hop, snapshot,
      fanouts, capacities};
  check_size(out, static_cast<std::size_t>(batch.words(uniform ? 1u << 17 : 0x7fffffffu)), "out");
  const temporal::StoreView view = store.view();
  const auto policy = uniform ? temporal::Policy::Uniform : temporal::Policy::Recent;
  threads = std::max(1, threads);
  nb::gil_scoped_release release;
  return temporal::sample_hops(
      batch, out.data(),
      [&](const temporal::HopRequest& one, const SampleOutput& output, std::int64_t capacity) {
        const SampleRequest request{view, one.nodes, one.ends, one.begins, one.positions,
                                    one.targets, length, closed, replace, linear, policy,
                                    one.fanout, one.key};
        switch (view.layout) {
          case temporal::Layout::Compact:
            return sample_layout<temporal::Compact>(request, output, capacity, grouped, threads);
          case temporal::Layout::Wide:
            return sample_layout<temporal::Wide>(request, output, capacity, grouped, threads);
          default:
            return sample_layout<temporal::Packed>(request, output, capacity, grouped, threads);
        }
      });
}

// A record whose time counts how often it is asked for.
struct Counted : temporal::Packed {};
thread_local std::int64_t comparisons = 0;
double time_of(const Counted& r, double) {
  ++comparisons;
  return r.t;
}

// What a walk along the lists costs (Algorithm 1): per root the blocks that it looks at and the
// times of records that its searches inside of blocks compare.
void count_walk(const TemporalStore& store, Array<const std::int64_t> nodes,
                Array<const double> begins, Array<const double> ends, Array<std::int64_t> blocks,
                Array<std::int64_t> compared) {
  const std::size_t roots = nodes.size();
  check_size(begins, roots, "begins");
  check_size(ends, roots, "ends");
  check_size(blocks, roots, "blocks");
  check_size(compared, roots, "compared");
  const temporal::StoreView view = store.view();
  if (view.layout != temporal::Layout::Packed) reject("store must be packed");
  if (!ids_in_range(nodes.data(), roots, view.num_vertices)) reject("nodes out of range");
  SampleRequest request{};
  request.view = view;
  request.linear = true;
  request.policy = temporal::Policy::Uniform;
  temporal::Runs<Counted> runs(request);
  nb::gil_scoped_release release;
  for (std::size_t r = 0; r < roots; ++r) {
    comparisons = 0;
    runs.gather(view.vertices[nodes.data()[r]], begins.data()[r], ends.data()[r]);
    blocks.data()[r] = runs.visited();
    compared.data()[r] = comparisons;
  }
}

// Reads the first word of lines of 64 bytes, each asked for ahead: what a machine can do at most.
std::int64_t read_lines(Array<const std::int64_t> table, Array<const std::int64_t> order,
                        int threads) {
  constexpr std::int64_t kAhead = 32;
  const auto count = static_cast<std::int64_t>(order.size());
  const std::int64_t* const line = order.data();
  const std::int64_t* const words = table.data();
  if (!ids_in_range(line, order.size(), static_cast<std::int64_t>(table.size() / 8))) {
    reject("order names a line outside of table");
  }
  nb::gil_scoped_release release;
  std::int64_t sum = 0;
#pragma omp parallel for schedule(static) num_threads(std::max(1, threads)) reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) __builtin_prefetch(words + line[i + kAhead] * 8);
    sum += words[line[i] * 8];
  }
  return sum;
}

}  // namespace

void bind_temporal_sample(nb::module_& m) {
  m.def("temporal_sample", &temporal_sample, "store"_a, "nodes"_a.noconvert(),
        "ends"_a.noconvert(), "begins"_a.noconvert().none(), "positions"_a.noconvert().none(),
        "length"_a, "fanouts"_a, "capacities"_a, "snapshots"_a, "prop_time"_a, "uniform"_a,
        "closed"_a, "replace"_a, "seed"_a, "draw"_a, "hop"_a, "snapshot"_a, "linear"_a, "grouped"_a,
        "threads"_a, "out"_a.noconvert());
  m.def("count_walk", &count_walk, "store"_a, "nodes"_a.noconvert(), "begins"_a.noconvert(),
        "ends"_a.noconvert(), "blocks"_a.noconvert(), "compared"_a.noconvert());
  m.def("read_lines", &read_lines, "table"_a.noconvert(), "order"_a.noconvert(), "threads"_a);
}

}  // namespace dgbench
