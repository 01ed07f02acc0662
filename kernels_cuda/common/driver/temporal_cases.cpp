// Temporal sampling over blocks of records, and memory that a device reads a graph from.
#include <algorithm>

#include "common/driver/driver.hpp"
#include "common/launchers.h"
#include "temporal_sample/cuda_launchers.h"

namespace dgbench::driver {
namespace {

using namespace temporal;

struct Event {
  int64_t node, eid;
  double t;
  bool dead;
};

Packed record_of(const Event& e, Packed) {
  return {e.dead ? kNone : static_cast<uint32_t>(e.node), static_cast<uint32_t>(e.eid), e.t};
}
Compact record_of(const Event& e, Compact) {
  return {e.dead ? kNone : static_cast<uint32_t>(e.node), static_cast<uint32_t>(e.eid),
          static_cast<uint32_t>(e.t)};
}
Wide record_of(const Event& e, Wide) {
  return {e.dead ? ~uint64_t{0} : static_cast<uint64_t>(e.node), static_cast<uint64_t>(e.eid),
          e.t};
}

// A store of blocks of `size` records whose times come in pairs; every 50th record is deleted.
template <class Record>
struct Store {
  std::vector<std::vector<Event>> events;
  std::vector<Vertex> vertices;
  std::vector<Fence> fences;
  std::vector<Block> blocks;
  std::vector<Record> records;
  std::vector<double> guide;

