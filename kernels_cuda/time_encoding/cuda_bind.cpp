// Binding of encodings of ages; the arguments are those of the CPU module, with the stream at the end.
#include "common/operator_definition.hpp"
#include "time_encoding/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

int launch(const EncodeAges<float>& args, void* stream) {
  return dgb_encode_ages_float(&args, stream);
}
int launch(const EncodeAges<double>& args, void* stream) {
  return dgb_encode_ages_double(&args, stream);
}

template <class T>
void encode_ages(DeviceArray<const double> ages, DeviceArray<const T> weight,
                 DeviceArray<const T> bias, MatrixOn<T, Device> out, bool sines,
                 std::uintptr_t stream) {
  check_size(bias, weight.size(), "bias");
  check_size(out, ages.size() * weight.size(), "out");
  const EncodeAges<T> args{ages.data(), weight.data(), bias.data(), out.data(),
                           static_cast<int64_t>(ages.size()), static_cast<int64_t>(weight.size()),
                           sines};
  check_launch(launch(args, stream_of(stream)), "encode_ages");
}

template <class T>
void bind_of(nb::module_& m) {
  add_operator(m, "encode_ages", &encode_ages<T>, "ages"_a.noconvert(), "weight"_a.noconvert(),
               "bias"_a.noconvert(), "out"_a.noconvert(), "sines"_a, "stream"_a);
}

}  // namespace

void bind_time_encoding(nb::module_& m) {
  bind_of<float>(m);
  bind_of<double>(m);
}

}  // namespace dgbench
