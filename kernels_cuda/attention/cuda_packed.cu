// Attention inside packed sequences: one thread per query, or per key; see
// attention/packed_functors.hpp.
#include "attention/cuda_launchers.h"
#include "attention/packed_functors.hpp"
#include "common/launch.cuh"

namespace dgbench {
namespace {

constexpr int kMaxWidth = 64;  // a query, what it sums and its derivative fill the registers

bool fours(const StepRows& x) {
  return aligned(x.data, 16) && x.step % 4 == 0 && x.row % 4 == 0;
}

// Calls body with the smallest width that holds a head's.
template <bool FOURS, class Body>
int by_width(int width, const Body& body) {
  if (width <= 8) return body.template run<8, FOURS>();
  if (width <= 16) return body.template run<16, FOURS>();
  if (width <= 32) return body.template run<32, FOURS>();
  return body.template run<kMaxWidth, FOURS>();
}

struct Forward {
  const PackedAttention& a;
  int64_t wanted;
  void* stream;
  template <int W, bool FOURS>
  int run() const {
    return for_each(wanted * a.heads, PackedForward<W, FOURS>{a}, stream);
  }
};

struct Backward {
  const PackedAttention& a;
  int64_t wanted, steps;
  float* stats;
  void* stream;
  template <int W, bool FOURS>
  int run() const {
    const int status = for_each(wanted * a.heads, PackedQueryGrad<W, FOURS>{a, stats}, stream);
    if (status != 0) return status;
    return for_each(steps * a.rows * a.heads, PackedKeyGrad<W, FOURS>{a, stats, steps}, stream);
  }
};

}  // namespace

extern "C" {

int dgb_packed_attention_width() { return kMaxWidth; }

int dgb_packed_attention(const PackedAttention* args, int64_t wanted, void* stream) {
  const bool whole = args->width % 4 == 0 && fours(args->q) && fours(args->k) && fours(args->v);
  const Forward forward{*args, wanted, stream};
  return whole ? by_width<true>(args->width, forward) : by_width<false>(args->width, forward);
}

int dgb_packed_attention_backward(const PackedAttention* args, int64_t wanted, int64_t steps,
                                  float* stats, void* stream) {
  const bool whole = args->width % 4 == 0 && fours(args->q) && fours(args->k) && fours(args->v) &&
                     fours(args->grad);
  const Backward backward{*args, wanted, steps, stats, stream};
  return whole ? by_width<true>(args->width, backward) : by_width<false>(args->width, backward);
}

}  // extern "C"

}  // namespace dgbench
