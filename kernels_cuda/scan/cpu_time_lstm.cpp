// The elementwise half of the time-aware LSTM (see kernels_cuda/scan/time_lstm.py) in one pass over rows,
// forward and backward, instead of two dozen passes: intervals are short, and passes cost by number.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/check.hpp"
#include "scan/cpu_math.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using scan::Lanes;
using scan::Vec;

constexpr int kKept = 6;  // per column: short, i, f, candidate, o, tanh(c')
constexpr std::int64_t kSerialFloats = 1 << 13;

// Whole vectors in place; at a row's end part of one, the rest of its lanes zero.
template <class T>
Vec<T> read(const T* from, std::int64_t left) {
  if (left >= Lanes<T>::count) return scan::load(from);
  Vec<T> v{};
  std::memcpy(&v, from, static_cast<std::size_t>(left) * sizeof(T));
  return v;
}

template <class T>
void write(T* to, Vec<T> v, std::int64_t left) {
  std::memcpy(to, &v,
              static_cast<std::size_t>(std::min<std::int64_t>(left, Lanes<T>::count)) * sizeof(T));
}

// c, pre [n, H] (W_d c + b_d), gates [n, 4 H] (i, f, candidate, o), fade [n] (g(D)) -> out [2, n, H]
// (c', h') and kept [n, 6 H].
template <class T>
void time_lstm(Matrix<const T> c, Matrix<const T> pre, Matrix<const T> gates, Array<const T> fade,
               Cube<T> out, Matrix<T> kept, int threads) {
  const auto rows = static_cast<std::int64_t>(c.shape(0));
  const auto width = static_cast<std::int64_t>(c.shape(1));
  check_size(pre, c.size(), "pre");
  check_size(gates, 4 * c.size(), "gates");
  check_size(fade, c.shape(0), "fade");
  check_size(out, 2 * c.size(), "out");
  check_size(kept, kKept * c.size(), "kept");
  T* const new_c = out.data();
  T* const new_h = out.data() + rows * width;
  nb::gil_scoped_release release;
#pragma omp parallel for schedule(static) num_threads(std::max(1, threads)) \
    if (rows * width > kSerialFloats)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* const g = gates.data() + 4 * r * width;
    T* const k = kept.data() + kKept * r * width;
    const T lost = T{1} - fade.data()[r];
    for (std::int64_t j = 0; j < width; j += Lanes<T>::count) {
      const std::int64_t left = width - j;
      const Vec<T> part = scan::tanh(read(pre.data() + r * width + j, left));
      const Vec<T> i = scan::sigmoid(read(g + j, left));
      const Vec<T> f = scan::sigmoid(read(g + width + j, left));
      const Vec<T> z = scan::tanh(read(g + 2 * width + j, left));
      const Vec<T> o = scan::sigmoid(read(g + 3 * width + j, left));
      const Vec<T> adjusted = read(c.data() + r * width + j, left) - part * lost;
      const Vec<T> next = f * adjusted + i * z;
      const Vec<T> bent = scan::tanh(next);
      write(new_c + r * width + j, next, left);
      write(new_h + r * width + j, o * bent, left);
      const Vec<T> all[kKept] = {part, i, f, z, o, bent};
      for (int a = 0; a < kKept; ++a) write(k + a * width + j, all[a], left);
    }
  }
}

// From d(c', h') [2, n, H] to d_pre [n, H], d_gates [n, 4 H], d_fade [n] and d_c [n, H].
template <class T>
void time_lstm_backward(Matrix<const T> c, Array<const T> fade, Matrix<const T> kept,
                        Cube<const T> grad, Matrix<T> d_pre, Matrix<T> d_gates, Array<T> d_fade,
                        Matrix<T> d_c, int threads) {
  const auto rows = static_cast<std::int64_t>(c.shape(0));
  const auto width = static_cast<std::int64_t>(c.shape(1));
  check_size(fade, c.shape(0), "fade");
  check_size(kept, kKept * c.size(), "kept");
  check_size(grad, 2 * c.size(), "grad");
  check_size(d_pre, c.size(), "d_pre");
  check_size(d_gates, 4 * c.size(), "d_gates");
  check_size(d_fade, c.shape(0), "d_fade");
  check_size(d_c, c.size(), "d_c");
  const T* const grad_c = grad.data();
  const T* const grad_h = grad.data() + rows * width;
  nb::gil_scoped_release release;
#pragma omp parallel for schedule(static) num_threads(std::max(1, threads)) \
    if (rows * width > kSerialFloats)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* const k = kept.data() + kKept * r * width;
    T* const d = d_gates.data() + 4 * r * width;
    const T lost = T{1} - fade.data()[r];
    Vec<T> faded{};
    for (std::int64_t j = 0; j < width; j += Lanes<T>::count) {
      const std::int64_t left = width - j;
      const std::int64_t at = r * width + j;
      const Vec<T> part = read(k + j, left);
      const Vec<T> i = read(k + width + j, left);
      const Vec<T> f = read(k + 2 * width + j, left);
      const Vec<T> z = read(k + 3 * width + j, left);
      const Vec<T> o = read(k + 4 * width + j, left);
      const Vec<T> bent = read(k + 5 * width + j, left);
      const Vec<T> dh = read(grad_h + at, left);
      const Vec<T> dc = read(grad_c + at, left) + dh * o * (T{1} - bent * bent);
      const Vec<T> adjusted = read(c.data() + at, left) - part * lost;
      const Vec<T> d_adjusted = dc * f;
      write(d + j, dc * z * i * (T{1} - i), left);
      write(d + width + j, dc * adjusted * f * (T{1} - f), left);
      write(d + 2 * width + j, dc * i * (T{1} - z * z), left);
      write(d + 3 * width + j, dh * bent * o * (T{1} - o), left);
      write(d_pre.data() + at, d_adjusted * -lost * (T{1} - part * part), left);
      write(d_c.data() + at, d_adjusted, left);
      faded += d_adjusted * part;
    }
    T sum = 0;
    for (int lane = 0; lane < Lanes<T>::count; ++lane) sum += faded[lane];
    d_fade.data()[r] = sum;
  }
}

template <class T>
void bind_of(nb::module_& m) {
  m.def("time_lstm", &time_lstm<T>, "c"_a.noconvert(), "pre"_a.noconvert(), "gates"_a.noconvert(),
        "fade"_a.noconvert(), "out"_a.noconvert(), "kept"_a.noconvert(), "threads"_a);
  m.def("time_lstm_backward", &time_lstm_backward<T>, "c"_a.noconvert(), "fade"_a.noconvert(),
        "kept"_a.noconvert(), "grad"_a.noconvert(), "d_pre"_a.noconvert(), "d_gates"_a.noconvert(),
        "d_fade"_a.noconvert(), "d_c"_a.noconvert(), "threads"_a);
}

}  // namespace

void bind_time_lstm(nb::module_& m) {
  bind_of<float>(m);
  bind_of<double>(m);
}

}  // namespace dgbench
