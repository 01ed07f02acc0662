// Rebuilding rows on the host: the same ranks as difference/functors.hpp, taken for up to
// sixteen entries at once. What lies between two changed rows moves as one run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "difference/cpu_merge.hpp"
#include "difference/functors.hpp"

namespace dgbench {

// What a pair may violate; the places of `found` in LocateChange.
enum Violation : int { kMissing = 0, kHeld = 1, kDisorder = 2 };

// Short runs are the rule, and a call of memcpy costs as much as four of them.
inline void copy_run(const std::int32_t* from, std::int64_t count, std::int32_t* to) {
#if defined(DGBENCH_DIFFERENCE_AVX512)
  if (count == 0) return;
  for (; count >= 16; count -= 16, from += 16, to += 16) {
    _mm512_storeu_si512(to, _mm512_loadu_si512(from));
  }
  const __mmask16 lanes = first_lanes(count);
  _mm512_mask_storeu_epi32(to, lanes, _mm512_maskz_loadu_epi32(lanes, from));
#else
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(std::int32_t));
#endif
}

template <class Index>
struct SentPairs {
  const Index* rows;
  const Index* columns;
  std::int64_t count;

  explicit SentPairs(const Pairs& pairs)
      : rows(static_cast<const Index*>(pairs.rows.data)),
        columns(static_cast<const Index*>(pairs.columns.data)),
        count(pairs.count) {}
};

#if defined(DGBENCH_DIFFERENCE_AVX512)

// How many of list[0, n) from the front on are equal to `key` (or at most `key`). An empty list may
// be a null pointer, which a load without lanes does not fault on but takes hundreds of cycles for.
template <bool OrLess>
inline std::int64_t leading(const std::int64_t* list, std::int64_t n, std::int64_t key) {
  if (n <= 0) return 0;
  for (std::int64_t k = 0;; k += 8) {
    const __mmask8 lanes = _bzhi_u32(0xffu, static_cast<unsigned>(std::min<std::int64_t>(8, n - k)));
    const __m512i head = _mm512_maskz_loadu_epi64(lanes, list + k);
    const __m512i keys = _mm512_set1_epi64(key);
    const unsigned met = OrLess ? _mm512_mask_cmple_epi64_mask(lanes, head, keys)
                                : _mm512_mask_cmpeq_epi64_mask(lanes, head, keys);
    if (met != 0xffu) return k + __builtin_ctz(~met);
  }
}

template <bool OrLess>
inline std::int64_t leading(const std::int32_t* list, std::int64_t n, std::int64_t key) {
  if (n <= 0) return 0;
  for (std::int64_t k = 0;; k += 16) {
    const __mmask16 lanes = first_lanes(std::min<std::int64_t>(16, n - k));
    const __m512i head = _mm512_maskz_loadu_epi32(lanes, list + k);
    const __m512i keys = _mm512_set1_epi32(static_cast<std::int32_t>(key));
    const unsigned met = OrLess ? _mm512_mask_cmple_epi32_mask(lanes, head, keys)
                                : _mm512_mask_cmpeq_epi32_mask(lanes, head, keys);
    if (met != 0xffffu) return k + __builtin_ctz(~met);
  }
}

// Up to sixteen sent columns as int32; lanes past the end hold -2.
inline __m512i sent_columns(const std::int64_t* from, std::int64_t count) {
  const __m512i none = _mm512_set1_epi64(-2);
  const unsigned lanes = first_lanes(count);
  const __m512i low = _mm512_mask_loadu_epi64(none, static_cast<__mmask8>(lanes), from);
  const __m512i high = _mm512_mask_loadu_epi64(none, static_cast<__mmask8>(lanes >> 8), from + 8);
  // The masked forms with all lanes on: gcc takes the plain ones for uses of an unset register.
  const __m256i lower = _mm512_maskz_cvtepi64_epi32(0xff, low);
  const __m256i upper = _mm512_maskz_cvtepi64_epi32(0xff, high);
  return _mm512_maskz_inserti64x4(0xff, _mm512_castsi256_si512(lower), upper, 1);
}

inline __m512i sent_columns(const std::int32_t* from, std::int64_t count) {
  return load_columns(from, first_lanes(count), -2);
}

#endif

