// What a batch needs beside its sample: roots, distinct vertices, rows and messages.
#include <algorithm>
#include <limits>
#include <set>

#include "batch_rows/cuda_launchers.h"
#include "common/driver/driver.hpp"

namespace dgbench::driver {
namespace {

DRIVER_CASE(roots_of) {
  const DeviceArray<int64_t> ends(std::vector<int64_t>{0, 1, 2, 3, 4, 5}), nodes(6), draws(1, int64_t{7});
  const DeviceArray<double> t(std::vector<double>{0.5, 9.0}), times(6);
  const RootsOf functor{ends.data(), t.data(), 2, nodes.data(), times.data(), draws.data()};
  RUN(dgb_roots_of(&functor, nullptr));
  expect_equal(nodes.host(), ends.host(), "roots");
  expect_equal(times.host(), {0.5, 9.0, 0.5, 9.0, 0.5, 9.0}, "times");
  expect_equal(draws.host(), {8}, "draws");
}

// Two batches, one after the other, in the same scratch.
DRIVER_CASE(distinct_ids) {
  for (const int64_t num_ids : {0, 1, 31, 33, 700, 9000, 100000}) {
    Random random(num_ids);
    const DeviceArray<uint32_t> set(set_words(num_ids), 0u), sums(set_sums(num_ids));
    const DeviceArray<RankedWord> ranks(set_words(num_ids));
    for (const int64_t live : {0, 1, 3000}) {
      const int64_t capacity = live + 5;
      std::vector<int64_t> ids;
      for (int64_t i = 0; i < capacity; ++i) ids.push_back(random.below(num_ids + 2) - 1);
      const DeviceArray<int64_t> d_ids(ids), d_live(1, live), count(1);
      const DeviceArray<int64_t> distinct(std::min(capacity, num_ids), int64_t{-7}),
          place(capacity, int64_t{-7});
      const DistinctIds in{d_ids.data(), d_live.data(), capacity,        num_ids,
                           set.data(),   sums.data(),   ranks.data(),    distinct.data(),
                           count.data(), place.data()};
      RUN(dgb_distinct_ids(&in, nullptr));
      std::set<int64_t> all;
      for (int64_t i = 0; i < live; ++i) {
        if (ids[i] >= 0 && ids[i] < num_ids) all.insert(ids[i]);
      }
      const std::string name = named("ids, live", {num_ids, live});
      std::vector<int64_t> right(all.begin(), all.end()), at(capacity, -7);
      expect_equal(count.host(), {static_cast<int64_t>(right.size())}, "count, " + name);
      for (int64_t i = 0; i < live; ++i) {
        const auto found = std::lower_bound(right.begin(), right.end(), ids[i]);
        at[i] = all.count(ids[i]) ? found - right.begin() : -1;
      }
      right.resize(distinct.size(), -7);
      expect_equal(distinct.host(), right, "distinct, " + name);
      expect_equal(place.host(), at, "place, " + name);
      expect_equal(set.host(), std::vector<uint32_t>(set.size(), 0u), "set, " + name);
    }
  }
}

DRIVER_CASE(gather_by_count) {
  Random random(5);
  for (const int width : {1, 2, 4, 100, 372}) {
    const std::vector<float> table = random.reals(40 * width);
    const std::vector<float> times = random.reals(40 * 2);
    const std::vector<int64_t> ids = {39, 0, 40, -1, 7, 7, 3, 2};
    for (const int64_t live : {0, 6, 8}) {
      const DeviceArray<float> d_table(table), d_times(times), out(8 * width, -9.0f),
          out_times(16, -9.0f);
      const DeviceArray<int64_t> d_ids(ids), d_live(1, live);
      const GatherByCount in{d_ids.data(), d_live.data(), 8, 40, 2,
                             {{d_table.data(), out.data(), width},
                              {d_times.data(), out_times.data(), 2}}};
      RUN(dgb_gather_by_count(&in, nullptr));
      std::vector<float> right(8 * width, -9.0f), right_times(16, -9.0f);
      for (int64_t i = 0; i < live; ++i) {
        if (ids[i] < 0 || ids[i] >= 40) continue;
        std::copy_n(table.begin() + ids[i] * width, width, right.begin() + i * width);
        std::copy_n(times.begin() + ids[i] * 2, 2, right_times.begin() + i * 2);
      }
      expect_equal(out.host(), right, named("rows", {width, live}));
      expect_equal(out_times.host(), right_times, named("times", {width, live}));
    }
  }
}

// Event by event: later ones take the place of earlier ones.
DRIVER_CASE(leave_messages) {
  Random random(6);
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  for (const int64_t width : {1, 4, 33}) {
    for (const int64_t edge_width : {0, 4, 7}) {
      const int64_t rows = 9, vertices = 30, count = 40, mail = 2 * width + edge_width;
      std::vector<int64_t> distinct, place;
      for (int64_t r = 0; r < rows; ++r) distinct.push_back(3 * r + 1);
      for (int64_t i = 0; i < 2 * count; ++i) place.push_back(random.below(rows + 1) - 1);
      std::vector<double> t, updated = random.reals<double>(rows), waits(rows, kNever);
      for (int64_t i = 0; i < count; ++i) t.push_back(static_cast<double>(i / 3));
      waits[2] = 5.0, waits[4] = 1e9;
      const std::vector<float> memories = random.reals(rows * width);
      const std::vector<float> edges = random.reals(count * edge_width);
      std::vector<float> to_memory(vertices * width, 7.0f), to_mail(vertices * mail, 7.0f);
      std::vector<double> to_updated(vertices, 7.0), to_time(vertices, 7.0);
      const DeviceArray<int64_t> d_distinct(distinct), d_place(place);
      const DeviceArray<double> d_t(t), d_updated(updated), d_waits(waits);
      const DeviceArray<float> d_memories(memories), d_edges(edges);
      const DeviceArray<int32_t> last(rows, -1);
      const DeviceArray<float> d_memory(to_memory), d_mail(to_mail);
      const DeviceArray<double> d_to_updated(to_updated), d_time(to_time);
      const LeaveMessages in{d_place.data(), d_t.data(),      count,            d_distinct.data(),
                             d_memories.data(), d_updated.data(), d_waits.data(), d_edges.data(),
                             last.data(),    width,           edge_width,       d_memory.data(),
                             d_to_updated.data(), d_mail.data(), d_time.data()};
      RUN(dgb_leave_messages(&in, nullptr));
      std::vector<int64_t> latest(rows, -1);
      for (int64_t e = 0; e < 2 * count; ++e) {
        if (place[e % 2 * count + e / 2] >= 0 &&
            place[(1 - e % 2) * count + e / 2] >= 0) {
          latest[place[e % 2 * count + e / 2]] = e;
        }
      }
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t e = latest[r], v = distinct[r];
        if (e < 0 || t[e / 2] < waits[r]) continue;
        const int64_t other = place[(1 - e % 2) * count + e / 2];
        const auto put = [&](const std::vector<float>& from, int64_t row, int64_t n, float* to) {
          std::copy_n(from.begin() + row * n, n, to);
        };
        put(memories, r, width, to_memory.data() + v * width);
        put(memories, r, width, to_mail.data() + v * mail);
        put(memories, other, width, to_mail.data() + v * mail + width);
        put(edges, e / 2, edge_width, to_mail.data() + v * mail + 2 * width);
        to_updated[v] = waits[r] == kNever ? updated[r] : waits[r];
        to_time[v] = t[e / 2];
      }
      const std::string name = named("width, edges", {width, edge_width});
      expect_equal(d_memory.host(), to_memory, "memory, " + name);
      expect_equal(d_mail.host(), to_mail, "mail, " + name);
      expect_equal(d_to_updated.host(), to_updated, "updated, " + name);
      expect_equal(d_time.host(), to_time, "mail time, " + name);
      expect_equal(last.host(), std::vector<int32_t>(rows, -1), "last, " + name);
    }
  }
}

}  // namespace
}  // namespace dgbench::driver
