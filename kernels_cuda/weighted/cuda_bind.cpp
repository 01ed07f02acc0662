// Bindings of weighted draws; kernels_cuda/weighted/device.py makes the arrays.
#include "common/operator_definition.hpp"
#include "common/require.hpp"
#include "weighted/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

// Words of 64 bits that `select` works in, and the counters it begins with at zero.
int64_t select_words(int64_t count, int64_t largest, int64_t items, bool given) {
  SelectSpace space{};
  return lay_out(space, count, largest, items, given, nullptr);
}

void select(DeviceArray<const int64_t> begin, DeviceArray<const int64_t> end,
            DeviceArray<const int64_t> out, MaybeDevice<const int32_t> given,
            MaybeDevice<const float> weights, uint64_t seed, uint64_t numbers, int64_t largest,
            int64_t items, DeviceArray<int64_t> memory, DeviceArray<int64_t> counters,
            DeviceArray<int64_t> chosen, std::uintptr_t stream) {
  const auto count = static_cast<int64_t>(begin.size());
  check_size(end, begin.size(), "end");
  check_size(out, begin.size() + 1, "out");
  check_size(counters, kCounters, "counters");
  if (largest < 0 || items < 0) reject("largest and items must be at least 0");
  SelectSpace space{};
  const int64_t words = lay_out(space, count, largest, items, address(given) != nullptr,
                                memory.data());
  check_size(memory, static_cast<std::size_t>(words), "memory");
  space.counters = reinterpret_cast<unsigned long long*>(counters.data());
  const Sets sets{begin.data(), end.data(), out.data(), count, chosen.data()};
  const KeySource source{address(given), address(weights), seed, numbers};
  check_launch(dgb_select_small(&sets, &source, &space, stream_of(stream)), "select");
  check_launch(dgb_select_large(&sets, &source, &space, stream_of(stream)), "select");
}

void make_keys(MaybeDevice<const float> weights, uint64_t seed, uint64_t numbers,
               DeviceArray<int32_t> keys, std::uintptr_t stream) {
  check_optional(weights, keys.size(), "weights");
  const KeySource source{nullptr, address(weights), seed, numbers};
  const auto n = static_cast<int64_t>(keys.size());
  check_launch(dgb_make_keys(&source, n, reinterpret_cast<uint32_t*>(keys.data()), stream_of(stream)), "make_keys");
}

int examine(const float* w, int64_t n, const Examined& into, void* stream) {
  return dgb_examine_float(w, n, &into, stream);
}
int examine(const double* w, int64_t n, const Examined& into, void* stream) {
  return dgb_examine_double(w, n, &into, stream);
}
int examine(const int64_t* w, int64_t n, const Examined& into, void* stream) {
  return dgb_examine_int(w, n, &into, stream);
}

template <class W>
void bind_examine(nb::module_& m) {
  add_operator(m,
      "examine_weights",
      [](DeviceArray<const W> weights, MaybeDevice<float> plain, MaybeDevice<int64_t> set,
         int64_t wanted, DeviceArray<int64_t> counters, std::uintptr_t stream) {
        check_optional(plain, weights.size(), "plain");
        check_optional(set, 4, "set");
        check_size(counters, kCounters, "counters");
        const Examined into{address(plain), address(set), wanted,
                            reinterpret_cast<unsigned long long*>(counters.data())};
        const auto n = static_cast<int64_t>(weights.size());
        check_launch(examine(weights.data(), n, into, stream_of(stream)), "examine_weights");
      },
      "weights"_a.noconvert(), "plain"_a.noconvert().none(), "set"_a.noconvert().none(),
      "wanted"_a, "counters"_a.noconvert(), "stream"_a);
}

}  // namespace

void bind_weighted(nb::module_& m) {
  m.attr("select_counters") = static_cast<int>(kCounters);
  m.def("select_words", &select_words, "count"_a, "largest"_a, "items"_a, "given"_a);
  add_operator(m, "select", &select, "begin"_a.noconvert(), "end"_a.noconvert(),
        "out"_a.noconvert(), "given"_a.noconvert().none(), "weights"_a.noconvert().none(), "seed"_a,
        "numbers"_a, "largest"_a, "items"_a, "memory"_a.noconvert(), "counters"_a.noconvert(),
        "chosen"_a.noconvert(), "stream"_a);
  bind_examine<float>(m);
  bind_examine<double>(m);
  bind_examine<int64_t>(m);
  add_operator(m, "make_keys", &make_keys, "weights"_a.noconvert().none(), "seed"_a, "numbers"_a,
        "keys"_a.noconvert(), "stream"_a);
}

}  // namespace dgbench
