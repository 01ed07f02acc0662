// The device operators as plain functions: pointers, sizes and a stream (a cudaStream_t), no Python.
// Every operator declares its own in cuda_launchers.h; here are those that belong to none.
//
// Each returns 0 or a cudaError_t of the launch; dgb_error_text explains it. None waits for the
// device, allocates, or touches the default stream. Arrays are float32, int32 ids and int64 offsets;
// what the arguments mean is said beside the CPU functions of the same names.
#pragma once

namespace dgbench {

extern "C" {
const char* dgb_error_text(int code);
const char* dgb_architectures();
// Launches an empty kernel and waits; the answer says whether this build runs on this device.
int dgb_probe();
// The device that launches of this thread go to.
int dgb_current_device(int* number);
int dgb_use_device(int number);
}

}  // namespace dgbench
