// A driver of the kernels without Python: cases by name, arrays of exact size, results compared on
// the host. Meant to run under compute-sanitizer, which sees every access past an array's end.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "temporal_store/cuda_memory.h"

namespace dgbench::driver {

// Ends the process where `status` is an error: after one, no other result means anything.
void succeed(int status, const char* call);

// Counts a wrong result of the case that runs, and says the first ones.
void expect(bool right, const std::string& what);

// Launches on the default stream.
#define RUN(call) ::dgbench::driver::succeed((call), #call)

struct Case {
  const char* name;
  void (*run)();
  const Case* next;
  Case(const char* name, void (*run)());
};
#define DRIVER_CASE(name)                                       \
  static void run_##name();                                     \
  static const ::dgbench::driver::Case case_##name(#name, run_##name); \
  static void run_##name()

// Array on the device, of exactly as many bytes as it has elements; none where it is empty.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size) : size_(size) {
    void* at = nullptr;
    if (size > 0) RUN(dgb_device_allocate(&at, size * sizeof(T)));
    data_ = static_cast<T*>(at);
  }
  DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    if (size_ == 0) return;
    RUN(dgb_copy_in(data_, values.data(), size_ * sizeof(T), nullptr));
    RUN(dgb_wait(nullptr));
  }
  DeviceArray(std::size_t size, T value) : DeviceArray(std::vector<T>(size, value)) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    if (data_ != nullptr) RUN(dgb_device_free(data_));
  }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::vector<T> host() const {
    RUN(dgb_wait(nullptr));
    std::vector<T> values(size_);
    if (size_ == 0) return values;
    RUN(dgb_copy_out(values.data(), data_, size_ * sizeof(T), nullptr));
    RUN(dgb_wait(nullptr));
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

template <class T>
void expect_equal(const std::vector<T>& found, const std::vector<T>& right,
                  const std::string& what) {
  expect(found.size() == right.size(), what + ": length");
  for (std::size_t i = 0; i < found.size() && i < right.size(); ++i) {
    if (found[i] == right[i]) continue;
    expect(false, what + "[" + std::to_string(i) + "] is " + std::to_string(found[i]) +
                      ", right is " + std::to_string(right[i]));
    return;
  }
}

// Within `tolerance` times 1 + |right|; a NaN is never right.
template <class T>
void expect_close(const std::vector<T>& found, const std::vector<double>& right,
                  const std::string& what, double tolerance = 1e-4) {
  expect(found.size() == right.size(), what + ": length");
  for (std::size_t i = 0; i < found.size() && i < right.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(found[i]) - right[i]);
    if (difference <= tolerance * (1 + std::fabs(right[i]))) continue;
    expect(false, what + "[" + std::to_string(i) + "] is " + std::to_string(found[i]) +
                      ", right is " + std::to_string(right[i]));
    return;
  }
}

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  double real() { return static_cast<double>(engine_() >> 11) * 0x1p-52 - 1.0; }  // [-1, 1)
  template <class T = float>
  std::vector<T> reals(std::size_t n) {
    std::vector<T> values(n);
    for (T& value : values) value = static_cast<T>(real());
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

struct HostCsr {
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices;
  int64_t columns = 0;

  int64_t rows() const { return static_cast<int64_t>(indptr.size()) - 1; }
  int64_t nnz() const { return static_cast<int64_t>(indices.size()); }
};

// Rows of these lengths with ascending columns.
HostCsr random_csr(const std::vector<int64_t>& lengths, int64_t columns, Random& random);

// Offsets of a list of lengths: one more than there are lengths, from 0 to their sum.
template <class T>
std::vector<int64_t> offsets_of(const std::vector<T>& lengths) {
  std::vector<int64_t> offsets(1, 0);
  for (const T length : lengths) offsets.push_back(offsets.back() + static_cast<int64_t>(length));
  return offsets;
}

// No row, one, only empty ones, and hubs of more entries than a block of threads or a segment.
inline const std::vector<std::vector<int64_t>> kRowLengths = {
    {}, {5}, {0, 0, 0}, {0, 3, 1300, 1, 129, 128, 0, 257, 2, 0}};
constexpr int64_t kColumns = 1400;
constexpr int kWidths[] = {1, 3, 32, 100};

inline std::string named(const char* what, std::initializer_list<int64_t> sizes) {
  std::string name = what;
  for (const int64_t size : sizes) name += " " + std::to_string(size);
  return name;
}

}  // namespace dgbench::driver