// Writes what is left of x[0, size) without `gone` and with `come`, all ascending. Returns -1, or
// what is wrong. Bounds were checked: size - gone_count + come_count entries are written at most.
template <class Index>
int merge_changes(const std::int32_t* x, std::int64_t size, const Index* gone,
                  std::int64_t gone_count, const Index* come, std::int64_t come_count,
                  std::int32_t* out) {
  std::int64_t i = 0;
  std::int64_t g = 0;
  std::int64_t c = 0;
  if (gone_count > size) return kMissing;
  const std::int32_t* stop = out + (size - gone_count + come_count);
  while (i < size || c < come_count) {
    if (c > 0 && c < come_count && come[c] <= come[c - 1]) return kDisorder;
    if (c < come_count && (i == size || come[c] <= x[i])) {
      if (i < size && come[c] == x[i]) return kHeld;
      if (out == stop) return kMissing;
      *out++ = static_cast<std::int32_t>(come[c++]);
    } else if (g < gone_count && gone[g] == x[i]) {
      ++g;
      ++i;
    } else {
      if (out == stop) return kMissing;
      *out++ = x[i++];
    }
  }
  return g == gone_count ? -1 : kMissing;
}

// A row that was empty: the sent columns as they are, as in a plain transfer. Returns -1, or what is
// wrong.
template <class Index>
int copy_sent(const Index* come, std::int64_t count, std::int32_t* out) {
  bool ascends = true;
  for (std::int64_t k = 0; k < count; ++k) {
    ascends &= k == 0 || come[k] > come[k - 1];
    out[k] = static_cast<std::int32_t>(come[k]);
  }
  return ascends ? -1 : kDisorder;
}

#if defined(DGBENCH_DIFFERENCE_AVX512)

// One changed row, sixteen entries at a time; the last block takes all changes that are left.
template <class Index>
int rebuild_row(const std::int32_t* x, std::int64_t size, const Index* gone,
                std::int64_t gone_count, const Index* come, std::int64_t come_count,
                std::int32_t* out) {
  if (gone_count > size) return kMissing;
  if (size == 0) return copy_sent(come, come_count, out);
  do {
    const std::int64_t step = std::min<std::int64_t>(16, size);
    std::int64_t g = gone_count;
    std::int64_t c = come_count;
    if (size > 16) {
      const std::int32_t last = x[15];
      g = leading<true>(gone, gone_count, last);
      c = leading<true>(come, come_count, last);
    }
    const std::int64_t left = step - g;
    if (left < 0) return kMissing;
    if (left + c > 16) {
      const int wrong = merge_changes(x, step, gone, g, come, c, out);
      if (wrong >= 0) return wrong;
    } else {
      const __mmask16 lanes = first_lanes(step);
      const __m512i block = load_columns(x, lanes, -1);
      __mmask16 leaves = 0;
      __mmask16 unused;
      if (g > 0) intersect(block, sent_columns(gone, g), leaves, unused);
      if (__builtin_popcount(leaves) != g) return kMissing;
      __m512i merged = _mm512_maskz_compress_epi32(static_cast<__mmask16>(lanes & ~leaves), block);
      for (std::int64_t k = 0; k < c; ++k) {
        const __m512i y = _mm512_set1_epi32(static_cast<std::int32_t>(come[k]));
        if (_mm512_cmpeq_epi32_mask(block, y) != 0) return kHeld;
        if (k > 0 && come[k] <= come[k - 1]) return kDisorder;
        const unsigned filled = first_lanes(left + k);
        const unsigned rank = __builtin_popcount(_mm512_cmplt_epi32_mask(merged, y) & filled);
        merged = _mm512_mask_expand_epi32(y, static_cast<__mmask16>(~(1u << rank)), merged);
      }
      _mm512_mask_storeu_epi32(out, first_lanes(left + c), merged);
    }
    out += left + c;
    x += step;
    size -= step;
    gone += g;
    gone_count -= g;
    come += c;
    come_count -= c;
  } while (size > 0);
  return -1;
}

#else

template <bool OrLess, class Index>
std::int64_t leading(const Index* list, std::int64_t n, std::int64_t key) {
  std::int64_t k = 0;
  while (k < n && (OrLess ? list[k] <= key : list[k] == key)) ++k;
  return k;
}

template <class Index>
int rebuild_row(const std::int32_t* x, std::int64_t size, const Index* gone,
                std::int64_t gone_count, const Index* come, std::int64_t come_count,
                std::int32_t* out) {
  return merge_changes(x, size, gone, gone_count, come, come_count, out);
}

#endif

// What a span of rows starts from: changes before it and the place of its first entry.
struct SpanStart {
  std::int64_t gone;
  std::int64_t come;
  std::int64_t place;
};

