// Memory that a device reads a temporal graph from, as plain functions; 0 or the runtime's error.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"
#include "common/search.hpp"

namespace dgbench {

// Words that arrived in one piece, put to where each patch of them belongs.
struct ScatterWords {
  const uint32_t* words;
  const int64_t* starts;  // [patches + 1]: first word of each patch
  const uint64_t* to;     // [patches]: address of each on the device
  int64_t patches;

  DGB_HD void operator()(int64_t i) const {
    const int64_t patch = upper_bound(starts, patches + 1, i) - 1;
    reinterpret_cast<uint32_t*>(to[patch])[i - starts[patch]] = words[i];
  }
};

extern "C" {
int dgb_device_allocate(void** to, uint64_t bytes);
int dgb_managed_allocate(void** to, uint64_t bytes);
int dgb_device_free(void* at);
// Page-locks memory of the host, so that the device reads it under the same address.
int dgb_pin(void* at, uint64_t bytes);
int dgb_unpin(void* at);
int dgb_same_addresses(int* yes);  // whether this device can
// Of the host's memory, `from` to its end lies in one page-locked range or in none: the runtime
// refuses a copy that begins in one range and ends in another.
int dgb_copy_in(void* to, const void* from, uint64_t bytes, void* stream);
int dgb_wait(void* stream);  // until all of it is done
int dgb_scatter_words(const ScatterWords* functor, int64_t words, void* stream);
}

}  // namespace dgbench
