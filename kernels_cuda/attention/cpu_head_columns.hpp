// The columns of one attention head in registers, sixteen, eight or four at a time.
#pragma once

#include <algorithm>

#include "aggregate/cpu_lanes.hpp"

namespace dgbench {

#if defined(DGBENCH_AVX512)
using Wide = Avx512<16>;
using Half = Avx512<8>;
using Quarter = Avx512<4>;

inline float sum_of(__m128 r) {
  const __m128 two = _mm_add_ps(r, _mm_movehl_ps(r, r));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float sum_of(__m256 r) {
  return sum_of(_mm_add_ps(_mm256_castps256_ps128(r), _mm256_extractf128_ps(r, 1)));
}
inline float sum_of(__m512 r) {  // the masked forms: gcc 12 warns about the others
  const __m512d pairs = _mm512_castps_pd(r);
  const __m256 low = _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xF, pairs, 0));
  return sum_of(_mm256_add_ps(low, _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xF, pairs, 1))));
}
#else
using Wide = Portable<float, 8>;
using Half = Portable<float, 8>;
using Quarter = Portable<float, 4>;

template <class Reg>
inline float sum_of(Reg r) {
  constexpr int lanes = sizeof(Reg) / sizeof(float);
  float sum = 0.0f;
  for (int i = 0; i < lanes; ++i) sum += r[i];
  return sum;
}
#endif

// N registers of one head's columns, `tail` the lanes of the last one.
template <class V, int N>
struct Columns {
  using Reg = typename V::Reg;
  typename V::Mask tail;
  Reg r[N];

  explicit Columns(int width) : tail(V::mask(0, width - (N - 1) * V::lanes)) {
    for (int v = 0; v < N; ++v) r[v] = V::zero();
  }
  Reg at(const float* p, int v) const {
    return v + 1 < N ? V::load(p + v * V::lanes) : V::load(p + v * V::lanes, tail);
  }
  void load(const float* p) {
    for (int v = 0; v < N; ++v) r[v] = at(p, v);
  }
  void add(float weight, const float* p) {
    const Reg w = V::broadcast(weight);
    for (int v = 0; v < N; ++v) r[v] = V::fma(w, at(p, v), r[v]);
  }
  void plus(const Columns& other) {
    for (int v = 0; v < N; ++v) r[v] = V::add(r[v], other.r[v]);
  }
  float dot(const float* p) const {
    Reg sum = V::mul(r[0], at(p, 0));
    for (int v = 1; v < N; ++v) sum = V::fma(r[v], at(p, v), sum);
    return sum_of(sum);
  }
  void store(float* p) const {
    const auto all = V::mask(0, V::lanes);
    for (int v = 0; v < N; ++v) V::store(p + v * V::lanes, r[v], v + 1 < N ? all : tail);
  }
};

// Calls body(first column, columns, registers' type) for tiles of a head's width.
template <class Body>
void each_tile(int width, Body&& body) {
  constexpr int L = Wide::lanes;
  if (width <= 4) return body(0, width, static_cast<Columns<Quarter, 1>*>(nullptr));
  if (width <= 8) return body(0, width, static_cast<Columns<Half, 1>*>(nullptr));
  for (int at = 0; at < width; at += 4 * L) {
    const int some = std::min(4 * L, width - at);
    switch ((some + L - 1) / L) {
      case 1: body(at, some, static_cast<Columns<Wide, 1>*>(nullptr)); break;
      case 2: body(at, some, static_cast<Columns<Wide, 2>*>(nullptr)); break;
      case 3: body(at, some, static_cast<Columns<Wide, 3>*>(nullptr)); break;
      default: body(at, some, static_cast<Columns<Wide, 4>*>(nullptr)); break;
    }
  }
}

}  // namespace dgbench
