// A temporal graph that is changed on the device: the order of a batch, and what inserts leave.
#include <algorithm>
#include <limits>

#include "common/driver/driver.hpp"
#include "temporal_store/cuda_resident.h"

namespace dgbench::driver {
namespace {

using namespace temporal;

struct Batch {
  std::vector<int64_t> src, dst, eid;
  std::vector<double> t;

  // Every third event is of one vertex, some are self edges; times are doubled.
  Batch(int64_t count, int64_t vertices, int64_t first, Random& random) {
    for (int64_t i = 0; i < count; ++i) {
      src.push_back(i % 3 == 0 ? vertices / 2 : random.below(vertices));
      dst.push_back(i % 7 == 0 ? src.back() : random.below(vertices));
      eid.push_back(first + i);
      t.push_back(static_cast<double>((first + i) / 2));
    }
  }
};

// Pools and scratch of exactly the sizes that were asked for.
template <class Record>
struct Graph {
  DeviceArray<Vertex> vertices;
  DeviceArray<Fence> fences;
  DeviceArray<Block> blocks;
  DeviceArray<Record> records;
  DeviceArray<ResidentState> state{1};
  ResidentInsert in{};

  Graph(int64_t count, BlockPolicy policy, Layout layout, bool undirected, Places room)
      : vertices(count), fences(room.fences), blocks(room.blocks), records(room.slots) {
    in.vertices = vertices.data();
    in.fences = fences.data();
    in.blocks = blocks.data();
    in.records = records.data();
    in.room = room;
    in.num_vertices = count;
    in.policy = policy;
    in.layout = layout;
    in.undirected = undirected;
    in.state = state.data();
    RUN(dgb_resident_clear(&in, nullptr));
  }

  // The halves of the batch as they were ordered.
  std::vector<Half> insert(const Batch& batch, bool numbered) {
    const DeviceArray<int64_t> src(batch.src), dst(batch.dst), eid(batch.eid);
    const DeviceArray<double> t(batch.t);
    in.batch = {src.data(), dst.data(), t.data(), numbered ? eid.data() : nullptr,
                static_cast<int64_t>(batch.src.size())};
    const int64_t halves = in.halves();
    const DeviceArray<Half> one(halves), other(halves);
    const DeviceArray<uint32_t> digits(sort_digits(halves, in.num_vertices)), heads(halves);
    const DeviceArray<Segment> segments(halves);
    const DeviceArray<Places> sums(plan_blocks(halves));
    in.halves_at[0] = one.data();
    in.halves_at[1] = other.data();
    in.digits = digits.data();
    in.heads = heads.data();
    in.segments = segments.data();
    in.sums = sums.data();
    RUN(dgb_resident_sort(&in, nullptr));
    RUN(dgb_resident_plan(&in, nullptr));
    RUN(dgb_resident_place(&in, nullptr));
    return dgb_resident_sorted(&in) == one.data() ? one.host() : other.host();
  }

