// The register-blocked kernel of cpu_gemm.hpp: its many tiles are compiled here and nowhere else.
#include "scan/cpu_gemm.hpp"

namespace dgbench::scan {
namespace {

#if defined(__AVX512F__)
constexpr int kMaxPanel = 6;  // 4 rows x 6 vectors or 6 x 4 leave 8 of 32 registers for operands
#else
constexpr int kMaxPanel = 2;  // 6 rows x 2 vectors of 16 registers
#endif

constexpr int rows_for(int panel) { return panel == 1 ? 8 : panel <= 4 ? 6 : panel == 5 ? 5 : 4; }

// `by_columns` is false: element (m, i) of A is a[m * stride + i]; true: a[m + i * stride].
template <class R, int MR, int NV, bool by_columns>
__attribute__((always_inline)) inline void accumulate(Vec<R> (&acc)[MR][NV], const Term<R>& term,
                                                      int64_t row, int64_t column) {
  constexpr int lanes = Lanes<R>::count;
  const int64_t stride = term.stride;
  const R* b = term.b + column;
  // One pointer to each third row: x86 addressing reaches the two between, so row pointers do not
  // run out of registers.
  constexpr int bases = (MR + 2) / 3;
  const R* a[bases];
  for (int g = 0; g < bases; ++g) {
    a[g] = by_columns ? term.a + row : term.a + (row + 3 * g) * stride;
  }
  for (int64_t i = 0; i < term.k; ++i) {
    Vec<R> bv[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) bv[j] = load(b + j * lanes);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const R s = by_columns ? a[0][m] : a[m / 3][(m % 3) * stride];
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) acc[m][j] += bv[j] * s;
    }
    b += term.ldb;
    if constexpr (by_columns) {
      a[0] += stride;
    } else {
#pragma GCC unroll 4
      for (int g = 0; g < bases; ++g) ++a[g];
    }
  }
}

template <class R, int MR, int NV, bool by_columns>
void tile(const Term<R>& one, const Term<R>& two, const R* init, int64_t ldi, R* c, int64_t ldc,
          int64_t row, int64_t column) {
  constexpr int lanes = Lanes<R>::count;
  Vec<R> acc[MR][NV];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) acc[m][j] = Vec<R>{};
  }
  accumulate<R, MR, NV, by_columns>(acc, one, row, column);
  if (two.k > 0) accumulate<R, MR, NV, by_columns>(acc, two, row, column);
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      const int64_t at = column + j * lanes;
      // Added last: a running sum in C then grows by one rounding per call, not one per term.
      if (init) acc[m][j] += load(init + (row + m) * ldi + at);
      store(c + (row + m) * ldc + at, acc[m][j]);
    }
  }
}

template <class R, int NV, bool by_columns, int MR>
void rest(int64_t rows, const Term<R>& one, const Term<R>& two, const R* init, int64_t ldi, R* c,
          int64_t ldc, int64_t row, int64_t column) {
  if constexpr (MR > 0) {
    if (rows == MR) {
      tile<R, MR, NV, by_columns>(one, two, init, ldi, c, ldc, row, column);
    } else {
      rest<R, NV, by_columns, MR - 1>(rows, one, two, init, ldi, c, ldc, row, column);
    }
  }
}

template <class R, int NV, bool by_columns>
void panel(int64_t rows, const Term<R>& one, const Term<R>& two, const R* init, int64_t ldi, R* c,
           int64_t ldc, int64_t column) {
  constexpr int MR = rows_for(NV);
  int64_t row = 0;
  for (; row + MR <= rows; row += MR) {
    tile<R, MR, NV, by_columns>(one, two, init, ldi, c, ldc, row, column);
  }
  rest<R, NV, by_columns, MR - 1>(rows - row, one, two, init, ldi, c, ldc, row, column);
}

inline int panel_width(int64_t vectors) {
  if (vectors <= kMaxPanel) return int(vectors);
  if (kMaxPanel < 6) return kMaxPanel;
  for (int width : {6, 4, 5, 3}) {
    if (vectors % width == 0) return width;
  }
  return 4;
}

}  // namespace

template <class R, bool by_columns>
void multiply(int64_t rows, int64_t vectors, const Term<R>& one, const Term<R>& two, const R* init,
              int64_t ldi, R* c, int64_t ldc) {
  constexpr int lanes = Lanes<R>::count;
  for (int64_t done = 0; done < vectors;) {
    const int width = panel_width(vectors - done);
    const int64_t column = done * lanes;
    switch (width) {
      case 1: panel<R, 1, by_columns>(rows, one, two, init, ldi, c, ldc, column); break;
      case 2: panel<R, 2, by_columns>(rows, one, two, init, ldi, c, ldc, column); break;
#if defined(__AVX512F__)
      case 3: panel<R, 3, by_columns>(rows, one, two, init, ldi, c, ldc, column); break;
      case 4: panel<R, 4, by_columns>(rows, one, two, init, ldi, c, ldc, column); break;
      case 5: panel<R, 5, by_columns>(rows, one, two, init, ldi, c, ldc, column); break;
      default: panel<R, 6, by_columns>(rows, one, two, init, ldi, c, ldc, column); break;
#endif
    }
    done += width;
  }
}

template void multiply<float, false>(int64_t, int64_t, const Term<float>&, const Term<float>&,
                                     const float*, int64_t, float*, int64_t);
template void multiply<float, true>(int64_t, int64_t, const Term<float>&, const Term<float>&,
                                    const float*, int64_t, float*, int64_t);
template void multiply<double, false>(int64_t, int64_t, const Term<double>&, const Term<double>&,
                                      const double*, int64_t, double*, int64_t);
template void multiply<double, true>(int64_t, int64_t, const Term<double>&, const Term<double>&,
                                     const double*, int64_t, double*, int64_t);

}  // namespace dgbench::scan
