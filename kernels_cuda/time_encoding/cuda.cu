// Encodings of ages on the device: a thread a number.
#include "common/launch.cuh"
#include "time_encoding/cuda_launchers.h"

namespace dgbench {

extern "C" {

int dgb_encode_ages_float(const EncodeAges<float>* args, void* stream) {
  return for_each(args->count * args->width, *args, stream);
}

int dgb_encode_ages_double(const EncodeAges<double>* args, void* stream) {
  return for_each(args->count * args->width, *args, stream);
}

}  // extern "C"

}  // namespace dgbench
