// The vector registers that aggregation runs on: `Avx512<L>` (16, 8 or 4 floats) and `Avx2<L>` (8 or
// 4) where the compiler has them, and `Portable<T, L>` on the compiler's generic vectors everywhere
// else and for doubles. All offer the same few operations. A mask names the lanes [lo, hi) that
// exist; lanes outside it are never read from or written to memory, so rows need no padding.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) && defined(__AVX512VL__)
#define DGBENCH_AVX512 1
#endif
#if defined(__AVX2__) && defined(__FMA__)
#define DGBENCH_AVX2 1
#include <immintrin.h>
#endif

namespace dgbench {

template <class T, int L>
struct Portable {
  using Scalar = T;
  static constexpr int lanes = L;
  typedef T Reg __attribute__((vector_size(sizeof(T) * L)));
  struct Mask {
    int lo, hi;
  };

  static Mask mask(int lo, int hi) { return {lo < 0 ? 0 : lo, hi > L ? L : hi}; }
  static Reg zero() { return Reg{}; }
  static Reg load(const T* p) {
    Reg r;
    std::memcpy(&r, p, sizeof(Reg));
    return r;
  }
  static Reg load(const T* p, Mask m) {
    if (m.lo == 0 && m.hi == L) return load(p);
    if (m.lo == 0) {  // the tail of a row: a copy of known size stays in registers
      switch (m.hi) {
        case 1:
          return first<1>(p);
        case 2:
          return first<2>(p);
        case 3:
          return first<3>(p);
        case 4:
          return first<4>(p);
        case 5:
          return first<5>(p);
        case 6:
          return first<6>(p);
        case 7:
          return first<7>(p);
        default:
          break;
      }
    }
    Reg r{};
    for (int j = 0; j < L; ++j) {
      if (m.lo <= j && j < m.hi) r[j] = p[j];
    }
    return r;
  }
  static void store(T* p, Reg r, Mask m) {
    if (m.lo == 0 && m.hi == L) {
      std::memcpy(p, &r, sizeof(Reg));
      return;
    }
    for (int j = m.lo; j < m.hi; ++j) p[j] = r[j];
  }
  static Reg broadcast(T value) { return value - Reg{}; }
  static Reg add(Reg a, Reg b) { return a + b; }
  static Reg mul(Reg a, Reg b) { return a * b; }
  static Reg fma(Reg a, Reg b, Reg c) { return a * b + c; }
  // Lane j takes p[index[j]] for the lanes of m; others are 0.
  static Reg gather(const T* p, const std::int32_t* index, Mask m) {
    Reg r{};
    for (int j = m.lo; j < m.hi; ++j) r[j] = p[index[j]];
    return r;
  }
  // As gather, where all `count` values p[0..count) may be read.
  static Reg spread(const T* p, int, const std::int32_t* index, Mask m) {
    return gather(p, index, m);
  }

 private:
  template <int K>
  static Reg first(const T* p) {
    Reg r{};
    if constexpr (K <= L) std::memcpy(&r, p, K * sizeof(T));
    return r;
  }
};

#if defined(DGBENCH_AVX2)

template <int L>
struct Avx2;

template <>
struct Avx2<8> {
  using Scalar = float;
  using Reg = __m256;
  using Mask = __m256i;  // all bits of the lanes that exist
  static constexpr int lanes = 8;

  static Mask mask(int lo, int hi) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(lo), lane),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), lane));
  }
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static Reg load(const float* p, Mask m) { return _mm256_maskload_ps(p, m); }
  static void store(float* p, Reg r, Mask m) { _mm256_maskstore_ps(p, m, r); }
  static Reg broadcast(float value) { return _mm256_set1_ps(value); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg gather(const float* p, const std::int32_t* index, Mask m) {
    const __m256i where = _mm256_maskload_epi32(index, m);
    return _mm256_mask_i32gather_ps(zero(), p, where, _mm256_castsi256_ps(m), 4);
  }
  static Reg spread(const float* p, int count, const std::int32_t* index, Mask m) {
    if (count > lanes) return gather(p, index, m);
    const __m256i where = _mm256_maskload_epi32(index, m);
    return _mm256_permutevar8x32_ps(load(p, mask(0, count)), where);
  }
};

