// Comparing two sorted rows: which columns only the first holds, which only the second.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include <immintrin.h>
#define DGBENCH_DIFFERENCE_AVX512
#endif

namespace dgbench {

// Sorted (row, column) pairs that grow; both arrays have room for kSlack pairs more than are used,
// because whole registers are stored.
struct ChangeList {
  static constexpr std::int64_t kSlack = 16;
  std::unique_ptr<std::int32_t[]> rows;
  std::unique_ptr<std::int32_t[]> columns;
  std::int64_t count = 0;

  // Pages that are never written are never taken, so room for the worst case costs nothing.
  explicit ChangeList(std::int64_t most)
      : rows(new std::int32_t[most + kSlack]), columns(new std::int32_t[most + kSlack]) {}
};

// The same without the pairs.
struct ChangeCount {
  std::int64_t count = 0;
  explicit ChangeCount(std::int64_t) {}
};

#if defined(DGBENCH_DIFFERENCE_AVX512)

inline void emit(ChangeList& to, __m512i columns, __mmask16 keep, std::int32_t row) {
  _mm512_storeu_si512(to.columns.get() + to.count, _mm512_maskz_compress_epi32(keep, columns));
  _mm512_storeu_si512(to.rows.get() + to.count, _mm512_set1_epi32(row));
  to.count += __builtin_popcount(keep);
}

inline void emit(ChangeCount& to, __m512i, __mmask16 keep, std::int32_t) {
  to.count += __builtin_popcount(keep);
}

// Lanes of a that occur in b and lanes of b that occur in a.
inline void intersect(__m512i a, __m512i b, __mmask16& in_b, __mmask16& in_a) {
#if defined(__AVX512VP2INTERSECT__)
  _mm512_2intersect_epi32(a, b, &in_b, &in_a);
#else
  __mmask16 of_a = 0;
  __mmask16 of_b = 0;
  // Lane i of the turned register is lane i + k (mod 16) of the other side.
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  for (int k = 0; k < 16; ++k) {
    const __m512i turn = _mm512_add_epi32(lane, _mm512_set1_epi32(k));  // counts modulo 16
    of_a |= _mm512_cmpeq_epi32_mask(a, _mm512_maskz_permutexvar_epi32(0xffff, turn, b));
    of_b |= _mm512_cmpeq_epi32_mask(b, _mm512_maskz_permutexvar_epi32(0xffff, turn, a));
  }
  in_b = of_a;
  in_a = of_b;
#endif
}

inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>(_bzhi_u32(0xffffu, static_cast<unsigned>(count)));
}

// Lanes past the end hold negative numbers, a different one on each side, so they match nothing.
inline __m512i load_columns(const std::int32_t* from, __mmask16 lanes, int filler) {
  return _mm512_mask_loadu_epi32(_mm512_set1_epi32(filler), lanes, from);
}

template <class Changes>
void merge_long_row(const std::int32_t* a, std::int64_t a_size, const std::int32_t* b,
                    std::int64_t b_size, std::int32_t row, Changes& removed, Changes& added) {
  std::int64_t i = 0;
  std::int64_t j = 0;
  unsigned a_met = 0;  // lanes of the current blocks that were met on the other side
  unsigned b_met = 0;
  while (i < a_size && j < b_size) {
    const std::int64_t a_step = std::min<std::int64_t>(16, a_size - i);
    const std::int64_t b_step = std::min<std::int64_t>(16, b_size - j);
    const __mmask16 a_lanes = first_lanes(a_step);
    const __mmask16 b_lanes = first_lanes(b_step);
    const __m512i x = load_columns(a + i, a_lanes, -1);
    const __m512i y = load_columns(b + j, b_lanes, -2);
    __mmask16 in_b;
    __mmask16 in_a;
    intersect(x, y, in_b, in_a);
    a_met |= in_b;
    b_met |= in_a;
    // The block that ends first can meet nothing more; no branch, as which one it is is chance.
    const std::int32_t a_last = a[i + a_step - 1];
    const std::int32_t b_last = b[j + b_step - 1];
    const unsigned a_done = a_last <= b_last ? 0xffffu : 0u;
    const unsigned b_done = b_last <= a_last ? 0xffffu : 0u;
    emit(removed, x, static_cast<__mmask16>(a_lanes & ~a_met & a_done), row);
    emit(added, y, static_cast<__mmask16>(b_lanes & ~b_met & b_done), row);
    a_met &= ~a_done;
    b_met &= ~b_done;
    i += a_done ? a_step : 0;
    j += b_done ? b_step : 0;
  }
  for (; i < a_size; i += 16, a_met = 0) {
    const __mmask16 lanes = first_lanes(std::min<std::int64_t>(16, a_size - i));
    emit(removed, load_columns(a + i, lanes, -1), static_cast<__mmask16>(lanes & ~a_met), row);
  }
  for (; j < b_size; j += 16, b_met = 0) {
    const __mmask16 lanes = first_lanes(std::min<std::int64_t>(16, b_size - j));
    emit(added, load_columns(b + j, lanes, -2), static_cast<__mmask16>(lanes & ~b_met), row);
  }
}

