// Binding of temporal stores on a device and of sampling from them. The pools come from the host's
// TemporalStore; arrays of a hop are made by the caller and may be longer than what they hold.
#include <exception>

#include "common/operator_definition.hpp"
#include "common/require.hpp"
#include "temporal_sample/cuda_batch.hpp"
#include "temporal_sample/cuda_launchers.h"
#include "temporal_store/cuda_mirror.hpp"

using namespace nb::literals;

namespace dgbench {
namespace {

using namespace temporal;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::dict update(TemporalMirror& mirror, Bytes vertices, Bytes fences, Bytes blocks, Bytes records,
                int layout, double origin, int64_t deleted, uint64_t generation, bool rewritten,
                std::uintptr_t stream, int threads) {
  require(layout >= 0 && layout <= 2, "layout is " + std::to_string(layout) + ", allowed: 0 to 2");
  const Bytes* const given[kHostPools] = {&vertices, &fences, &blocks, &records};
  const std::size_t sizes[kHostPools] = {sizeof(Vertex), sizeof(Fence), sizeof(Block),
                                     layout == 0 ? sizeof(Packed)
                                     : layout == 1 ? sizeof(Compact)
                                                   : sizeof(Wide)};
  require(threads >= 1, "threads is " + std::to_string(threads) + ", allowed are numbers from 1");
  HostPools host{};
  for (int p = 0; p < kHostPools; ++p) {
    require(given[p]->size() % sizes[p] == 0, "a pool holds a part of an element");
    host.data[p] = given[p]->data();
    host.bytes[p] = given[p]->size();
  }
  host.layout = static_cast<Layout>(layout);
  host.origin = origin;
  host.deleted = deleted;
  host.generation = generation;
  Sent sent;
  {
    nb::gil_scoped_release release;
    sent = mirror.update(host, rewritten, threads, stream_of(stream));
  }
  nb::dict found;
  found["bytes"] = sent.bytes;
  found["patches"] = sent.patches;
  found["vertices"] = sent.vertices;
  found["whole"] = sent.whole;
  return found;
}

// What both halves of a hop are given.
Hop hop_of(const DeviceGraph& graph, const DeviceArray<const int64_t>& live,
           const DeviceArray<const int64_t>& nodes, const DeviceArray<const int64_t>& positions,
           int32_t fanout, bool uniform, bool linear, const DeviceArray<int32_t>& counts,
           const DeviceArray<int32_t>& firsts, const DeviceArray<int32_t>& totals,
           const MaybeDevice<int32_t>& chosen) {
  Hop hop{};
  hop.graph = graph.view();
  hop.guide = graph.guide();
  hop.capacity = static_cast<int64_t>(nodes.size());
  hop.fanout = fanout;
  require(fanout >= 1, "fanout is " + std::to_string(fanout) + ", allowed are numbers from 1");
  check_size(live, 1, "live");
  check_size(positions, nodes.size(), "positions");
  check_size(counts, nodes.size(), "counts");
  check_size(firsts, nodes.size(), "firsts");
  check_size(totals, nodes.size(), "totals");
  require(chosen.has_value() == uniform, "chosen is for uniform sampling");
  check_optional(chosen, static_cast<std::size_t>(draw_words(hop.capacity, fanout)), "chosen");
  hop.live = live.data();
  hop.nodes = nodes.data();
  hop.positions = positions.data();
  hop.policy = uniform ? Policy::Uniform : Policy::Recent;
  hop.search = linear ? Search::Linear : Search::Binary;
  hop.counts = counts.data();
  hop.firsts = reinterpret_cast<uint32_t*>(firsts.data());
  hop.totals = reinterpret_cast<uint32_t*>(totals.data());
  hop.chosen = reinterpret_cast<uint32_t*>(address(chosen));
  return hop;
}

void locate(const DeviceGraph& graph, DeviceArray<const int64_t> live,
            DeviceArray<const int64_t> nodes, DeviceArray<const int64_t> positions,
            DeviceArray<const double> times, double length, bool closed, int32_t fanout,
            bool uniform, bool linear, bool replace, uint64_t seed, uint32_t draw, uint32_t number,
            uint32_t snapshot, DeviceArray<int32_t> counts, DeviceArray<int32_t> firsts,
            DeviceArray<int32_t> totals, MaybeDevice<int32_t> chosen,
            MaybeDevice<const int64_t> draws, std::uintptr_t stream) {
  Hop hop = hop_of(graph, live, nodes, positions, fanout, uniform, linear, counts, firsts, totals,
                   chosen);
  check_size(times, nodes.size(), "times");
  check_optional(draws, 1, "draws");
  require(number < 256 && snapshot < 256, "hop and snapshot must be below 256");
  hop.times = times.data();
  hop.length = length;
  hop.closed = closed;
  hop.replace = replace;
  hop.key = draw_key(seed, number, snapshot, draw);
  hop.draws = address(draws);
  check_launch(dgb_temporal_locate(&hop, stream_of(stream)), "locate");
}

// `next` are the next hop's live, nodes, times and positions, or all None.
void emit(const DeviceGraph& graph, DeviceArray<const int64_t> live,
          DeviceArray<const int64_t> nodes, DeviceArray<const int64_t> positions,
          DeviceArray<const double> times, int32_t fanout, bool uniform, bool linear,
          DeviceArray<int32_t> counts, DeviceArray<int32_t> firsts, DeviceArray<int32_t> totals,
          MaybeDevice<int32_t> chosen, DeviceArray<const int64_t> offsets,
          DeviceArray<int64_t> neighbours, DeviceArray<int64_t> eids,
          DeviceArray<double> edge_times, MaybeDevice<int64_t> next_live,
          MaybeDevice<int64_t> next_nodes, MaybeDevice<double> next_times,
          MaybeDevice<int64_t> next_positions, bool prop_time, std::uintptr_t stream) {
  Hop hop = hop_of(graph, live, nodes, positions, fanout, uniform, linear, counts, firsts, totals,
                   chosen);
  const std::size_t capacity = nodes.size();
  const std::size_t found = neighbours.size();
  check_size(times, capacity, "times");
  check_size(offsets, capacity + 1, "offsets");
  require(found <= capacity * static_cast<std::size_t>(fanout), "neighbours is too long");
  check_size(eids, found, "eids");
  check_size(edge_times, found, "edge_times");
  const bool goes_on = next_live.has_value();
  require(next_nodes.has_value() == goes_on && next_times.has_value() == goes_on &&
              next_positions.has_value() == goes_on,
          "the next hop is given whole or not at all");
  check_optional(next_live, 1, "next_live");
  check_optional(next_nodes, capacity + found, "next_nodes");
  check_optional(next_times, capacity + found, "next_times");
  check_optional(next_positions, capacity + found, "next_positions");
  hop.times = times.data();
  hop.offsets = offsets.data();
  hop.max_neighbours = static_cast<int64_t>(found);
  hop.neighbours = neighbours.data();
  hop.eids = eids.data();
  hop.edge_times = edge_times.data();
  hop.next_live = address(next_live);
  hop.next_nodes = address(next_nodes);
  hop.next_times = address(next_times);
  hop.next_positions = address(next_positions);
  hop.prop_time = prop_time;
  check_launch(dgb_temporal_emit(&hop, stream_of(stream)), "emit");
}

using HostIds = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using HostTimes = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using HostWords = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// What a batch in one piece of memory is given, whoever brings its roots there.
Batch batch_of(const DeviceGraph& graph, const DeviceArray<int64_t>& memory,
               const DeviceArray<int64_t>& scratch, std::vector<int32_t>& fanouts,
               std::vector<int64_t>& capacities, const std::vector<int64_t>& offsets,
               int32_t snapshots, bool uniform, bool linear, bool replace, uint64_t seed,
               double length, bool closed, bool prop_time) {
  Batch batch{};
  require(offsets.size() % 7 == 0, "offsets are seven to a hop");
  require(!fanouts.empty() && fanouts.size() <= 256 && snapshots >= 1 && snapshots <= 256,
          "hops and snapshots must be 1 to 256");
  for (std::size_t p = 0; p < offsets.size(); p += 7) {
    const int64_t* const at = offsets.data() + p;
    batch.arrays.push_back({at[0], at[1], at[2], at[3], at[4], at[5], at[6]});
  }
  batch.fanouts = std::move(fanouts);
  batch.capacities = std::move(capacities);
  batch.snapshots = snapshots;
  batch.memory = memory.data();
  batch.words = static_cast<int64_t>(memory.size());
  batch.scratch = scratch.data();
  batch.how.graph = graph.view();
  batch.limit = batch.how.graph.num_vertices;
  batch.how.guide = graph.guide();
  batch.how.policy = uniform ? Policy::Uniform : Policy::Recent;
  batch.how.search = linear ? Search::Linear : Search::Binary;
  batch.how.replace = replace;
  batch.how.length = length;
  batch.how.closed = closed;
  batch.how.prop_time = prop_time;
  batch.seed = seed;
  return batch;
}

// All hops of all snapshots. `offsets`: seven for each, in the order of HopOffsets. Returns how
// many neighbours each found, or nothing where a root is no vertex or its time is no number.
std::vector<int64_t> sample(const DeviceGraph& graph, HostIds nodes, HostTimes times,
                            std::optional<HostIds> positions, HostWords staging,
                            DeviceArray<int64_t> memory, DeviceArray<int64_t> scratch,
                            std::vector<int32_t> fanouts, std::vector<int64_t> capacities,
                            std::vector<int64_t> offsets, int32_t snapshots, bool uniform,
                            bool linear, bool replace, uint64_t seed, uint32_t draw, double length,
                            bool closed, bool prop_time, std::uintptr_t stream) {
  Batch batch = batch_of(graph, memory, scratch, fanouts, capacities, offsets, snapshots, uniform,
                         linear, replace, seed, length, closed, prop_time);
  batch.draw = draw;
  batch.nodes = nodes.data();
  batch.times = times.data();
  batch.count = static_cast<int64_t>(nodes.size());
  check_size(times, nodes.size(), "times");
  if (positions) {
    check_size(*positions, nodes.size(), "positions");
    batch.positions = positions->data();
  }
  batch.staging = staging.data();
  batch.staged = static_cast<int64_t>(staging.size());
  batch.check();
  require(static_cast<int64_t>(scratch.size()) >= batch.scratch_words(), "scratch is too short");
  std::vector<int64_t> totals;
  nb::gil_scoped_release release;
  if (!batch.pack()) return totals;
  check_launch(batch.run(totals, stream_of(stream)), "sample");
  return totals;
}

// All hops of one snapshot, whose roots stand in the memory; `named` as in Batch.
void launch_in(const DeviceGraph& graph, DeviceArray<int64_t> memory, DeviceArray<int64_t> scratch,
               std::vector<int32_t> fanouts, std::vector<int64_t> capacities,
               std::vector<int64_t> offsets, int64_t named, bool uniform, bool linear, bool replace,
               uint64_t seed, DeviceArray<const int64_t> draws, double length, bool closed,
               bool prop_time, std::uintptr_t stream) {
  Batch batch = batch_of(graph, memory, scratch, fanouts, capacities, offsets, 1, uniform, linear,
                         replace, seed, length, closed, prop_time);
  check_size(draws, 1, "draws");
  batch.draws = draws.data();
  batch.named = named;
  batch.count = batch.capacities.empty() ? 0 : batch.capacities[0];
  batch.staged = batch.words;
  batch.check();
  require(static_cast<int64_t>(scratch.size()) >= batch.scratch_words(), "scratch is too short");
  check_launch(batch.launch(stream_of(stream)), "launch_in");
}

}  // namespace

void bind_temporal(nb::module_& m) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const OutOfDeviceMemory& error) {
      PyErr_SetString(PyExc_MemoryError, error.what());
    }
  });
  nb::class_<DeviceGraph> graph(m, "DeviceGraph");
  add_operator(graph, "locate", &locate, "live"_a.noconvert(), "nodes"_a.noconvert(),
           "positions"_a.noconvert(), "times"_a.noconvert(), "length"_a, "closed"_a, "fanout"_a,
           "uniform"_a, "linear"_a, "replace"_a, "seed"_a, "draw"_a, "hop"_a, "snapshot"_a,
           "counts"_a.noconvert(), "firsts"_a.noconvert(), "totals"_a.noconvert(),
           "chosen"_a.noconvert().none(), "draws"_a.noconvert().none(), "stream"_a);
  add_operator(graph, "emit", &emit, "live"_a.noconvert(), "nodes"_a.noconvert(), "positions"_a.noconvert(),
           "times"_a.noconvert(), "fanout"_a, "uniform"_a, "linear"_a, "counts"_a.noconvert(),
           "firsts"_a.noconvert(), "totals"_a.noconvert(), "chosen"_a.noconvert().none(),
           "offsets"_a.noconvert(), "neighbours"_a.noconvert(), "eids"_a.noconvert(),
           "edge_times"_a.noconvert(), "next_live"_a.noconvert().none(),
           "next_nodes"_a.noconvert().none(), "next_times"_a.noconvert().none(),
           "next_positions"_a.noconvert().none(), "prop_time"_a, "stream"_a);
  add_operator(graph, "sample", &sample, "nodes"_a.noconvert(), "times"_a.noconvert(),
               "positions"_a.noconvert().none(), "staging"_a.noconvert(), "memory"_a.noconvert(),
               "scratch"_a.noconvert(), "fanouts"_a, "capacities"_a, "offsets"_a, "snapshots"_a,
               "uniform"_a, "linear"_a, "replace"_a, "seed"_a, "draw"_a, "length"_a, "closed"_a,
               "prop_time"_a, "stream"_a);
  add_operator(graph, "launch_in", &launch_in, "memory"_a.noconvert(), "scratch"_a.noconvert(),
               "fanouts"_a, "capacities"_a, "offsets"_a, "named"_a, "uniform"_a, "linear"_a,
               "replace"_a, "seed"_a, "draws"_a.noconvert(), "length"_a, "closed"_a,
               "prop_time"_a, "stream"_a);
  nb::class_<TemporalMirror, DeviceGraph> mirror(m, "TemporalMirror");
  mirror
      .def(
          "__init__",
          [](TemporalMirror* self, int placement, uint64_t cap, int device) {
            require(placement >= 0 && placement <= 4, "placement must be 0 to 4");
            new (self) TemporalMirror(static_cast<Placement>(placement), cap, device);
          },
          "placement"_a, "cap"_a, "device"_a = 0)
      .def_prop_ro("device_bytes", &TemporalMirror::device_bytes)
      .def_prop_ro("pinned_bytes", &TemporalMirror::pinned_bytes)
      .def_prop_ro("managed_bytes", &TemporalMirror::managed_bytes);
  add_operator(mirror, "update", &update, "vertices"_a.noconvert(), "fences"_a.noconvert(),
           "blocks"_a.noconvert(), "records"_a.noconvert(), "layout"_a, "origin"_a, "deleted"_a,
           "generation"_a, "rewritten"_a, "stream"_a, "threads"_a = 1);
  add_operator(mirror, "clear", [](TemporalMirror& self) { self.clear(); });
}

}  // namespace dgbench