template <>
struct Avx2<4> {
  using Scalar = float;
  using Reg = __m128;
  using Mask = __m128i;
  static constexpr int lanes = 4;

  static Mask mask(int lo, int hi) {
    const __m128i lane = _mm_setr_epi32(0, 1, 2, 3);
    return _mm_andnot_si128(_mm_cmpgt_epi32(_mm_set1_epi32(lo), lane),
                            _mm_cmpgt_epi32(_mm_set1_epi32(hi), lane));
  }
  static Reg zero() { return _mm_setzero_ps(); }
  static Reg load(const float* p) { return _mm_loadu_ps(p); }
  static Reg load(const float* p, Mask m) { return _mm_maskload_ps(p, m); }
  static void store(float* p, Reg r, Mask m) { _mm_maskstore_ps(p, m, r); }
  static Reg broadcast(float value) { return _mm_set1_ps(value); }
  static Reg add(Reg a, Reg b) { return _mm_add_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm_mul_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm_fmadd_ps(a, b, c); }
  static Reg gather(const float* p, const std::int32_t* index, Mask m) {
    const __m128i where = _mm_maskload_epi32(index, m);
    return _mm_mask_i32gather_ps(zero(), p, where, _mm_castsi128_ps(m), 4);
  }
  static Reg spread(const float* p, int, const std::int32_t* index, Mask m) {
    return gather(p, index, m);
  }
};

// One or two floats at the bottom of a register. Always whole, so masks are ignored.
template <int L>
struct Few : Avx2<4> {
  static constexpr int lanes = L;

  static Mask mask(int, int) { return Avx2<4>::mask(0, L); }
  static Reg load(const float* p) {
    if constexpr (L == 1) return _mm_load_ss(p);
    return _mm_castpd_ps(_mm_load_sd(reinterpret_cast<const double*>(p)));
  }
  static Reg load(const float* p, Mask) { return load(p); }
  static void store(float* p, Reg r, Mask) {
    if constexpr (L == 1) {
      _mm_store_ss(p, r);
    } else {
      _mm_storel_pi(reinterpret_cast<__m64*>(p), r);
    }
  }
};

// Sixteen floats in two registers: rows of more than 64 floats are then read once, from front to back,
// with their sums in up to sixteen registers; what does not fit there is spilled to the stack, which
// costs less than reading the list of neighbours and every row in several passes.
struct Avx2Pair {
  using Half = Avx2<8>;
  using Scalar = float;
  struct Reg {
    __m256 low, high;
  };
  struct Mask {
    __m256i low, high;
  };
  static constexpr int lanes = 16;

  static Mask mask(int lo, int hi) { return {Half::mask(lo, hi), Half::mask(lo - 8, hi - 8)}; }
  static Reg zero() { return {Half::zero(), Half::zero()}; }
  static Reg load(const float* p) { return {Half::load(p), Half::load(p + 8)}; }
  static Reg load(const float* p, Mask m) {
    return {Half::load(p, m.low), Half::load(p + 8, m.high)};
  }
  static void store(float* p, Reg r, Mask m) {
    Half::store(p, r.low, m.low);
    Half::store(p + 8, r.high, m.high);
  }
  static Reg broadcast(float value) { return {Half::broadcast(value), Half::broadcast(value)}; }
  static Reg add(Reg a, Reg b) { return {Half::add(a.low, b.low), Half::add(a.high, b.high)}; }
  static Reg mul(Reg a, Reg b) { return {Half::mul(a.low, b.low), Half::mul(a.high, b.high)}; }
  static Reg fma(Reg a, Reg b, Reg c) {
    return {Half::fma(a.low, b.low, c.low), Half::fma(a.high, b.high, c.high)};
  }
  static Reg spread(const float* p, int count, const std::int32_t* index, Mask m) {
    return {Half::spread(p, count, index, m.low), Half::spread(p, count, index + 8, m.high)};
  }
};