  // The records of a vertex, oldest first: neighbours, edge ids and times in turn.
  std::vector<double> list_of(int64_t vertex) const {
    const std::vector<Record> all = records.host();
    const std::vector<Fence> older = fences.host();
    const Vertex v = vertices.host()[vertex];
    std::vector<double> list;
    const auto add = [&](uint64_t first, uint32_t count) {
      for (uint64_t k = first; k < first + count; ++k) {
        list.push_back(static_cast<double>(all[k].node));
        list.push_back(static_cast<double>(all[k].eid));
        list.push_back(time_of(all[k], in.origin));
      }
    };
    for (uint32_t f = 0; f < v.fences; ++f) {
      const Fence& fence = older[v.fence + f];
      expect(fence.before == list.size() / 3, "records before a fence");
      add(fence.first, fence.size);
    }
    expect(v.before == list.size() / 3, "records before the last block");
    add(v.first, v.size);
    return list;
  }
};

std::vector<double> right_list(const std::vector<Batch>& batches, int64_t vertex, bool both) {
  std::vector<double> list;
  for (const Batch& batch : batches) {
    for (std::size_t i = 0; i < batch.src.size(); ++i) {
      const auto add = [&](int64_t other) {
        list.push_back(static_cast<double>(other));
        list.push_back(static_cast<double>(batch.eid[i]));
        list.push_back(batch.t[i]);
      };
      if (batch.src[i] == vertex) add(batch.dst[i]);
      if (both && batch.dst[i] == vertex) add(batch.src[i]);
    }
  }
  return list;
}

template <class Record>
void run_inserts(int64_t vertices, BlockPolicy policy, Layout layout, bool undirected) {
  Random random(vertices);
  constexpr uint64_t kRoom = 12000;  // for 4000 records
  Graph<Record> graph(vertices, policy, layout, undirected, {kRoom, kRoom, kRoom});
  std::vector<Batch> batches;
  int64_t events = 0;
  for (const int64_t count : {1, 300, 40, 1200}) {
    batches.emplace_back(count, vertices, events, random);
    graph.insert(batches.back(), events % 2 == 0);
    events += count;
  }
  const std::string name = named("vertices, sizing, layout, undirected",
                                 {vertices, static_cast<int64_t>(policy.sizing),
                                  static_cast<int64_t>(layout), undirected});
  const ResidentState state = graph.state.host()[0];
  expect(state.events == events && state.batches == 4, "events, " + name);
  expect(state.records == (undirected ? 2 : 1) * events, "records, " + name);
  for (const int64_t v : {int64_t{0}, vertices / 2, vertices - 1}) {
    expect_equal(graph.list_of(v), right_list(batches, v, undirected), "records, " + name);
  }
}

DRIVER_CASE(resident_inserts) {
  for (const int64_t vertices : {1, 3, 40, 3000}) {
    for (const Sizing sizing : {Sizing::Adaptive, Sizing::AdaptiveLiteral, Sizing::Fixed,
                                Sizing::Strawman, Sizing::Grown}) {
      const BlockPolicy policy{sizing, sizing == Sizing::Fixed ? 3u : 16u};
      run_inserts<Packed>(vertices, policy, Layout::Packed, true);
      run_inserts<Compact>(vertices, policy, Layout::Compact, false);
      run_inserts<Wide>(vertices, policy, Layout::Wide, sizing == Sizing::Grown);
    }
  }
}

DRIVER_CASE(resident_sort) {
  for (const int64_t vertices : {int64_t{1}, int64_t{2048}, int64_t{2049}, int64_t{1} << 23}) {
    Random random(vertices);
    Graph<Packed> graph(vertices, {Sizing::Strawman, 1}, Layout::Packed, true,
                        {20000, 20000, 20000});
    const Batch batch(9000, vertices, 0, random);
    const std::vector<Half> sorted = graph.insert(batch, true);
    std::vector<Half> right;
    for (uint32_t h = 0; h < 18000; ++h) {
      right.push_back({static_cast<uint32_t>(h % 2 == 0 ? batch.src[h / 2] : batch.dst[h / 2]), h});
    }
    std::stable_sort(right.begin(), right.end(),
                     [](const Half& a, const Half& b) { return a.owner < b.owner; });
    std::vector<int64_t> found, wanted;
    for (const Half& one : sorted) found.push_back(int64_t{one.owner} << 32 | one.half);
    for (const Half& one : right) wanted.push_back(int64_t{one.owner} << 32 | one.half);
    expect_equal(found, wanted, named("order", {vertices}));
  }
}

// Nothing is written of what cannot be taken, nor after it until that was heard.
DRIVER_CASE(resident_refusals) {
  Random random(3);
  Graph<Packed> graph(5, {Sizing::Fixed, 4}, Layout::Packed, false, {40, 40, 9});
  const Batch good(9, 5, 0, random);
  const auto refused = [&](const Batch& batch, Refusal why, int64_t event) {
    graph.insert(batch, true);
    Refused no = graph.state.host()[0].refused;
    expect(no.why == why && no.event == event, named("refused", {static_cast<int64_t>(why)}));
    graph.insert(good, true);
    expect(graph.state.host()[0].events == 0, "taken after a refusal");
    RUN(dgb_resident_forgive(&graph.in, nullptr));
  };
  Batch bad = good;
  bad.dst[4] = 5;
  bad.eid[7] = -1;
  refused(bad, Refusal::Destination, 4);
  bad.src[2] = -1;
  refused(bad, Refusal::Source, 2);
  bad = good;
  bad.t[8] = std::numeric_limits<double>::infinity();
  refused(bad, Refusal::Time, 8);
  bad = good;
  bad.eid[8] = int64_t{kNone};
  refused(bad, Refusal::Edge, 8);
  bad = good;
  bad.t[6] = -1.0;  // of the vertex of every third
  refused(bad, Refusal::Late, 6);
  refused(Batch(60, 5, 0, random), Refusal::Room, 0);
  graph.insert(good, true);
  expect(graph.state.host()[0].events == 9, "the next batch after a refusal");
  expect_equal(graph.list_of(2), right_list({good}, 2, false), "records after a refusal");
}

}  // namespace
}  // namespace dgbench::driver
