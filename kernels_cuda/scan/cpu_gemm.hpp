// Small dense products for the recurrent scans: C = init + A1 B1 [+ A2 B2], with B and C in rows
// that are padded to whole vectors. One register-blocked kernel serves the three products of a
// scan: gates (A in rows), gradients of states (A in rows, B the transposed weights) and gradients
// of weights (A read by columns). Vectors are GCC vector extensions, so one source gives AVX-512,
// AVX2 and SSE code, in float32 and in float64.
#pragma once

#include <cstdint>
#include <cstring>

namespace dgbench::scan {

#if defined(__AVX512F__)
constexpr int kVecBytes = 64;
#elif defined(__AVX2__)
constexpr int kVecBytes = 32;
#else
constexpr int kVecBytes = 16;
#endif

template <class R>
struct Lanes {
  typedef R type __attribute__((vector_size(kVecBytes)));
  static constexpr int count = kVecBytes / int(sizeof(R));
};

template <class R>
using Vec = typename Lanes<R>::type;

template <class R>
inline Vec<R> load(const R* p) {
  Vec<R> v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

template <class R>
inline void store(R* p, Vec<R> v) {
  std::memcpy(p, &v, sizeof(v));
}

template <class R>
inline Vec<R> splat(R s) {
  return Vec<R>{} + s;
}

// One product A B with inner length k. `stride` is the distance between rows of A, or between its
// columns when the product uses A by columns; `ldb` between rows of B.
template <class R>
struct Term {
  const R* a = nullptr;
  int64_t stride = 0;
  const R* b = nullptr;
  int64_t ldb = 0;
  int64_t k = 0;
};

// C[rows, vectors] = init + one + two. `init` null means zero; `ldi` 0 repeats one row (a bias);
// `init` may be C itself. C may not overlap A or B. With `by_columns` element (m, i) of A is
// a[m + i * stride], else a[m * stride + i]. Compiled in cpu_gemm.cpp, once for all who multiply.
template <class R, bool by_columns = false>
void multiply(int64_t rows, int64_t vectors, const Term<R>& one, const Term<R>& two, const R* init,
              int64_t ldi, R* c, int64_t ldc);

}  // namespace dgbench::scan