inline SpanStart span_start(const Rebuild& r, const Pairs& removed, std::int64_t row) {
  const std::int64_t gone = lower_bound(removed.rows, removed.count, row);
  const std::int64_t come = lower_bound(r.added.rows, r.added.count, row);
  const std::int64_t old = r.indptr == nullptr ? 0 : r.indptr[row];
  return {gone, come, old - gone + come};
}

// Rows [first, stop) of the new matrix, offsets and entries. A pair that is in disorder, outside the
// matrix or does not fit it is reported as LocateChange does, and ends the span; until then every
// write stays between the places where this span and the next one start.
template <class Index>
void rebuild_rows(const Rebuild& r, const Pairs& removed_pairs, std::int64_t num_cols,
                  std::int64_t first, std::int64_t stop, std::int64_t* found) {
  const SentPairs<Index> removed(removed_pairs);
  const SentPairs<Index> added(r.added);
  const SpanStart begin = span_start(r, removed_pairs, first);
  const SpanStart end = span_start(r, removed_pairs, stop);
  std::int64_t gone = begin.gone;
  std::int64_t come = begin.come;
  std::int64_t place = begin.place;
  if (place < 0 || end.place > r.out_nnz) return report(found + kDisorder, 0);
  if (first == 0 && gone + come > 0) return report(found + kDisorder, 0);  // below the first row
  if (stop == r.rows && end.gone + end.come != removed.count + added.count) {
    return report(found + kDisorder, std::max(removed.count, added.count) - 1);
  }
  std::int64_t row = first;
  while (row < stop) {
    const std::int64_t next_gone = gone < end.gone ? removed.rows[gone] : stop;
    const std::int64_t next_come = come < end.come ? added.rows[come] : stop;
    const std::int64_t next = std::min(next_gone, next_come);
    if (next < row || next > stop) {
      return report(found + kDisorder, next == next_gone ? gone : come);
    }
    const std::int64_t shift = come - gone;
    std::int64_t at = r.indptr == nullptr ? 0 : r.indptr[row];
    if (next > row) {
      const std::int64_t from = at;
      at = r.indptr == nullptr ? 0 : r.indptr[next];
      if (place + (at - from) > end.place) return report(found + kDisorder, come);
      if (r.indptr == nullptr) {
        std::fill(r.out_indptr + row, r.out_indptr + next, shift);
      } else {
        for (std::int64_t k = row; k < next; ++k) r.out_indptr[k] = r.indptr[k] + shift;
      }
      copy_run(r.indices + from, at - from, r.out_indices + place);
      place += at - from;
      row = next;
      if (row == stop) break;
    }
    const std::int64_t size = r.indptr == nullptr ? 0 : r.indptr[row + 1] - at;
    const std::int64_t g = leading<false>(removed.rows + gone, end.gone - gone, row);
    const std::int64_t c = leading<false>(added.rows + come, end.come - come, row);
    r.out_indptr[row] = at + shift;
    if (g > size) return report(found + kMissing, gone);
    if (place + size - g + c > end.place) return report(found + kDisorder, come);
    if (c > 0 && (added.columns[come] < 0 || added.columns[come + c - 1] >= num_cols)) {
      return report(found + kDisorder, come);
    }
    const int wrong = rebuild_row(r.indices + at, size, removed.columns + gone, g,
                                  added.columns + come, c, r.out_indices + place);
    if (wrong >= 0) return report(found + wrong, wrong == kMissing ? gone : come);
    place += size - g + c;
    gone += g;
    come += c;
    ++row;
  }
  if (gone != end.gone || come != end.come) report(found + kDisorder, come);
}

// Keys of pairs [begin, end): row and column of each, and one behind them that is above all. False
// where they do not ascend strictly or leave the rows [first, stop) and columns [0, num_cols).
template <class Index>
bool pair_keys(const SentPairs<Index>& pairs, std::int64_t begin, std::int64_t end,
               std::int64_t num_cols, std::int64_t first, std::int64_t stop,
               std::vector<std::uint64_t>& keys) {
  keys.resize(static_cast<std::size_t>(end - begin) + 1);
  bool sound = true;
  std::uint64_t before = 0;
  for (std::int64_t k = begin; k < end; ++k) {
    const auto row = static_cast<std::int64_t>(pairs.rows[k]);
    const auto column = static_cast<std::int64_t>(pairs.columns[k]);
    sound &= row >= first && row < stop && column >= 0 && column < num_cols;
    const std::uint64_t key = static_cast<std::uint64_t>(row) << 32 | static_cast<std::uint32_t>(column);
    sound &= k == begin || key > before;
    keys[static_cast<std::size_t>(k - begin)] = before = key;
  }
  keys.back() = ~std::uint64_t{0};
  return sound;
}

