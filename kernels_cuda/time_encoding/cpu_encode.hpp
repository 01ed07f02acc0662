// Cosines and sines of one age with all frequencies, in loops that the compiler turns into vectors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "time_encoding/functors.hpp"

namespace dgbench {

// Frequencies and phases in float64, and a bound that says when all angles can be reduced.
struct Frequencies {
  const double* weight;
  const double* bias;
  std::int64_t count;
  double largest_weight, largest_bias;

  static double largest(const double* values, std::int64_t count) {
    double most = 0;
    for (std::int64_t t = 0; t < count; ++t) {
      if (!(std::fabs(values[t]) <= most)) most = std::fabs(values[t]);
      if (std::isnan(most)) break;
    }
    return most;
  }
  Frequencies(const double* weight, const double* bias, std::int64_t count)
      : weight(weight), bias(bias), count(count), largest_weight(largest(weight, count)),
        largest_bias(largest(bias, count)) {}

  bool reducible(double age) const {
    return std::fabs(age) * largest_weight <= kLargestAngle && largest_bias <= kLargestAngle;
  }
};

// Either of `cosines` and `sines` may be null.
inline void encode_age(const Frequencies& f, double age, float* cosines, float* sines) {
  if (!f.reducible(age)) {
    for (std::int64_t t = 0; t < f.count; ++t) {
      const double angle = f.weight[t] * age + f.bias[t];
      if (cosines) cosines[t] = static_cast<float>(std::cos(angle));
      if (sines) sines[t] = static_cast<float>(std::sin(angle));
    }
    return;
  }
  constexpr std::int64_t kBlock = 64;
  float rest[kBlock];
  std::int32_t quarter[kBlock];
  for (std::int64_t first = 0; first < f.count; first += kBlock) {
    const std::int64_t some = std::min(kBlock, f.count - first);
    for (std::int64_t t = 0; t < some; ++t) {
      quarters_of(reduced_angle(age, f.weight[first + t], f.bias[first + t]), rest[t], quarter[t]);
    }
    for (std::int64_t t = 0; cosines && t < some; ++t) {
      cosines[first + t] = turned_cosine(rest[t], quarter[t]);
    }
    for (std::int64_t t = 0; sines && t < some; ++t) {
      sines[first + t] = turned_cosine(rest[t], quarter[t] - 1);
    }
  }
}

}  // namespace dgbench
