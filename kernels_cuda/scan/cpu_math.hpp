// Sigmoid and tanh on whole vectors. In float32 the relative error stays below 2e-7 for every
// normal result, also near zero; large arguments saturate to 0 and +-1, NaN stays NaN.
#pragma once

#include <cmath>
#include <cstdint>

#include "scan/cpu_gemm.hpp"

namespace dgbench::scan {

typedef int32_t IntVec __attribute__((vector_size(kVecBytes)));

// x = n ln 2 + r with |r| <= ln 2 / 2. Gives e^r - 1 (accurate relative to itself, so that small
// x keep their digits) and 2^n. NaN passes through r.
inline void split_exp(Vec<float> x, Vec<float>& expm1_r, Vec<float>& scale) {
  const Vec<float> shift = splat(12582912.0f);  // 1.5 * 2^23: the sum's last bits are the integer n
  const Vec<float> t = x * 1.44269504088896341f + shift;
  const Vec<float> n = t - shift;
  Vec<float> r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Vec<float> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  expm1_r = p * (r * r) + r;
  IntVec bits;
  std::memcpy(&bits, &t, sizeof(bits));
  bits = (bits << 23) + (127 << 23);  // the bits of `shift` itself leave through the top
  std::memcpy(&scale, &bits, sizeof(bits));
}

// Comparisons are written so that NaN falls to the last operand.
inline Vec<float> clamp(Vec<float> x, float low, float high) {
  x = x < low ? splat(low) : x;
  return x > high ? splat(high) : x;
}

inline Vec<float> sigmoid(Vec<float> x) {
  Vec<float> p, s;
  // From 127.5 ln 2 = 88.376 on the scale is infinite, and times a negative p it makes a NaN of the
  // sum. The result there is below 5e-39 either way.
  split_exp(clamp(-x, -87.0f, 88.37f), p, s);
  return 1.0f / ((p * s + s) + 1.0f);
}

inline Vec<float> tanh(Vec<float> x) {
  Vec<float> p, s;
  split_exp(clamp(x + x, -25.0f, 25.0f), p, s);
  const Vec<float> em1 = p * s + (s - 1.0f);  // e^{2x} - 1
  return em1 / (em1 + 2.0f);
}

inline Vec<double> sigmoid(Vec<double> x) {
  for (int i = 0; i < Lanes<double>::count; ++i) x[i] = 1.0 / (1.0 + std::exp(-x[i]));
  return x;
}

inline Vec<double> tanh(Vec<double> x) {
  for (int i = 0; i < Lanes<double>::count; ++i) x[i] = std::tanh(x[i]);
  return x;
}

}  // namespace dgbench::scan
