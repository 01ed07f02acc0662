// Keys of 32 items at once (item_key of weighted/functors.hpp, to the bit), and the places
// of those below a bound. On 256- or 512-bit registers; one by one where there are none.
#pragma once

#include <cstdint>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

#include "weighted/functors.hpp"

namespace dgbench {

constexpr int kGroup = 32;  // items of a group; a group's random numbers are 8 blocks

struct KeyStream {
  uint64_t seed;
  uint64_t stream;
};

// Whether a weight needs more range than these keys have: then, and for NaN, `odd` is set.
template <class W>
bool is_odd(W weight) {
  const auto w = static_cast<float>(weight);
  return !(w >= kMinWeight && w <= kMaxWeight) && weight != W(0);
}

// Keys of the items first .. first + count - 1, count <= kGroup; first is a multiple of 4.
template <class W>
void keys_one_by_one(KeyStream s, int64_t first, int count, const W* weights, float* keys,
                     bool& odd) {
  Draws block{};
  for (int j = 0; j < count; ++j) {
    const auto item = static_cast<uint64_t>(first + j);
    if (j % 4 == 0) block = key_block(s.seed, s.stream, item / 4, false);
    const uint32_t bits = key_word(block, item);
    const float e =
        is_coarse(bits) ? item_exponential(s.seed, s.stream, item) : exponential_of(bits);
    const W weight = weights[first + j];
    odd |= is_odd(weight);
    keys[j] = key_of(e, static_cast<float>(weight));
  }
}

// For each byte, the numbers of its bits, lowest first.
struct BitPlaces {
  alignas(64) uint64_t places[256];
  constexpr BitPlaces() : places() {
    for (int byte = 0; byte < 256; ++byte) {
      int found = 0;
      for (int bit = 0; bit < 8; ++bit) {
        if (byte >> bit & 1) places[byte] |= static_cast<uint64_t>(bit) << 8 * found++;
      }
    }
  }
};
inline constexpr BitPlaces kBitPlaces{};

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define DGBENCH_KEY_LANES 1

struct Lanes {
  static constexpr int count = 16;
  using F = __m512;
  using U = __m512i;
  using Mask = __mmask16;

  static U set(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static U wide(uint64_t x) { return _mm512_set1_epi64(static_cast<int64_t>(x)); }
  static U ramp() { return _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7); }
  static U add_wide(U a, U b) { return _mm512_add_epi64(a, b); }
  static U multiply_low(U a, U b) { return _mm512_mul_epu32(a, b); }
  static U high(U a) { return _mm512_srli_epi64(a, 32); }
  static U exclusive(U a, U b) { return _mm512_xor_si512(a, b); }
  // Words 0 .. 3 of each block, in the low halves of four registers, to items in order.
  static void in_order(U w0, U w1, U w2, U w3, U out[2]) {
    const U a = _mm512_mask_blend_epi32(0xAAAA, w0, _mm512_slli_epi64(w1, 32));
    const U b = _mm512_mask_blend_epi32(0xAAAA, w2, _mm512_slli_epi64(w3, 32));
    out[0] = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), b);
    out[1] = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), b);
  }
  static U shift_right_1(U a) { return _mm512_srli_epi32(a, 1); }
  static U exponent(U a) { return _mm512_srai_epi32(a, 23); }
  static U to_exponent(U a) { return _mm512_slli_epi32(a, 23); }
  static U sub(U a, U b) { return _mm512_sub_epi32(a, b); }
  static Mask equal(U a, U b) { return _mm512_cmpeq_epi32_mask(a, b); }
  static Mask below(U a, U b) { return _mm512_cmplt_epi32_mask(a, b); }
  static F number(U a) { return _mm512_cvtepi32_ps(a); }
  static U bits(F a) { return _mm512_castps_si512(a); }
  static F from_bits(U a) { return _mm512_castsi512_ps(a); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F fma_minus(F a, F b, F c) { return _mm512_fmsub_ps(a, b, c); }
  static F choose(Mask m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }
  static unsigned less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static unsigned at_most(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
  static U least(U a, U b) { return _mm512_min_epu32(a, b); }
  static unsigned between(F low, F a, F high) { return at_most(low, a) & at_most(a, high); }
  static unsigned any(Mask m) { return m; }
  static void store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load(const double* p) { return join(_mm512_loadu_pd(p), _mm512_loadu_pd(p + 8)); }
  static F load(const int64_t* p) {
    return join(_mm512_cvtepi64_pd(_mm512_loadu_si512(p)),
                _mm512_cvtepi64_pd(_mm512_loadu_si512(p + 8)));
  }
  static unsigned nonzero(const float* p) {
    return _mm512_cmp_ps_mask(_mm512_loadu_ps(p), _mm512_setzero_ps(), _CMP_NEQ_UQ);
  }
  static unsigned nonzero(const double* p) {
    const __m512d zero = _mm512_setzero_pd();
    return _mm512_cmp_pd_mask(_mm512_loadu_pd(p), zero, _CMP_NEQ_UQ) |
           _mm512_cmp_pd_mask(_mm512_loadu_pd(p + 8), zero, _CMP_NEQ_UQ) << 8;
  }
  static unsigned nonzero(const int64_t* p) {
    const U a = _mm512_loadu_si512(p);
    const U b = _mm512_loadu_si512(p + 8);
    return _mm512_test_epi64_mask(a, a) | _mm512_test_epi64_mask(b, b) << 8;
  }
  static F join(__m512d a, __m512d b) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(a)), _mm512_cvtpd_ps(b), 1);
  }
  // The numbers of a byte's bits from `base` on, and lanes with a bit, next to each other: 8
  // places, and all lanes, are written all the same.
  static U plus(uint32_t base, const uint32_t* p) {
    return _mm512_add_epi32(set(base), _mm512_loadu_si512(p));
  }
  static void write_places(int64_t* p, unsigned byte, int64_t base) {
    const U all = _mm512_add_epi64(_mm512_set1_epi64(base), ramp());
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi64(static_cast<__mmask8>(byte), all));
  }
  static void pack(float* p, unsigned mask, F a) {
    _mm512_storeu_ps(p, _mm512_maskz_compress_ps(static_cast<Mask>(mask), a));
  }
  static void pack(uint32_t* p, unsigned mask, U a) {
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(static_cast<Mask>(mask), a));
  }
};