  Store(const std::vector<int64_t>& degrees, uint32_t size, Random& random) {
    for (std::size_t v = 0; v < degrees.size(); ++v) {
      std::vector<Event> own;
      for (int64_t i = 0; i < degrees[v]; ++i) {
        own.push_back({random.below(static_cast<int64_t>(degrees.size())),
                       static_cast<int64_t>(records.size()) + i, static_cast<double>(i / 2),
                       degrees[v] > 100 && i % 50 == 7});
      }
      Vertex line{};
      line.t_min = kForever;
      line.t_max = -kForever;
      line.head = line.tail = kNone;
      line.fence = fences.size();
      for (uint32_t at = 0; at < own.size(); at += size) {
        const auto stop = static_cast<uint32_t>(std::min<std::size_t>(at + size, own.size()));
        const auto number = static_cast<uint32_t>(blocks.size());
        blocks.push_back({records.size(), size, stop - at, own[at].t, own[stop - 1].t, line.tail,
                          kNone, static_cast<uint32_t>(v), 0});
        if (line.tail == kNone) {
          line.head = number;
        } else {
          blocks[line.tail].next = number;
          fences.push_back({line.t_min, line.first, line.before, line.size});
          line.before += line.size;
          ++line.fences;
        }
        line.tail = number;
        line.first = records.size();
        line.size = stop - at;
        line.capacity = size;
        line.t_min = own[at].t;
        line.t_max = own[stop - 1].t;
        for (uint32_t i = at; i < stop; ++i) {
          line.dead += own[i].dead;
          records.push_back(record_of(own[i], Record{}));
        }
        records.resize(blocks.back().first + size, record_of({0, 0, 0, true}, Record{}));
      }
      vertices.push_back(line);
      events.push_back(own);
    }
    for (std::size_t i = 0; i < records.size(); i += kGuideStep) {
      guide.push_back(time_of(records[i], 0.0));
    }
  }
};

struct How {
  Policy policy;
  Search search;
  bool guided, replace, closed, prop_time;
  double length;
  int32_t fanout;
};

template <class Record>
void run_hop(const std::vector<int64_t>& degrees, Layout layout, const How& how) {
  Random random(degrees.size() + how.fanout);
  const Store<Record> store(degrees, 8, random);
  const auto count = static_cast<int64_t>(degrees.size());
  std::vector<int64_t> nodes, positions;
  std::vector<double> times;
  for (int64_t v = -1; v <= count; ++v) {  // the first and the last are no vertices
    for (const double t : {0.0, 3.0, 40.0, 1e6}) {
      nodes.push_back(v);
      times.push_back(t);
      positions.push_back(static_cast<int64_t>(positions.size()));
    }
  }
  // Room behind the last target.
  const auto live = static_cast<int64_t>(nodes.size());
  const int64_t capacity = live + 2, max_neighbours = capacity * how.fanout;
  nodes.resize(capacity, 0);
  times.resize(capacity, 0.0);
  positions.resize(capacity, 0);
  const DeviceArray<Vertex> vertices(store.vertices);
  const DeviceArray<Fence> fences(store.fences);
  const DeviceArray<Block> blocks(store.blocks);
  const DeviceArray<Record> records(store.records);
  const DeviceArray<double> guide(store.guide), d_times(times);
  const DeviceArray<int64_t> d_live(1, live), d_nodes(nodes), d_positions(positions);
  const DeviceArray<int32_t> counts(capacity);
  const DeviceArray<uint32_t> firsts(capacity), totals(capacity);
  const DeviceArray<uint32_t> chosen(
      how.policy == Policy::Uniform ? draw_words(capacity, how.fanout) : 0);
  const DeviceArray<int64_t> sums((capacity + kScanTile - 1) / kScanTile), offsets(capacity + 1),
      sum(1);
  const DeviceArray<int64_t> neighbours(max_neighbours), eids(max_neighbours);
  const DeviceArray<double> edge_times(max_neighbours), next_times(capacity + max_neighbours);
  const DeviceArray<int64_t> next_live(1), next_nodes(capacity + max_neighbours),
      next_positions(capacity + max_neighbours);
  Hop hop{};
  hop.graph = {vertices.data(), fences.data(), blocks.data(), records.data(), count, 0.0, layout,
               0, store.records.size(), store.fences.size(), store.blocks.size()};
  hop.guide = how.guided ? guide.data() : nullptr;
  hop.live = d_live.data();
  hop.capacity = capacity;
  hop.nodes = d_nodes.data();
  hop.times = d_times.data();
  hop.positions = d_positions.data();
  hop.length = how.length;
  hop.closed = how.closed;
  hop.prop_time = how.prop_time;
  hop.fanout = how.fanout;
  hop.policy = how.policy;
  hop.search = how.search;
  hop.replace = how.replace;
  hop.key = draw_key(1, 0, 0, 0);
  hop.counts = counts.data();
  hop.firsts = firsts.data();
  hop.totals = totals.data();
  hop.chosen = chosen.data();
  hop.offsets = offsets.data();
  hop.max_neighbours = max_neighbours;
  hop.neighbours = neighbours.data();
  hop.eids = eids.data();
  hop.edge_times = edge_times.data();
  hop.next_live = next_live.data();
  hop.next_nodes = next_nodes.data();
  hop.next_times = next_times.data();
  hop.next_positions = next_positions.data();
  RUN(dgb_temporal_locate(&hop, nullptr));
  RUN(dgb_temporal_offsets(counts.data(), capacity, sums.data(), offsets.data(), sum.data(),
                           nullptr));
  RUN(dgb_temporal_emit(&hop, nullptr));

  const std::string name = named("layout, policy, search, guided, replace, fanout",
                                 {static_cast<int64_t>(layout), static_cast<int64_t>(how.policy),
                                  static_cast<int64_t>(how.search), how.guided, how.replace,
                                  how.fanout});
  const std::vector<int32_t> taken_of = counts.host();
  const std::vector<int64_t> at = offsets.host(), found = eids.host(), to = neighbours.host();
  expect_equal(at, offsets_of(taken_of), "offsets, " + name);
  expect_equal(sum.host(), {at.back()}, "sum, " + name);
  expect_equal(next_live.host(), {live + at.back()}, "next targets, " + name);
  const std::vector<double> happened = edge_times.host(), asked = next_times.host();
  for (int64_t i = 0; i < capacity; ++i) {
    std::vector<Event> candidates;
    if (i < live && nodes[i] >= 0 && nodes[i] < count) {
      for (const Event& e : store.events[nodes[i]]) {
        const bool before = how.closed ? e.t <= times[i] : e.t < times[i];
        if (!e.dead && before && e.t >= times[i] - how.length) candidates.push_back(e);
      }
    }
    const auto n = static_cast<int64_t>(candidates.size());
    const bool repeats = how.replace && how.policy == Policy::Uniform;
    const int64_t right = repeats ? (n > 0 ? how.fanout : 0) : std::min<int64_t>(n, how.fanout);
    expect(taken_of[i] == right, "counts, " + name);
    if (taken_of[i] != right) continue;
    std::vector<int64_t> own(found.begin() + at[i], found.begin() + at[i + 1]);
    for (int64_t k = 0; k < right; ++k) {
      const int64_t eid = own[k];
      const auto same = [&](const Event& e) { return e.eid == eid && e.node == to[at[i] + k]; };
      expect(std::any_of(candidates.begin(), candidates.end(), same),
             "a neighbour is no candidate, " + name);
      if (how.policy == Policy::Recent) {
        expect(eid == candidates[n - right + k].eid, "not the newest, " + name);
      }
      const double when = how.prop_time ? times[i] : happened[at[i] + k];
      expect(asked[live + at[i] + k] == when, "time of a next target, " + name);
    }
    std::sort(own.begin(), own.end());
    const bool twice = std::adjacent_find(own.begin(), own.end()) != own.end();
    expect(repeats || !twice, "drawn twice, " + name);
  }
}

DRIVER_CASE(temporal_hop) {
  for (const auto& degrees : std::vector<std::vector<int64_t>>{{}, {5}, {0, 8, 1, 300, 9}}) {
    for (const int32_t fanout : {1, 3, 32, 100}) {
      for (const Policy policy : {Policy::Recent, Policy::Uniform}) {
        const bool replace = policy == Policy::Uniform;
        run_hop<Packed>(degrees, Layout::Packed,
                        {policy, Search::Binary, true, false, false, false, kForever, fanout});
        run_hop<Packed>(degrees, Layout::Packed,
                        {policy, Search::Binary, false, replace, true, true, 20.0, fanout});
        run_hop<Compact>(degrees, Layout::Compact,
                         {policy, Search::Linear, false, false, false, false, 20.0, fanout});
        run_hop<Compact>(degrees, Layout::Compact,
                         {policy, Search::Binary, true, replace, true, true, 7.0, fanout});
        run_hop<Wide>(degrees, Layout::Wide,
                      {policy, Search::Linear, false, replace, false, true, kForever, fanout});
      }
    }
  }
}

DRIVER_CASE(temporal_offsets) {
  for (const int64_t n : {1, 255, 2048, 2049, 10000}) {
    Random random(n);
    std::vector<int32_t> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<int32_t>(random.below(9)));
    const DeviceArray<int32_t> counts(values);
    const DeviceArray<int64_t> sums((n + kScanTile - 1) / kScanTile), offsets(n + 1), total(1);
    RUN(dgb_temporal_offsets(counts.data(), n, sums.data(), offsets.data(), total.data(),
                             nullptr));
    const std::vector<int64_t> right = offsets_of(values);
    expect_equal(offsets.host(), right, named("offsets", {n}));
    expect_equal(total.host(), {right.back()}, named("total", {n}));
  }
  RUN(dgb_temporal_offsets(nullptr, 0, nullptr, nullptr, nullptr, nullptr));
}

// Pieces of whole sixteen bytes and of odd words, put into one pool.
DRIVER_CASE(scatter_pieces) {
  Random random(6);
  std::vector<uint32_t> right(400, 7u);
  const DeviceArray<uint32_t> pool(right);
  std::vector<PieceHead> heads;
  std::vector<FourWords> content;
  uint32_t at = 0;
  for (const uint32_t words : {4u, 1u, 64u, 3u, 7u, 16u, 130u}) {
    heads.push_back({reinterpret_cast<uint64_t>(pool.data() + at),
                     static_cast<uint32_t>(content.size()), words});
    content.resize(content.size() + (words + 3) / 4, FourWords{});
    for (uint32_t w = 0; w < words; ++w) {
      const auto value = static_cast<uint32_t>(random.below(1 << 30));
      content[heads.back().from + w / 4].words[w % 4] = value;
      right[at + w] = value;
    }
    at += words + (words % 4 == 0 ? 0 : 1);
  }
  const DeviceArray<PieceHead> d_heads(heads);
  const DeviceArray<FourWords> d_content(content);
  const ScatterPieces pieces{d_heads.data(), d_content.data()};
  RUN(dgb_scatter_pieces(&pieces, static_cast<int64_t>(heads.size()), nullptr));
  RUN(dgb_scatter_pieces(&pieces, 0, nullptr));
  expect_equal(pool.host(), right, "scatter_pieces");
}

// Numbers go from page-locked memory over the device and managed memory back.
DRIVER_CASE(memory) {
  constexpr int64_t kCount = 1001;
  constexpr uint64_t kBytes = kCount * sizeof(int64_t);
  void *locked = nullptr, *managed = nullptr, *mark = nullptr;
  RUN(dgb_host_allocate(&locked, kBytes));
  RUN(dgb_managed_allocate(&managed, kBytes));
  RUN(dgb_mark_make(&mark));
  auto* const numbers = static_cast<int64_t*>(locked);
  std::vector<int64_t> right;
  for (int64_t i = 0; i < kCount; ++i) right.push_back(numbers[i] = i * i);
  const DeviceArray<int64_t> device(kCount);
  RUN(dgb_copy_in(device.data(), locked, kBytes, nullptr));
  RUN(dgb_mark_set(mark, nullptr));
  RUN(dgb_mark_wait(mark));
  RUN(dgb_mark_await(mark, nullptr));
  RUN(dgb_copy_within(managed, device.data(), kBytes, nullptr));
  std::vector<int64_t> back(kCount);
  RUN(dgb_pin(back.data(), kBytes));
  int yes = -1;
  RUN(dgb_same_addresses(&yes));
  expect(yes == 0 || yes == 1, "same_addresses");
  RUN(dgb_copy_out(back.data(), managed, kBytes, nullptr));
  RUN(dgb_wait(nullptr));
  RUN(dgb_unpin(back.data()));
  expect_equal(back, right, "copies");
  int device_number = -1;
  RUN(dgb_current_device(&device_number));
  expect(device_number >= 0, "current_device");
  RUN(dgb_use_device(device_number));
  RUN(dgb_mark_drop(mark));
  RUN(dgb_device_free(managed));
  RUN(dgb_host_free(locked));
}

}  // namespace
}  // namespace dgbench::driver
