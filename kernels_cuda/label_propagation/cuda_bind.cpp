// Binding of label propagation; see label_propagation/cpu.cpp for the first eleven arguments.
#include "common/operator_definition.hpp"
#include "label_propagation/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

// Scratch of a sweep: wished, verdicts int32[b], gains int64[b] for b = min(block, N), contested
// int32[2 b], arrivals int64[N] of zeros, which it leaves so; counts int64[3]
// holds (moved, looked at, 0) when the device is done, added to what was there.
void label_sweep(DeviceArray<const int64_t> indptr, DeviceArray<const int32_t> indices,
                 MaybeDevice<const int32_t> edge_weight, MaybeDevice<const int32_t> vertex_weight,
                 DeviceArray<int32_t> labels, DeviceArray<int64_t> loads,
                 MaybeDevice<uint8_t> active, int64_t cap, uint32_t salt, uint32_t rounds,
                 int64_t block, DeviceArray<int32_t> wished, DeviceArray<int32_t> verdicts,
                 DeviceArray<int64_t> gains, DeviceArray<int32_t> contested,
                 DeviceArray<int64_t> arrivals, DeviceArray<int64_t> counts,
                 std::uintptr_t stream) {
  const std::size_t count = labels.size();
  if (indptr.size() != count + 1) reject("indptr must have one more element than labels");
  check_size(loads, count, "loads");
  check_optional(edge_weight, indices.size(), "edge_weight");
  check_optional(vertex_weight, count, "vertex_weight");
  check_optional(active, count, "active");
  if (rounds == 0 || (rounds & (rounds - 1)) != 0) reject("rounds must be a power of two");
  if (block < 1 || cap < 1) reject("block and cap must be at least 1");
  const auto most = static_cast<std::size_t>(block) < count ? static_cast<std::size_t>(block) : count;
  check_size(wished, most, "wished");
  check_size(verdicts, most, "verdicts");
  check_size(gains, most, "gains");
  check_size(contested, 2 * most, "contested");
  check_size(arrivals, count, "arrivals");
  check_size(counts, 3, "counts");
  LabelSweep s{};
  s.indptr = indptr.data();
  s.indices = indices.data();
  s.edge_weight = address(edge_weight);
  s.vertex_weight = address(vertex_weight);
  s.labels = labels.data();
  s.loads = loads.data();
  s.active = address(active);
  s.vertices = static_cast<int64_t>(count);
  s.cap = cap;
  s.salt = salt;
  s.rounds = rounds;
  s.block = block;
  s.wished = wished.data();
  s.gains = gains.data();
  s.verdicts = verdicts.data();
  s.contested = contested.data();
  s.arrivals = arrivals.data();
  s.counts = counts.data();
  check_launch(dgb_label_sweep(&s, stream_of(stream)), "label_sweep");
}

}  // namespace

void bind_label_propagation(nb::module_& m) {
  add_operator(m, "label_sweep", &label_sweep, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "edge_weight"_a.noconvert().none(), "vertex_weight"_a.noconvert().none(),
        "labels"_a.noconvert(), "loads"_a.noconvert(), "active"_a.noconvert().none(), "cap"_a,
        "salt"_a, "rounds"_a, "block"_a, "wished"_a.noconvert(), "verdicts"_a.noconvert(),
        "gains"_a.noconvert(), "contested"_a.noconvert(), "arrivals"_a.noconvert(),
        "counts"_a.noconvert(), "stream"_a);
}

}  // namespace dgbench