#elif defined(__AVX2__) && defined(__FMA__)
#define DGBENCH_KEY_LANES 1

struct Lanes {
  static constexpr int count = 8;
  using F = __m256;
  using U = __m256i;
  using Mask = __m256i;

  static U set(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static U wide(uint64_t x) { return _mm256_set1_epi64x(static_cast<int64_t>(x)); }
  static U ramp() { return _mm256_setr_epi64x(0, 1, 2, 3); }
  static U add_wide(U a, U b) { return _mm256_add_epi64(a, b); }
  static U multiply_low(U a, U b) { return _mm256_mul_epu32(a, b); }
  static U high(U a) { return _mm256_srli_epi64(a, 32); }
  static U exclusive(U a, U b) { return _mm256_xor_si256(a, b); }
  static void in_order(U w0, U w1, U w2, U w3, U out[2]) {
    const U a = _mm256_blend_epi32(w0, _mm256_slli_epi64(w1, 32), 0xAA);
    const U b = _mm256_blend_epi32(w2, _mm256_slli_epi64(w3, 32), 0xAA);
    const U even = _mm256_unpacklo_epi64(a, b);  // blocks 0 and 2
    const U odd = _mm256_unpackhi_epi64(a, b);   // blocks 1 and 3
    out[0] = _mm256_permute2x128_si256(even, odd, 0x20);
    out[1] = _mm256_permute2x128_si256(even, odd, 0x31);
  }
  static U shift_right_1(U a) { return _mm256_srli_epi32(a, 1); }
  static U exponent(U a) { return _mm256_srai_epi32(a, 23); }
  static U to_exponent(U a) { return _mm256_slli_epi32(a, 23); }
  static U sub(U a, U b) { return _mm256_sub_epi32(a, b); }
  static Mask equal(U a, U b) { return _mm256_cmpeq_epi32(a, b); }
  static Mask below(U a, U b) { return _mm256_cmpgt_epi32(b, a); }
  static F number(U a) { return _mm256_cvtepi32_ps(a); }
  static U bits(F a) { return _mm256_castps_si256(a); }
  static F from_bits(U a) { return _mm256_castsi256_ps(a); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F fma_minus(F a, F b, F c) { return _mm256_fmsub_ps(a, b, c); }
  static F choose(Mask m, F yes, F no) {
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(m));
  }
  static unsigned less(F a, F b) { return mask(_mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
  static unsigned at_most(F a, F b) { return mask(_mm256_cmp_ps(a, b, _CMP_LE_OQ)); }
  static U least(U a, U b) { return _mm256_min_epu32(a, b); }
  static unsigned between(F low, F a, F high) {
    return mask(_mm256_and_ps(_mm256_cmp_ps(low, a, _CMP_LE_OQ),
                              _mm256_cmp_ps(a, high, _CMP_LE_OQ)));
  }
  static unsigned any(Mask m) { return mask(_mm256_castsi256_ps(m)); }
  static unsigned mask(F m) { return static_cast<unsigned>(_mm256_movemask_ps(m)); }
  static void store(float* p, F a) { _mm256_storeu_ps(p, a); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static F load(const double* p) { return join(_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)); }
  static F load(const int64_t* p) {
    return join(number_of_wide(_mm256_loadu_si256(reinterpret_cast<const U*>(p))),
                number_of_wide(_mm256_loadu_si256(reinterpret_cast<const U*>(p + 4))));
  }
  static unsigned nonzero(const float* p) {
    return mask(_mm256_cmp_ps(_mm256_loadu_ps(p), _mm256_setzero_ps(), _CMP_NEQ_UQ));
  }
  static unsigned nonzero(const double* p) {
    const __m256d zero = _mm256_setzero_pd();
    const __m256d a = _mm256_cmp_pd(_mm256_loadu_pd(p), zero, _CMP_NEQ_UQ);
    const __m256d b = _mm256_cmp_pd(_mm256_loadu_pd(p + 4), zero, _CMP_NEQ_UQ);
    return static_cast<unsigned>(_mm256_movemask_pd(a) | _mm256_movemask_pd(b) << 4);
  }
  static unsigned nonzero(const int64_t* p) {
    const U zero = _mm256_setzero_si256();
    const U a = _mm256_cmpeq_epi64(_mm256_loadu_si256(reinterpret_cast<const U*>(p)), zero);
    const U b = _mm256_cmpeq_epi64(_mm256_loadu_si256(reinterpret_cast<const U*>(p + 4)), zero);
    return 0xffu ^ static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(a)) |
                                         _mm256_movemask_pd(_mm256_castsi256_pd(b)) << 4);
  }
  static F join(__m256d a, __m256d b) {
    return _mm256_set_m128(_mm256_cvtpd_ps(b), _mm256_cvtpd_ps(a));
  }
  // Halves of 32 bits in the last places of 2^84 (signed, from the middle of its range) and of
  // 2^52.
  static __m256d number_of_wide(U x) {
    const U low = _mm256_blend_epi32(_mm256_set1_epi64x(0x4330000000000000), x, 0x55);
    const U bias = _mm256_set1_epi64x(0x4530000080000000);
    const U top = _mm256_xor_si256(_mm256_srli_epi64(x, 32), bias);
    const __m256d rest = _mm256_sub_pd(_mm256_castsi256_pd(top),
                                       _mm256_castsi256_pd(_mm256_set1_epi64x(0x4530000080100000)));
    return _mm256_add_pd(rest, _mm256_castsi256_pd(low));
  }
  static U plus(uint32_t base, const uint32_t* p) {
    return _mm256_add_epi32(set(base), _mm256_load_si256(reinterpret_cast<const U*>(p)));
  }
  static void write_places(int64_t* p, unsigned byte, int64_t base) {
    const __m128i places = _mm_cvtsi64_si128(static_cast<int64_t>(kBitPlaces.places[byte]));
    const U from = _mm256_set1_epi64x(base);
    const U low = _mm256_add_epi64(from, _mm256_cvtepu8_epi64(places));
    const U high = _mm256_add_epi64(from, _mm256_cvtepu8_epi64(_mm_srli_si128(places, 4)));
    _mm256_storeu_si256(reinterpret_cast<U*>(p), low);
    _mm256_storeu_si256(reinterpret_cast<U*>(p + 4), high);
  }
  static U bits_of(unsigned byte) {
    const auto places = static_cast<int64_t>(kBitPlaces.places[byte]);
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(places));
  }
  static void pack(float* p, unsigned mask, F a) {
    const U from = bits_of(mask);
    _mm256_storeu_ps(p, _mm256_permutevar8x32_ps(a, from));
  }
  static void pack(uint32_t* p, unsigned mask, U a) {
    const U from = bits_of(mask);
    _mm256_storeu_si256(reinterpret_cast<U*>(p), _mm256_permutevar8x32_epi32(a, from));
  }
};

#endif

}  // namespace dgbench
