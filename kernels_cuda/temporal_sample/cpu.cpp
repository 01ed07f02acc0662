// Binding of the temporal sampler: checks, then one body for each layout of records.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>

#include "common/check.hpp"
#include "temporal_sample/cpu_sample.hpp"
#include "temporal_sample/cpu_group.hpp"
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

// `out` has roots + 1 offsets, then `capacity` elements each for neighbours, edge ids and times (as
// doubles). Writes the offsets, and the others where there is capacity for all; returns the number
// of neighbours, or -1 less the first root that cannot be asked for.
std::int64_t temporal_sample(const TemporalStore& store, Array<const std::int64_t> nodes,
                             Array<const double> ends, Maybe<const double> begins, double length,
                             bool uniform, bool closed, std::uint32_t fanout, bool replace,
                             std::uint64_t seed, bool linear, bool grouped, int threads,
                             std::uint32_t draw, std::uint32_t hop, std::uint32_t snapshot,
                             Array<const std::int64_t> positions, Array<std::int64_t> out,
                             std::int64_t capacity) {
  const std::size_t roots = nodes.size();
  check_size(ends, roots, "ends");
  check_optional(begins, roots, "begins");
  check_size(positions, roots, "positions");
  if (capacity < 0) reject("capacity must be at least 0");
  check_size(out, roots + 1 + 3 * static_cast<std::size_t>(capacity), "out");
  if (fanout < 1 || fanout > (uniform ? 1u << 17 : 0x7fffffffu)) reject("fanout out of its range");
  if (hop > 255 || snapshot > 255) reject("hop and snapshot must be below 256");
  if (!(length >= 0)) reject("length must be at least 0");
  const temporal::StoreView view = store.view();
  const SampleRequest request{view,
                   nodes.data(),
                   ends.data(),
                   pointer(begins),
                   positions.data(),
                   static_cast<std::int64_t>(roots),
                   length,
                   closed,
                   replace,
                   linear,
                   uniform ? temporal::Policy::Uniform : temporal::Policy::Recent,
                   fanout,
                   draw_key(seed, hop, snapshot, draw)};
  std::int64_t* const first = out.data() + roots + 1;
  const SampleOutput output{out.data(), first, first + capacity,
                  reinterpret_cast<double*>(first + 2 * capacity)};
  threads = std::max(1, threads);
  nb::gil_scoped_release release;
  switch (view.layout) {
    case temporal::Layout::Compact:
      return sample_layout<temporal::Compact>(request, output, capacity, grouped, threads);
    case temporal::Layout::Wide:
      return sample_layout<temporal::Wide>(request, output, capacity, grouped, threads);
    default:
      return sample_layout<temporal::Packed>(request, output, capacity, grouped, threads);
  }
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

// Positions of the next hop's targets: the targets themselves, then their neighbours in order.
void child_positions(Array<const std::int64_t> positions, Array<const std::int64_t> offsets,
                     std::int64_t fanout, Array<std::int64_t> children) {
  const std::size_t roots = positions.size();
  check_size(offsets, roots + 1, "offsets");
  if (children.size() < roots) reject("children must hold all targets and neighbours");
  check_offsets(offsets.data(), roots + 1, children.size() - roots, "offsets");
  const std::int64_t* const offset = offsets.data();
  std::int64_t* const self = children.data();
  std::int64_t* const child = children.data() + roots;
  nb::gil_scoped_release release;
  for (std::size_t r = 0; r < roots; ++r) {
    const std::int64_t own = temporal::child_position(positions.data()[r], fanout, 0);
    self[r] = own;
    for (std::int64_t k = offset[r]; k < offset[r + 1]; ++k) child[k] = own + 1 + k - offset[r];
  }
}

// Times of the next hop's targets where roots pass theirs on: the targets' own, and each again for
// every neighbour of the target.
void child_times(Array<const double> times, Array<const std::int64_t> offsets,
                 Array<double> children) {
  const std::size_t roots = times.size();
  check_size(offsets, roots + 1, "offsets");
  if (children.size() < roots) reject("children must hold all targets and neighbours");
  check_offsets(offsets.data(), roots + 1, children.size() - roots, "offsets");
  const std::int64_t* const offset = offsets.data();
  double* const self = children.data();
  nb::gil_scoped_release release;
  std::copy(times.data(), times.data() + roots, self);
  for (std::size_t r = 0; r < roots; ++r) {
    std::fill(self + roots + offset[r], self + roots + offset[r + 1], times.data()[r]);
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
        "ends"_a.noconvert(), "begins"_a.noconvert().none(), "length"_a, "uniform"_a, "closed"_a,
        "fanout"_a, "replace"_a, "seed"_a, "linear"_a, "grouped"_a, "threads"_a, "draw"_a, "hop"_a,
        "snapshot"_a, "positions"_a.noconvert(), "out"_a.noconvert(), "capacity"_a);
  m.def("count_walk", &count_walk, "store"_a, "nodes"_a.noconvert(), "begins"_a.noconvert(),
        "ends"_a.noconvert(), "blocks"_a.noconvert(), "compared"_a.noconvert());
  m.def("read_lines", &read_lines, "table"_a.noconvert(), "order"_a.noconvert(), "threads"_a);
  m.def("child_positions", &child_positions, "positions"_a.noconvert(), "offsets"_a.noconvert(),
        "fanout"_a, "children"_a.noconvert());
  m.def("child_times", &child_times, "times"_a.noconvert(), "offsets"_a.noconvert(),
        "children"_a.noconvert());
}

}  // namespace dgbench