template <class Changes>
inline void merge_row(const std::int32_t* a, std::int64_t a_size, const std::int32_t* b,
                      std::int64_t b_size, std::int32_t row, Changes& removed, Changes& added) {
  if (a_size > 16 || b_size > 16) {
    merge_long_row(a, a_size, b, b_size, row, removed, added);
    return;
  }
  const __mmask16 a_lanes = first_lanes(a_size);
  const __mmask16 b_lanes = first_lanes(b_size);
  const __m512i x = load_columns(a, a_lanes, -1);
  const __m512i y = load_columns(b, b_lanes, -2);
  __mmask16 in_b;
  __mmask16 in_a;
  intersect(x, y, in_b, in_a);
  emit(removed, x, static_cast<__mmask16>(a_lanes & ~in_b), row);
  emit(added, y, static_cast<__mmask16>(b_lanes & ~in_a), row);
}

// Which of the rows first .. first + 7 hold anything in either matrix.
inline unsigned filled_rows(const std::int64_t* a, const std::int64_t* b) {
  const __mmask8 in_a = _mm512_cmpneq_epi64_mask(_mm512_loadu_si512(a), _mm512_loadu_si512(a + 1));
  const __mmask8 in_b = _mm512_cmpneq_epi64_mask(_mm512_loadu_si512(b), _mm512_loadu_si512(b + 1));
  return static_cast<unsigned>(in_a) | in_b;
}

#else

inline void emit(ChangeList& to, std::int32_t column, bool keep, std::int32_t row) {
  to.columns[to.count] = column;
  to.rows[to.count] = row;
  to.count += keep;
}

inline void emit(ChangeCount& to, std::int32_t, bool keep, std::int32_t) { to.count += keep; }

// Which side is smaller is chance, so nothing here branches on it.
template <class Changes>
inline void merge_row(const std::int32_t* a, std::int64_t a_size, const std::int32_t* b,
                      std::int64_t b_size, std::int32_t row, Changes& removed, Changes& added) {
  std::int64_t i = 0;
  std::int64_t j = 0;
  while (i < a_size && j < b_size) {
    const std::int32_t x = a[i];
    const std::int32_t y = b[j];
    emit(removed, x, x < y, row);
    emit(added, y, y < x, row);
    i += x <= y;
    j += y <= x;
  }
  for (; i < a_size; ++i) emit(removed, a[i], true, row);
  for (; j < b_size; ++j) emit(added, b[j], true, row);
}

inline unsigned filled_rows(const std::int64_t* a, const std::int64_t* b) {
  unsigned filled = 0;
  for (int k = 0; k < 8; ++k) filled |= unsigned{a[k] != a[k + 1] || b[k] != b[k + 1]} << k;
  return filled;
}

#endif

struct SortedRows {
  const std::int64_t* indptr;
  const std::int32_t* indices;
};

// All changes of rows [first, stop), in ascending order.
template <class Changes>
void merge_rows(SortedRows a, SortedRows b, std::int64_t first, std::int64_t stop, Changes& removed,
                Changes& added) {
  const auto one = [&](std::int64_t row) {
    const std::int64_t i = a.indptr[row];
    const std::int64_t j = b.indptr[row];
    merge_row(a.indices + i, a.indptr[row + 1] - i, b.indices + j, b.indptr[row + 1] - j,
              static_cast<std::int32_t>(row), removed, added);
  };
  std::int64_t row = first;
  for (; row + 8 <= stop; row += 8) {
    for (unsigned filled = filled_rows(a.indptr + row, b.indptr + row); filled != 0;
         filled &= filled - 1) {
      one(row + __builtin_ctz(filled));
    }
  }
  for (; row < stop; ++row) one(row);
}

}  // namespace dgbench