#endif  // DGBENCH_AVX2

#if defined(DGBENCH_AVX512)

template <int L>
struct Avx512;

template <>
struct Avx512<16> {
  using Scalar = float;
  using Reg = __m512;
  using Mask = __mmask16;
  static constexpr int lanes = 16;

  static Mask mask(int lo, int hi) {
    lo = lo < 0 ? 0 : lo;
    hi = hi > lanes ? lanes : hi;
    return lo >= hi ? Mask(0) : Mask(((1u << hi) - 1u) & ~((1u << lo) - 1u));
  }
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static Reg load(const float* p, Mask m) { return _mm512_maskz_loadu_ps(m, p); }
  static void store(float* p, Reg r, Mask m) { _mm512_mask_storeu_ps(p, m, r); }
  static Reg broadcast(float value) { return _mm512_set1_ps(value); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg gather(const float* p, const std::int32_t* index, Mask m) {
    const __m512i where = _mm512_maskz_loadu_epi32(m, index);
    return _mm512_mask_i32gather_ps(zero(), m, where, p, 4);
  }
  static Reg spread(const float* p, int count, const std::int32_t* index, Mask m) {
    if (count > lanes) return gather(p, index, m);
    const __m512i where = _mm512_maskz_loadu_epi32(m, index);
    return _mm512_maskz_permutexvar_ps(m, where, load(p, mask(0, count)));
  }
};

template <>
struct Avx512<8> {
  using Scalar = float;
  using Reg = __m256;
  using Mask = __mmask8;
  static constexpr int lanes = 8;

  static Mask mask(int lo, int hi) {
    lo = lo < 0 ? 0 : lo;
    hi = hi > lanes ? lanes : hi;
    return lo >= hi ? Mask(0) : Mask(((1u << hi) - 1u) & ~((1u << lo) - 1u));
  }
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static Reg load(const float* p, Mask m) { return _mm256_maskz_loadu_ps(m, p); }
  static void store(float* p, Reg r, Mask m) { _mm256_mask_storeu_ps(p, m, r); }
  static Reg broadcast(float value) { return _mm256_set1_ps(value); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg gather(const float* p, const std::int32_t* index, Mask m) {
    const __m256i where = _mm256_maskz_loadu_epi32(m, index);
    return _mm256_mmask_i32gather_ps(zero(), m, where, p, 4);
  }
  static Reg spread(const float* p, int count, const std::int32_t* index, Mask m) {
    if (count > lanes) return gather(p, index, m);
    const __m256i where = _mm256_maskz_loadu_epi32(m, index);
    return _mm256_maskz_permutexvar_ps(m, where, load(p, mask(0, count)));
  }
};

template <>
struct Avx512<4> {
  using Scalar = float;
  using Reg = __m128;
  using Mask = __mmask8;
  static constexpr int lanes = 4;

  static Mask mask(int lo, int hi) {
    lo = lo < 0 ? 0 : lo;
    hi = hi > lanes ? lanes : hi;
    return lo >= hi ? Mask(0) : Mask(((1u << hi) - 1u) & ~((1u << lo) - 1u));
  }
  static Reg zero() { return _mm_setzero_ps(); }
  static Reg load(const float* p) { return _mm_loadu_ps(p); }
  static Reg load(const float* p, Mask m) { return _mm_maskz_loadu_ps(m, p); }
  static void store(float* p, Reg r, Mask m) { _mm_mask_storeu_ps(p, m, r); }
  static Reg broadcast(float value) { return _mm_set1_ps(value); }
  static Reg add(Reg a, Reg b) { return _mm_add_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm_mul_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm_fmadd_ps(a, b, c); }
  static Reg gather(const float* p, const std::int32_t* index, Mask m) {
    const __m128i where = _mm_maskz_loadu_epi32(m, index);
    return _mm_mmask_i32gather_ps(zero(), m, where, p, 4);
  }
  static Reg spread(const float* p, int, const std::int32_t* index, Mask m) {
    return gather(p, index, m);
  }
};

#endif  // DGBENCH_AVX512

}  // namespace dgbench
