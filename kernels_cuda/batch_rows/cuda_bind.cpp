// Bindings of what a batch needs beside its sample; kernels_cuda/temporal_store/recorded.py keeps
// the arrays. Numbers on the device are not looked at here.
#include "batch_rows/cuda_launchers.h"
#include "common/operator_definition.hpp"
#include "common/require.hpp"

using namespace nb::literals;

namespace dgbench {
namespace {

constexpr std::size_t kMostIds = (std::size_t{1} << 31) - 1;

template <class T, class Where = Device>
using Rows = nb::ndarray<T, nb::ndim<2>, nb::c_contig, Where>;

void roots_of(DeviceArray<const int64_t> ends, DeviceArray<const double> t,
              DeviceArray<int64_t> nodes, DeviceArray<double> times, DeviceArray<int64_t> draws,
              std::uintptr_t stream) {
  check_size(ends, 3 * t.size(), "ends");
  check_size(nodes, 3 * t.size(), "nodes");
  check_size(times, 3 * t.size(), "times");
  check_size(draws, 1, "draws");
  const RootsOf functor{ends.data(),  t.data(),     static_cast<int64_t>(t.size()),
                        nodes.data(), times.data(), draws.data()};
  check_launch(dgb_roots_of(&functor, stream_of(stream)), "roots_of");
}

void distinct_ids(DeviceArray<const int64_t> ids, DeviceArray<const int64_t> live, int64_t num_ids,
                  DeviceArray<int32_t> set, DeviceArray<int32_t> sums, DeviceArray<int64_t> ranks,
                  DeviceArray<int64_t> distinct, DeviceArray<int64_t> count,
                  DeviceArray<int64_t> place, std::uintptr_t stream) {
  require(num_ids >= 0, "num_ids is " + std::to_string(num_ids) + ", allowed are numbers from 0");
  require(ids.size() <= kMostIds, "there are at most 2^31 - 1 ids");
  const auto words = static_cast<std::size_t>(set_words(num_ids));
  check_size(live, 1, "live");
  check_size(set, words, "set");
  check_size(sums, static_cast<std::size_t>(set_sums(num_ids)), "sums");
  check_size(ranks, words, "ranks");
  check_size(distinct, std::min(ids.size(), static_cast<std::size_t>(num_ids)), "distinct");
  check_size(count, 1, "count");
  check_size(place, ids.size(), "place");
  const DistinctIds in{ids.data(),
                       live.data(),
                       static_cast<int64_t>(ids.size()),
                       num_ids,
                       reinterpret_cast<uint32_t*>(set.data()),
                       reinterpret_cast<uint32_t*>(sums.data()),
                       reinterpret_cast<RankedWord*>(ranks.data()),
                       distinct.data(),
                       count.data(),
                       place.data()};
  check_launch(dgb_distinct_ids(&in, stream_of(stream)), "distinct_ids");
}

// `sources` lie on the device, `pinned` in page-locked memory of the host: its rows go to the last
// of `targets`.
void gather_by_count(DeviceArray<const int64_t> ids, DeviceArray<const int64_t> live,
                     std::vector<Rows<const float>> sources,
                     std::optional<Rows<const float, nb::device::cpu>> pinned,
                     std::vector<Rows<float>> targets, std::uintptr_t stream) {
  check_size(live, 1, "live");
  const std::size_t tables = sources.size() + (pinned ? 1 : 0);
  require(tables >= 1 && tables <= kMostTables, "1 to 6 tables are gathered at a time");
  require(targets.size() == tables, "every table has a target");
  GatherByCount in{ids.data(), live.data(), static_cast<int64_t>(ids.size()), INT64_MAX,
                   static_cast<int32_t>(tables), {}};
  const auto add = [&](std::size_t k, const float* from, std::size_t rows, std::size_t words) {
    require_length("target", static_cast<int64_t>(targets[k].shape(0)), in.capacity);
    require_length("target columns", static_cast<int64_t>(targets[k].shape(1)),
                   static_cast<int64_t>(words));
    in.rows = std::min(in.rows, static_cast<int64_t>(rows));
    in.at[k] = {from, targets[k].data(), static_cast<int32_t>(words)};
  };
  for (std::size_t k = 0; k < sources.size(); ++k) {
    add(k, sources[k].data(), sources[k].shape(0), sources[k].shape(1));
  }
  if (pinned) add(tables - 1, pinned->data(), pinned->shape(0), pinned->shape(1));
  check_launch(dgb_gather_by_count(&in, stream_of(stream)), "gather_by_count");
}

void leave_messages(DeviceArray<const int64_t> place, DeviceArray<const double> t,
                    DeviceArray<const int64_t> distinct, Rows<const float> memories,
                    DeviceArray<const double> updated, DeviceArray<const double> mail_time,
                    std::optional<Rows<const float>> edges, DeviceArray<int32_t> last,
                    Rows<float> to_memory, DeviceArray<double> to_updated, Rows<float> to_mail,
                    DeviceArray<double> to_mail_time, std::uintptr_t stream) {
  const std::size_t rows = distinct.size(), vertices = to_updated.size();
  const std::size_t width = memories.shape(1), edge_width = edges ? edges->shape(1) : 0;
  require(2 * t.size() <= kMostIds, "a batch has at most 2^30 - 1 events");
  require(place.size() >= 2 * t.size(), "place is shorter than the ends of the events");
  require_length("memories", static_cast<int64_t>(memories.shape(0)), static_cast<int64_t>(rows));
  check_size(updated, rows, "updated");
  check_size(mail_time, rows, "mail_time");
  check_size(last, rows, "last");
  if (edges) {
    require_length("edges", static_cast<int64_t>(edges->shape(0)), static_cast<int64_t>(t.size()));
  }
  const auto check_table = [&](const char* name, const Rows<float>& table, std::size_t words) {
    require_length(name, static_cast<int64_t>(table.shape(0)), static_cast<int64_t>(vertices));
    require_length(name, static_cast<int64_t>(table.shape(1)), static_cast<int64_t>(words));
  };
  check_table("to_memory", to_memory, width);
  check_table("to_mail", to_mail, 2 * width + edge_width);
  check_size(to_mail_time, vertices, "to_mail_time");
  const LeaveMessages in{place.data(),
                         t.data(),
                         static_cast<int64_t>(t.size()),
                         distinct.data(),
                         memories.data(),
                         updated.data(),
                         mail_time.data(),
                         edges ? edges->data() : nullptr,
                         last.data(),
                         static_cast<int64_t>(width),
                         static_cast<int64_t>(edge_width),
                         to_memory.data(),
                         to_updated.data(),
                         to_mail.data(),
                         to_mail_time.data()};
  check_launch(dgb_leave_messages(&in, stream_of(stream)), "leave_messages");
}

}  // namespace

void bind_batch_rows(nb::module_& m) {
  m.def("set_sums", &set_sums, "num_ids"_a, "Words that the sums of a set of ids take.");
  add_operator(m, "roots_of", &roots_of, "ends"_a.noconvert(), "t"_a.noconvert(),
               "nodes"_a.noconvert(), "times"_a.noconvert(), "draws"_a.noconvert(), "stream"_a);
  add_operator(m, "distinct_ids", &distinct_ids, "ids"_a.noconvert(), "live"_a.noconvert(),
               "num_ids"_a, "set"_a.noconvert(), "sums"_a.noconvert(), "ranks"_a.noconvert(),
               "distinct"_a.noconvert(), "count"_a.noconvert(), "place"_a.noconvert(), "stream"_a);
  add_operator(m, "gather_by_count", &gather_by_count, "ids"_a.noconvert(), "live"_a.noconvert(),
               "sources"_a, "pinned"_a.noconvert().none(), "targets"_a, "stream"_a);
  add_operator(m, "leave_messages", &leave_messages, "place"_a.noconvert(), "t"_a.noconvert(),
               "distinct"_a.noconvert(), "memories"_a.noconvert(), "updated"_a.noconvert(),
               "mail_time"_a.noconvert(), "edges"_a.noconvert().none(), "last"_a.noconvert(),
               "to_memory"_a.noconvert(), "to_updated"_a.noconvert(), "to_mail"_a.noconvert(),
               "to_mail_time"_a.noconvert(), "stream"_a);
}

}  // namespace dgbench
