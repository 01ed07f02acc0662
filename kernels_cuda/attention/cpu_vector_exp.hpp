// Exponentials of numbers that are not above zero, as every softmax takes them.
#pragma once

#include <cstdint>

#include "scan/cpu_math.hpp"

namespace dgbench {

// e^x for x <= 0; 0 below -87, where float32 would leave its normal range. NaN stays NaN.
inline scan::Vec<float> exp_below_zero(scan::Vec<float> x) {
  scan::Vec<float> p, s;
  scan::split_exp(scan::clamp(x, -87.0f, 1.0f), p, s);
  const scan::Vec<float> value = p * s + s;
  return x < -87.0f ? scan::Vec<float>{} : value;
}

// x[i] = e^x[i] for i in [0, count); `x` has room for whole vectors.
inline void exp_below_zero(float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += scan::Lanes<float>::count) {
    scan::store(x + i, exp_below_zero(scan::load(x + i)));
  }
}

}  // namespace dgbench
