// Encodings of ages as plain functions; see common/launchers.h for what holds of all of them.
#pragma once

#include "time_encoding/functors.hpp"

namespace dgbench {

extern "C" {
int dgb_encode_ages_float(const EncodeAges<float>* args, void* stream);
int dgb_encode_ages_double(const EncodeAges<double>* args, void* stream);
}

}  // namespace dgbench
