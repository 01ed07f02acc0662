//   encode_ages(ages [n], weight [T], bias [T], out [n, T], sines, threads)
//
// out = cos(weight age + bias), or the sine; ages float64, all else float32 or float64.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "common/check.hpp"
#include "time_encoding/cpu_encode.hpp"

using namespace nb::literals;

namespace dgbench {
namespace {

constexpr std::int64_t kSerialNumbers = 1 << 14;  // fewer are not worth starting threads

template <class T>
void encode_ages(Array<const double> ages, Array<const T> weight, Array<const T> bias,
                 Matrix<T> out, bool sines, int threads) {
  check_size(bias, weight.size(), "bias");
  check_size(out, ages.size() * weight.size(), "out");
  const EncodeAges<T> encoding{ages.data(), weight.data(), bias.data(), out.data(),
                               static_cast<std::int64_t>(ages.size()),
                               static_cast<std::int64_t>(weight.size()), sines};
  const std::vector<double> frequency(weight.data(), weight.data() + weight.size());
  const std::vector<double> phase(bias.data(), bias.data() + bias.size());
  const Frequencies all(frequency.data(), phase.data(), encoding.width);
  nb::gil_scoped_release release;
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(static) \
    if (encoding.count * encoding.width > kSerialNumbers && threads > 1)
  for (std::int64_t row = 0; row < encoding.count; ++row) {
    if constexpr (std::is_same_v<T, float>) {
      float* const to = encoding.out + row * encoding.width;
      encode_age(all, encoding.ages[row], sines ? nullptr : to, sines ? to : nullptr);
    } else {
      for (std::int64_t t = 0; t < encoding.width; ++t) encoding(row * encoding.width + t);
    }
  }
}

template <class T>
void bind_of(nb::module_& m) {
  m.def("encode_ages", &encode_ages<T>, "ages"_a.noconvert(), "weight"_a.noconvert(),
        "bias"_a.noconvert(), "out"_a.noconvert(), "sines"_a, "threads"_a);
}

}  // namespace

void bind_time_encoding(nb::module_& m) {
  bind_of<float>(m);
  bind_of<double>(m);
}

}  // namespace dgbench
