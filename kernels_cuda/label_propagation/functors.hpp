// Rules of weighted label propagation that every body shares: integer votes, so that no order of
// adding can change a result, and total orders, so that no two threads can choose differently.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

// A vertex's hash in one sweep; its low bits are the round in which it votes.
DGB_HD std::uint32_t label_hash(std::uint32_t vertex, std::uint32_t salt) {
  std::uint32_t x = vertex ^ salt;
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x *= 0xC2B2AE35u;
  x ^= x >> 16;
  return x;
}

struct Vote {
  std::int64_t weight;
  std::int32_t label;
};

// More weight wins, then the smaller label.
DGB_HD bool better(const Vote& a, const Vote& b) {
  return a.weight > b.weight || (a.weight == b.weight && a.label < b.label);
}

// A wish to join `label`; the larger `gain` (weight there less weight at home) is served first.
struct Wish {
  std::int64_t gain;
  std::int32_t label;
  std::int32_t vertex;
};

// Order of service: by label, inside a label by gain and then by vertex.
DGB_HD bool served_before(const Wish& a, const Wish& b) {
  if (a.label != b.label) return a.label < b.label;
  if (a.gain != b.gain) return a.gain > b.gain;
  return a.vertex < b.vertex;
}

DGB_HD bool has_room(std::int64_t load, std::int64_t weight, std::int64_t cap) {
  return load <= cap - weight;
}

}  // namespace dgbench
