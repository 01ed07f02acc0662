// A draw of k of n without replacement by keys: the k smallest of -ln(u_i) / w_i (Efraimidis and
// Spirakis 2006, as exponential clocks). Two passes: one makes the keys and puts them below, in or
// above a narrow band that a sample of keys says the k-th lies in, the other writes down what was
// taken.
#pragma once

#include <cstdint>

namespace dgbench {

struct KeyDraw {
  bool odd = false;        // a weight is NaN, negative or out of the keys' range; nothing was drawn
  int64_t positive = -1;   // items with weight, where there are fewer than k; nothing was drawn
  int64_t keys_made = 0;   // with the sample, and with a second pass where the band missed
};

// Writes the k places to `out`, rising. Ties by place. The same for any number of threads, and on
// any machine. n < 2^32.
template <class W>
KeyDraw draw_by_keys(const W* weights, int64_t n, int64_t k, uint64_t seed, uint64_t stream,
                     int threads, int64_t* out);

// The same for weights of any size, in double precision and with less hurry; what is not above zero
// is never taken. Its keys are logarithms: ln(-ln u) - ln w.
template <class W>
KeyDraw draw_by_log_keys(const W* weights, int64_t n, int64_t k, uint64_t seed, uint64_t stream,
                         int64_t* out);

}  // namespace dgbench
