// Weighted draws on the CPU: binding of the methods of weighted/cpu_search.hpp and of draws by keys.
//
//   weighted_check(weights) -> (first index that is negative, NaN or infinite, or -1; how many are
//       above zero; whether all are equal; the sum, or None where int64 overflows)
//   weighted_draw(weights f64|i64[n], k, method, arity, seed, first_stream, repeats,
//       out i64[repeats, k])
//       -> (draws, redraws, nodes visited, elements scanned, rebuilt)
//   weighted_keys(weights f32|f64|i64[n], k, seed, first_stream, repeats, log, threads, out)
//       -> (whether a weight needs log, how many have weight where too few do or -1, keys made)
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>


#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include "common/check.hpp"
#include "weighted/cpu_keys.hpp"
#include "weighted/cpu_search.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

template <class W>
nb::tuple check(Array<const W> weights) {
  const auto n = static_cast<int64_t>(weights.size());
  const W* const w = weights.data();
  int64_t bad = -1;
  int64_t positive = 0;
  bool equal = true;
  bool over = false;
  W sum = 0;
  double real_sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!(w[i] >= W(0)) || !std::isfinite(static_cast<double>(w[i]))) {
      bad = i;
      break;
    }
    positive += w[i] > W(0);
    equal &= w[i] == w[0];
    if constexpr (std::is_same_v<W, int64_t>) {
      over |= __builtin_add_overflow(sum, w[i], &sum);
    } else {
      real_sum += static_cast<double>(w[i]);
    }
  }
  nb::object total = nb::none();
  if constexpr (std::is_same_v<W, int64_t>) {
    if (!over) total = nb::int_(sum);
  } else {
    total = nb::float_(real_sum);
  }
  return nb::make_tuple(bad, positive, equal, total);
}

template <class W>
nb::tuple draw(Array<const W> weights, int64_t k, const char* method, int arity, uint64_t seed,
               uint64_t first_stream, int64_t repeats, Array<int64_t> out) {
  const auto n = static_cast<int64_t>(weights.size());
  if (k < 0 || repeats < 0) reject("k and repeats must be at least 0");
  check_size(out, static_cast<std::size_t>(k * repeats), "out");
  const W* const w = weights.data();
  int64_t* to = out.data();
  DrawCounts counts;
  bool ended = false;
  {
    nb::gil_scoped_release release;
    with_search<W>(method, arity, [&](auto& search) {
      for (int64_t r = 0; r < repeats && !ended; ++r, to += k) {
        DrawNumbers numbers(seed, first_stream + static_cast<uint64_t>(r));
        search.begin(w, n);
        for (int64_t j = 0; j < k; ++j) {
          const int64_t index = search.draw(numbers);
          ended = index < 0;
          if (ended) break;
          to[j] = index;
          search.take(index);
        }
      }
      counts = search.counts();
    });
  }
  if (ended) reject("k is more than the weights above zero");
  return nb::make_tuple(counts.draws, counts.redraws, counts.nodes_visited, counts.elements_scanned,
                        counts.rebuilt);
}

template <class W>
nb::tuple draw_keys(Array<const W> weights, int64_t k, uint64_t seed, uint64_t first_stream,
                    int64_t repeats, bool log, int threads, Array<int64_t> out) {
  const auto n = static_cast<int64_t>(weights.size());
  if (k < 0 || k > n || repeats < 0) reject("k must lie in [0, n] and repeats be at least 0");
  if (n >= int64_t{1} << 32) reject("keys are made for less than 2^32 weights");
  check_size(out, static_cast<std::size_t>(k * repeats), "out");
  const W* const w = weights.data();
  int64_t* to = out.data();
  KeyDraw all;
  {
    nb::gil_scoped_release release;
    for (int64_t r = 0; r < repeats; ++r, to += k) {
      const uint64_t stream = first_stream + static_cast<uint64_t>(r);
      const KeyDraw one = log ? draw_by_log_keys(w, n, k, seed, stream, to)
                              : draw_by_keys(w, n, k, seed, stream, threads, to);
      all.odd |= one.odd;
      all.positive = one.positive;
      all.keys_made += one.keys_made;
      if (all.odd || all.positive >= 0) break;
    }
  }
  return nb::make_tuple(all.odd, all.positive, all.keys_made);
}

template <class W>
void bind(nb::module_& m) {
  m.def("weighted_check", &check<W>, "weights"_a.noconvert());
  m.def("weighted_keys", &draw_keys<W>, "weights"_a.noconvert(), "k"_a, "seed"_a, "first_stream"_a,
        "repeats"_a, "log"_a, "threads"_a, "out"_a.noconvert());
  if constexpr (!std::is_same_v<W, float>) {
    m.def("weighted_draw", &draw<W>, "weights"_a.noconvert(), "k"_a, "method"_a, "arity"_a,
          "seed"_a, "first_stream"_a, "repeats"_a, "out"_a.noconvert());
  }
}

}  // namespace

void bind_weighted(nb::module_& m) {
  bind<double>(m);  // the first that fits is taken: the usual ones first
  bind<int64_t>(m);
  bind<float>(m);
}

}  // namespace dgbench