// As rebuild_rows where most rows change or are empty: there a branch for each row, its length and
// its changes is missed as often as not, which costs more than the work. So the span is merged as one
// list of keys, without a branch that depends on them. Returns false, and has reported nothing, where
// anything is wrong; what it wrote lies inside the span.
template <class Index>
bool rebuild_merged(const Rebuild& r, const Pairs& removed_pairs, std::int64_t num_cols,
                    std::int64_t first, std::int64_t stop) {
  const SpanStart begin = span_start(r, removed_pairs, first);
  const SpanStart end = span_start(r, removed_pairs, stop);
  if (begin.gone > end.gone || begin.come > end.come) return false;
  if (begin.place < 0 || end.place > r.out_nnz || begin.place > end.place) return false;
  if (first == 0 && begin.gone + begin.come > 0) return false;
  if (stop == r.rows && (end.gone != removed_pairs.count || end.come != r.added.count)) return false;
  static thread_local std::vector<std::uint64_t> gone, come, old;
  if (!pair_keys(SentPairs<Index>(removed_pairs), begin.gone, end.gone, num_cols, first, stop, gone) ||
      !pair_keys(SentPairs<Index>(r.added), begin.come, end.come, num_cols, first, stop, come)) {
    return false;
  }
  const std::int64_t from = r.indptr[first];
  const std::int64_t size = r.indptr[stop] - from;
  // The row of an entry is the last one that begins at it or before it.
  old.assign(static_cast<std::size_t>(size) + 1, static_cast<std::uint64_t>(first) << 32);
  std::int64_t* offset = r.out_indptr;
  for (std::int64_t row = first; row < stop; ++row) {
    old[static_cast<std::size_t>(r.indptr[row] - from)] = static_cast<std::uint64_t>(row) << 32;
    offset[row] = 0;
  }
  std::uint64_t row = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    std::uint64_t& key = old[static_cast<std::size_t>(i)];
    row = std::max(row, key);
    key = row | static_cast<std::uint32_t>(r.indices[from + i]);
  }
  old.back() = ~std::uint64_t{0};
  const std::uint64_t* x = old.data();
  const std::uint64_t* y = come.data();
  const std::uint64_t* z = gone.data();
  std::int32_t* out = r.out_indices + begin.place;
  const std::int64_t total = end.place - begin.place;
  const std::int64_t steps = size + (end.come - begin.come);
  std::int64_t done = 0;
  bool held = false;
  for (std::int64_t step = 0; step < steps && done < total; ++step) {
    const bool comes = *y < *x;
    held |= *y == *x;
    const bool goes = !comes & (*z == *x);
    out[done] = static_cast<std::int32_t>(static_cast<std::uint32_t>(comes ? *y : *x));
    done += !goes;
    y += comes;
    x += !comes;
    z += goes;
  }
  // What is left of the old entries goes.
  for (; *x != ~std::uint64_t{0} && *z == *x; ++x) ++z;
  const bool used = *x == ~std::uint64_t{0} && *y == ~std::uint64_t{0} && *z == ~std::uint64_t{0};
  if (held || !used || done != total) return false;
  // Changes of a row move the offsets of the rows behind it.
  for (std::int64_t k = 0; k + 1 < static_cast<std::int64_t>(come.size()); ++k) ++offset[come[k] >> 32];
  for (std::int64_t k = 0; k + 1 < static_cast<std::int64_t>(gone.size()); ++k) --offset[gone[k] >> 32];
  std::int64_t shift = begin.come - begin.gone;
  for (std::int64_t k = first; k < stop; ++k) {
    const std::int64_t own = offset[k];
    offset[k] = r.indptr[k] + shift;
    shift += own;
  }
  return true;
}

// Rows [first, stop) of the new matrix by the way that suits them.
template <class Index>
void rebuild_span(const Rebuild& r, const Pairs& removed, std::int64_t num_cols, std::int64_t first,
                  std::int64_t stop, std::int64_t* found) {
  if (r.indptr != nullptr && stop > first) {
    const std::int64_t rows = stop - first;
    const std::int64_t changes = removed.count + r.added.count;
    const std::int64_t entries = r.indptr[r.rows];
    const bool sparse = entries < 2 * r.rows && changes * 4 > r.rows;
    if (rows > 0 && sparse && rebuild_merged<Index>(r, removed, num_cols, first, stop)) return;
  }
  rebuild_rows<Index>(r, removed, num_cols, first, stop, found);
}

}  // namespace dgbench
