// Cosines and sines of float32 angles of any size, reduced in float64.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__FMA__) && defined(__AVX2__)
#include <immintrin.h>
#endif

#include "scan/cpu_gemm.hpp"

namespace dgbench {

constexpr int kTurned = scan::Lanes<double>::count;  // angles that are turned together
#if defined(__FMA__) && defined(__AVX2__)
constexpr float kLargestAngle = 1.0e12f;  // reduced exactly up to here
#else
constexpr float kLargestAngle = 1.0e8f;  // reduced to within 2e-8 up to here
#endif

// a - b c, rounded once where the machine can do it: a compiler may contract it or not.
inline scan::Vec<double> less_product(scan::Vec<double> a, scan::Vec<double> b, double c) {
#if defined(__AVX512F__)
  static_assert(kTurned == 8);
  return reinterpret_cast<scan::Vec<double>>(_mm512_fnmadd_pd(
      reinterpret_cast<__m512d>(b), _mm512_set1_pd(c), reinterpret_cast<__m512d>(a)));
#elif defined(__FMA__) && defined(__AVX2__)
  static_assert(kTurned == 4);
  return reinterpret_cast<scan::Vec<double>>(_mm256_fnmadd_pd(
      reinterpret_cast<__m256d>(b), _mm256_set1_pd(c), reinterpret_cast<__m256d>(a)));
#else
  return a - b * c;
#endif
}

// Cosines and, where they are asked for, sines of kTurned angles of at most kLargestAngle.
template <bool kSines>
inline void turn(const float* angle, float* cosines, float* sines) {
  typedef float Floats __attribute__((vector_size(kTurned * sizeof(float))));
  typedef std::int32_t Ints __attribute__((vector_size(kTurned * sizeof(float))));
  typedef std::int64_t Longs __attribute__((vector_size(kTurned * sizeof(double))));
  typedef scan::Vec<double> Doubles;
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: the sum's last bits are the integer
  Floats x;
  std::memcpy(&x, angle, sizeof(x));
  const Doubles wide = __builtin_convertvector(x, Doubles);
  const Doubles shifted = wide * 0.63661977236758134308 + kShift;
  const Doubles quarters = shifted - kShift;
  Doubles rest = less_product(wide, quarters, 1.5707963267948966);
  rest = less_product(rest, quarters, 6.123233995736766e-17);
  Longs bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  const Ints quarter = __builtin_convertvector(bits, Ints);
  const Floats r = __builtin_convertvector(rest, Floats);  // in [-pi / 4, pi / 4]
  const Floats z = r * r;
  const Floats sine =
      ((z * -1.9515295891e-4f + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
  const Floats cosine = ((z * 2.443315711809948e-5f - 1.388731625493765e-3f) * z +
                         4.166664568298827e-2f) * (z * z) - z * 0.5f + 1.0f;
  const Ints odd = (quarter & 1) != 0;
  const auto write = [](Floats value, Ints sign, float* out) {
    Ints raw;
    std::memcpy(&raw, &value, sizeof(raw));
    raw ^= (sign & 2) << 30;
    std::memcpy(out, &raw, sizeof(raw));
  };
  write(odd ? sine : cosine, quarter + 1, cosines);
  if constexpr (kSines) write(odd ? cosine : sine, quarter, sines);
}

}  // namespace dgbench
