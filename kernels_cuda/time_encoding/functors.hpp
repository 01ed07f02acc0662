// Cosines of angles weight * age + bias, formed and reduced so that they are right for ages of any
// unit. An age of 10^8 seconds times a weight of 1 has no float32 whose cosine means anything (a unit
// in the last place is 8 rad), and one of 10^17 nanoseconds has no float64.
//
// The product is kept as a sum of two float64, which is exact, and whole turns are taken off with a
// turn of two float64. A reduced angle is right to 1e-13 rad up to kLargestAngle, whether the compiler
// fuses multiplications with additions or not: where that matters it is written out.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/host_device.hpp"

namespace dgbench {

constexpr double kLargestAngle = 1.0e18;

// a * b = product + error, exactly.
DGB_HD void two_product(double a, double b, double& product, double& error) {
  product = a * b;
#if DGB_ON_DEVICE || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  error = fma(a, b, -product);
#else  // Dekker's product: no instruction to fuse with
  constexpr double kSplit = 134217729.0;  // 2^27 + 1
  const double wide_a = kSplit * a, high_a = wide_a - (wide_a - a), low_a = a - high_a;
  const double wide_b = kSplit * b, high_b = wide_b - (wide_b - b), low_b = b - high_b;
  error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b;
#endif
}

// a - b c, rounded once.
DGB_HD double less_product(double a, double b, double c) {
#if DGB_ON_DEVICE || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return fma(-b, c, a);
#else
  double product, error;
  two_product(b, c, product, error);
  return (a - product) - error;
#endif
}

// The nearest whole number, of large ones one that is near enough.
DGB_HD double nearest(double x) {
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: the sum's last bit is one
  return (x + kShift) - kShift;
}

// weight * age + bias less whole turns, at most a bit more than half a turn unless `age` is huge;
// for |weight * age| and |bias| up to kLargestAngle.
DGB_HD double reduced_angle(double age, double weight, double bias) {
  double product, error;
  two_product(weight, age, product, error);
  const double turns = nearest(product * 0.15915494309189535);
  const double rest = less_product(product, turns, 6.283185307179586);
  return less_product(rest, turns, 2.4492935982947064e-16) + error + bias;
}

// A reduced angle as a number of quarter turns and the rest, in [-pi / 4, pi / 4].
DGB_HD void quarters_of(double angle, float& rest, int32_t& quarter) {
  constexpr double kShift = 6755399441055744.0;
  const double shifted = angle * 0.63661977236758134308 + kShift;
  const double quarters = shifted - kShift;
  rest = static_cast<float>(less_product(angle, quarters, 1.5707963267948966));
  int64_t bits;
  memcpy(&bits, &shifted, sizeof(bits));
  quarter = static_cast<int32_t>(bits);
}

// The cosine of `rest` + `quarter` quarter turns; the sine with one less quarter.
DGB_HD float turned_cosine(float rest, int32_t quarter) {
  const float z = rest * rest;
  const float sine =
      ((z * -1.9515295891e-4f + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * rest + rest;
  const float cosine = ((z * 2.443315711809948e-5f - 1.388731625493765e-3f) * z +
                        4.166664568298827e-2f) * (z * z) - z * 0.5f + 1.0f;
  const float value = (quarter & 1) != 0 ? sine : cosine;
  return ((quarter + 1) & 2) != 0 ? -value : value;
}

// out[age, t] = cos or sin(weight[t] * age + bias[t]).
template <class T>
struct EncodeAges {
  const double* ages;  // [count]
  const T* weight;     // [width]
  const T* bias;       // [width]
  T* out;              // [count, width]
  int64_t count, width;
  bool sines;

  DGB_HD T value(double age, double w, double b) const {
    const bool reducible = fabs(age * w) <= kLargestAngle && fabs(b) <= kLargestAngle;
    const double angle = reducible ? reduced_angle(age, w, b) : age * w + b;
    if constexpr (sizeof(T) == sizeof(double)) {
      return sines ? sin(angle) : cos(angle);
    } else {
      if (!reducible) return static_cast<T>(sines ? sin(angle) : cos(angle));
      float rest;
      int32_t quarter;
      quarters_of(angle, rest, quarter);
      return turned_cosine(rest, sines ? quarter - 1 : quarter);
    }
  }
  DGB_HD void operator()(int64_t index) const {
    const int64_t row = index / width;
    const int64_t t = index - row * width;
    out[index] = value(ages[row], static_cast<double>(weight[t]), static_cast<double>(bias[t]));
  }
};

}  // namespace dgbench
