// Bindings of weighted draws; kernels_cuda/weighted/device.py makes the arrays.
#include "common/operator_definition.hpp"
#include "common/require.hpp"
#include "weighted/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

// Words of 32 and 64 bits are signed at the surface: not every version of torch hands out others.
uint32_t* words(int32_t* at) { return reinterpret_cast<uint32_t*>(at); }
const uint32_t* words(const int32_t* at) { return reinterpret_cast<const uint32_t*>(at); }

KeySource source_of(const MaybeDevice<const int32_t>& given,
                    const MaybeDevice<const float>& weights, uint64_t seed, uint64_t stream) {
  return {words(address(given)), address(weights), seed, stream};
}

Sets sets_of(const DeviceArray<const int64_t>& begin, const DeviceArray<const int64_t>& end,
             const DeviceArray<const int64_t>& out, const DeviceArray<int64_t>& chosen,
             const DeviceArray<int64_t>& missing) {
  check_size(end, begin.size(), "end");
  check_size(out, begin.size() + 1, "out");
  check_size(missing, 1, "missing");
  return {begin.data(),  end.data(),    out.data(), static_cast<int64_t>(begin.size()),
          chosen.data(), missing.data()};
}

void select_small(DeviceArray<const int64_t> begin, DeviceArray<const int64_t> end,
                  DeviceArray<const int64_t> out, MaybeDevice<const int32_t> given,
                  MaybeDevice<const float> weights, uint64_t seed, uint64_t numbers,
                  DeviceArray<int32_t> list, DeviceArray<int32_t> listed,
                  DeviceArray<int64_t> chosen, DeviceArray<int64_t> missing,
                  std::uintptr_t stream) {
  const Sets sets = sets_of(begin, end, out, chosen, missing);
  check_size(list, begin.size(), "list");
  check_size(listed, 1, "listed");
  const KeySource source = source_of(given, weights, seed, numbers);
  check_launch(dgb_select_small(&sets, &source, list.data(), words(listed.data()),
                                stream_of(stream)),
               "select_small");
}

// `state` and `histograms` in words of 32 bits: select_state_words, and kPasses times kBins a set.
void select_large(DeviceArray<const int64_t> begin, DeviceArray<const int64_t> end,
                  DeviceArray<const int64_t> out, DeviceArray<const int64_t> ids,
                  DeviceArray<const int64_t> tile_of, int64_t tiles,
                  MaybeDevice<const int32_t> given, MaybeDevice<const float> weights,
                  uint64_t seed, uint64_t numbers, DeviceArray<int32_t> state,
                  DeviceArray<int32_t> histograms, DeviceArray<int64_t> progress,
                  DeviceArray<int32_t> ticket, MaybeDevice<int32_t> keys,
                  DeviceArray<int64_t> chosen, DeviceArray<int64_t> missing,
                  std::uintptr_t stream) {
  const Sets sets = sets_of(begin, end, out, chosen, missing);
  constexpr std::size_t kWords = sizeof(SelectState) / 4;
  if (tiles < 0) reject("tiles must be at least 0");
  const auto tile_count = static_cast<std::size_t>(tiles);
  check_size(tile_of, ids.size() + 1, "tile_of");
  check_size(state, kWords * ids.size(), "state");
  check_size(histograms, std::size_t{kPasses} * kBins * ids.size(), "histograms");
  check_size(progress, tile_count, "progress");
  check_size(ticket, 1, "ticket");
  check_optional(keys, tile_count * kTileItems, "keys");
  const LargeSets large{ids.data(),
                        tile_of.data(),
                        static_cast<int64_t>(ids.size()),
                        tiles,
                        reinterpret_cast<SelectState*>(state.data()),
                        words(histograms.data()),
                        reinterpret_cast<uint64_t*>(progress.data()),
                        words(ticket.data()),
                        words(address(keys))};
  const KeySource source = source_of(given, weights, seed, numbers);
  check_launch(dgb_select_large(&sets, &large, &source, stream_of(stream)), "select_large");
}

void make_keys(MaybeDevice<const float> weights, uint64_t seed, uint64_t numbers,
               DeviceArray<int32_t> keys, std::uintptr_t stream) {
  check_optional(weights, keys.size(), "weights");
  const KeySource source{nullptr, address(weights), seed, numbers};
  const auto n = static_cast<int64_t>(keys.size());
  check_launch(dgb_make_keys(&source, n, words(keys.data()), stream_of(stream)), "make_keys");
}

}  // namespace

void bind_weighted(nb::module_& m) {
  m.attr("select_state_words") = sizeof(SelectState) / 4;
  m.attr("select_histogram_words") = kPasses * kBins;
  m.attr("select_tile_items") = kTileItems;
  m.attr("select_medium_set") = kMediumSet;
  add_operator(m, "select_small", &select_small, "begin"_a.noconvert(), "end"_a.noconvert(),
        "out"_a.noconvert(), "given"_a.noconvert().none(), "weights"_a.noconvert().none(), "seed"_a,
        "numbers"_a, "list"_a.noconvert(), "listed"_a.noconvert(), "chosen"_a.noconvert(),
        "missing"_a.noconvert(), "stream"_a);
  add_operator(m, "select_large", &select_large, "begin"_a.noconvert(), "end"_a.noconvert(),
        "out"_a.noconvert(), "ids"_a.noconvert(), "tile_of"_a.noconvert(), "tiles"_a,
        "given"_a.noconvert().none(), "weights"_a.noconvert().none(), "seed"_a, "numbers"_a,
        "state"_a.noconvert(), "histograms"_a.noconvert(), "progress"_a.noconvert(),
        "ticket"_a.noconvert(), "keys"_a.noconvert().none(), "chosen"_a.noconvert(),
        "missing"_a.noconvert(), "stream"_a);
  add_operator(m, "make_keys", &make_keys, "weights"_a.noconvert().none(), "seed"_a, "numbers"_a,
        "keys"_a.noconvert(), "stream"_a);
}

}  // namespace dgbench
