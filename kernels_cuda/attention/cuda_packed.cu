// Attention inside packed sequences in the manner of flash attention, forward and backward, without
// atomics: tiles of partners in shared memory, an online softmax over them, one writer per result.
//
// An owner is a query (forward, derivatives to queries) or a key (derivatives to keys and values);
// its partners are the keys it sees, or the queries that see it. A group of L lanes holds Q
// neighbouring owners, each lane E columns of a head; a warp holds 32 / L groups. It numbers the
// partners of its owners' sequences from 0 on, each sequence once and without gaps, so that a tile
// spans short sequences, of several rows too, and goes through them tile by tile. Warps share
// nothing and wait for none.
//
// A partner outside an owner's range is left out of its sums: not even a NaN of another sequence
// reaches them. The file is long as forward and both gradients share owners, tiles and the walk
// over them, which nothing else uses.
#include <climits>
#include <cmath>
#include <initializer_list>

#include "attention/cuda_launchers.h"
#include "common/launch.cuh"
#include "common/search.hpp"

namespace dgbench {
namespace {

constexpr int kMaxWidth = 64;
constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kTileFloats = 512;  // of a warp's tile of keys, and as many of values
constexpr unsigned kWarp = 0xFFFFFFFFu;

template <int LANES, int COLUMNS, int OWNERS>
struct Shape {
  static constexpr int L = LANES, E = COLUMNS, Q = OWNERS;
  static constexpr int width = L * E;        // of a row in a tile
  static constexpr int owners = 32 / L * Q;  // of a warp
  static constexpr int tile = kTileFloats / width < 32 ? kTileFloats / width : 32;  // rows
  static_assert(owners <= 32 && E % 4 == 0);
};

struct Owner {
  int64_t number;    // of its results, -1 for none
  int64_t sequence;  // -1 for none
  int64_t first;     // the sequence's first wanted step, counted over all sequences
  int row, step;     // where it stands
  int begin;         // the sequence's first step
  int base;          // the sequence's first partner, by the warp's numbers (below 2^31)
  int low, high;     // the partners [low, high), counted from `base` on
};

template <class S>
struct alignas(16) Tile {
  float first[S::tile * S::width], second[S::tile * S::width];
  int row[S::tile], step[S::tile];
  float stats[S::tile][3];
  Owner owner[S::owners];
};

// Owners are queries; their partners are keys. `find` returns how many the sequence has in all.
struct Queries {
  int64_t count;
  __device__ int find(const PackedAttention& a, int64_t number, Owner& owner) const {
    const int64_t s = upper_bound(a.first, a.sequences + 1, number) - 1;
    const int length = a.sequence[3 * s + 2], step = a.wanted[number];
    owner.sequence = s;
    owner.row = a.sequence[3 * s];
    owner.begin = a.sequence[3 * s + 1];
    owner.step = owner.begin + step;
    owner.high = a.causal ? step + 1 : length;
    return length;
  }
  __device__ int step_of(const PackedAttention&, const Owner& owner, int partner) const {
    return owner.begin + partner;
  }
};

// Owners are keys, all steps of every row; their partners are wanted queries.
struct Keys {
  int64_t count, steps;
  __device__ int find(const PackedAttention& a, int64_t number, Owner& owner) const {
    const int64_t row = number / steps, step = number % steps;
    owner.row = static_cast<int>(row);
    owner.step = static_cast<int>(step);
    // The last sequence that begins at this place or before it; they stand by row, then by step.
    int64_t low = 0, high = a.sequences;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const int32_t* other = a.sequence + 3 * middle;
      if (other[0] < row || (other[0] == row && other[1] <= step)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const int64_t s = low - 1;
    if (s < 0) return 0;
    const int32_t* mine = a.sequence + 3 * s;
    if (mine[0] != row || step >= mine[1] + mine[2]) return 0;
    const int64_t first = a.first[s];
    const auto queries = static_cast<int>(a.first[s + 1] - first);
    owner.sequence = s;
    owner.first = first;
    owner.begin = mine[1];
    if (a.causal) {
      const auto before = static_cast<int32_t>(step - mine[1] - 1);
      owner.low = static_cast<int>(upper_bound(a.wanted + first, queries, before));
    }
    owner.high = queries;
    return queries;
  }
  __device__ int step_of(const PackedAttention& a, const Owner& owner, int partner) const {
    return owner.begin + a.wanted[owner.first + partner];
  }
};

// Lane i finds the warp's owner number i. Returns how many partners the warp numbers.
template <class S, class Owners>
__device__ int find_owners(const PackedAttention& a, const Owners& owners, int lane,
                           Tile<S>& tile) {
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int64_t number = warp * S::owners + lane;
  Owner mine{-1, -1, 0, 0, 0, 0, 0, 0, 0};
  int count = 0;
  if (lane < S::owners && number < owners.count) {
    mine.number = number;
    count = owners.find(a, number, mine);
  }
  const int64_t before = __shfl_up_sync(kWarp, mine.sequence, 1);
  int end = lane == 0 || before != mine.sequence ? count : 0;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(kWarp, end, distance);
    if (lane >= distance) end += other;
  }
  mine.base = end - count;
  if (lane < S::owners) tile.owner[lane] = mine;
  const int total = __shfl_sync(kWarp, end, 31);
  __syncwarp();
  return total;
}

// The columns that a lane holds of a row: four neighbouring ones at every 4 L-th.
template <class S>
__device__ __forceinline__ int column_of(int lane, int number) {
  return (number * S::L + lane % S::L) * 4;
}

__device__ __forceinline__ void load_four(const float* row, int column, int width, bool fours,
                                          float (&to)[4]) {
  if (fours && column < width) {
    load_floats<4>(row + column, to);
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) to[e] = column + e < width ? __ldg(row + column + e) : 0.0f;
}

__device__ __forceinline__ const float* row_of(const StepRows& x, int step, int row) {
  return x.data + step * x.step + row * x.row;
}

template <class S>
__device__ __forceinline__ void load_own(const StepRows& x, const Owner& owner, int64_t head_column,
                                         int width, bool fours, int lane, float (&to)[S::E]) {
#pragma unroll
  for (int n = 0; n < S::E / 4; ++n) {
    float some[4] = {};
    if (owner.number >= 0) {
      load_four(row_of(x, owner.step, owner.row) + head_column, column_of<S>(lane, n), width, fours,
                some);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) to[4 * n + e] = some[e];
  }
}

template <class S>
__device__ __forceinline__ void store_own(const PackedAttention& a, const Owner& owner,
                                          int64_t head_column, bool fours, int lane, float factor,
                                          const float (&from)[S::E], float* dense) {
  if (owner.number < 0) return;
  float* row = dense + (owner.step * a.rows + owner.row) * a.heads * a.width + head_column;
#pragma unroll
  for (int n = 0; n < S::E / 4; ++n) {
    const int column = column_of<S>(lane, n);
    float some[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) some[e] = from[4 * n + e] * factor;
    if (fours && column < a.width) {
      store_floats<4>(row + column, some);
      continue;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (column + e < a.width) row[column + e] = some[e];
    }
  }
}

template <class S>
__device__ __forceinline__ void read_row(const float* tile, int row, int lane, float (&to)[S::E]) {
#pragma unroll
  for (int n = 0; n < S::E / 4; ++n) {
    const float4 some =
        *reinterpret_cast<const float4*>(tile + row * S::width + column_of<S>(lane, n));
    to[4 * n] = some.x;
    to[4 * n + 1] = some.y;
    to[4 * n + 2] = some.z;
    to[4 * n + 3] = some.w;
  }
}

// The product of two rows, summed over the lanes of a group; all of them get it.
template <class S>
__device__ __forceinline__ float dot(const float (&a)[S::E], const float (&b)[S::E],
                                     unsigned members) {
  float sum[2] = {};
#pragma unroll
  for (int e = 0; e < S::E; ++e) sum[e % 2] += a[e] * b[e];
  float all = sum[0] + sum[1];
#pragma unroll
  for (int distance = S::L / 2; distance > 0; distance /= 2) {
    all += __shfl_xor_sync(members, all, distance);
  }
  return all;
}

template <int E>
__device__ __forceinline__ void add_row(float weight, const float (&row)[E], float (&to)[E]) {
#pragma unroll
  for (int e = 0; e < E; ++e) to[e] += weight * row[e];
}

template <int E>
__device__ __forceinline__ void scale_row(float factor, float (&row)[E]) {
#pragma unroll
  for (int e = 0; e < E; ++e) row[e] *= factor;
}

// The partners of a group's owners.
template <class S>
struct Ranges {
  int low[S::Q];
  unsigned count[S::Q];
  int begin = INT_MAX, end = 0;  // of all

  __device__ explicit Ranges(const Owner* owners) {
#pragma unroll
    for (int u = 0; u < S::Q; ++u) {
      const Owner& owner = owners[u];
      low[u] = owner.base + owner.low;
      count[u] = static_cast<unsigned>(owner.high - owner.low);
      if (count[u] == 0) continue;
      begin = min(begin, low[u]);
      end = max(end, owner.base + owner.high);
    }
  }
  __device__ bool has(int owner, int partner) const {
    return static_cast<unsigned>(partner - low[owner]) < count[owner];
  }
};

// Loads the rows of the partners begin .. begin + S::tile - 1, zeros behind the last, and the
// statistics of queries where `stats` is given.
template <class S, class Owners>
__device__ void fill_tile(const PackedAttention& a, const Owners& owners, const StepRows& first,
                          const StepRows& second, const float* stats, int head, bool fours,
                          int begin, int total, int lane, Tile<S>& tile) {
  __syncwarp();  // all lanes are through with the tile before; the vote orders no memory
  const int rows = min(S::tile, total - begin);
  if (lane < rows) {
    const int number = begin + lane;
    int low = 0, high = S::owners;  // the last owner whose sequence begins here or before
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (tile.owner[middle].base <= number ? low : high) = middle;
    }
    const Owner& owner = tile.owner[low];
    const int partner = number - owner.base;
    tile.row[lane] = owner.row;
    tile.step[lane] = owners.step_of(a, owner, partner);
    if (stats != nullptr) {
      const float* mine = stats + 3 * ((owner.first + partner) * a.heads + head);
      for (int i = 0; i < 3; ++i) tile.stats[lane][i] = mine[i];
    }
  }
  __syncwarp();
  const int64_t head_column = static_cast<int64_t>(head) * a.width;
  constexpr int kFours = S::width / 4;
#pragma unroll
  for (int n = 0; n < S::tile * kFours / 32; ++n) {
    const int at = n * 32 + lane, row = at / kFours, column = at % kFours * 4;
    float some[2][4] = {};
    if (row < rows) {
      const int step = tile.step[row], of = tile.row[row];
      load_four(row_of(first, step, of) + head_column, column, a.width, fours, some[0]);
      load_four(row_of(second, step, of) + head_column, column, a.width, fours, some[1]);
    }
    store_floats<4>(tile.first + 4 * at, some[0]);
    store_floats<4>(tile.second + 4 * at, some[1]);
  }
  __syncwarp();
}

// State of a warp and of one of its groups, and the loop over the group's partners.
template <class S, class Owners>
struct Walk {
  const PackedAttention& a;
  const Owners& owners;
  Tile<S>& tile;
  const int lane, head;
  const bool fours;
  const unsigned members;  // lanes of the group
  const int64_t head_column;
  const int total;
  const Owner* const group;  // S::Q owners
  const Ranges<S> range;

  __device__ Walk(const PackedAttention& a, const Owners& owners, Tile<S>& tile, bool fours)
      : a(a),
        owners(owners),
        tile(tile),
        lane(threadIdx.x % 32),
        head(blockIdx.y),
        fours(fours),
        members(((1u << S::L) - 1u) << (lane / S::L * S::L)),
        head_column(static_cast<int64_t>(head) * a.width),
        total(find_owners(a, owners, lane, tile)),
        group(tile.owner + lane / S::L * S::Q),
        range(group) {}

  // body(partner, row): STEP partners from this one on, of which the group has one at least, and
  // the row of the tile where they begin.
  template <int STEP, class Body>
  __device__ void each(const StepRows& first, const StepRows& second, const float* stats,
                       const Body& body) const {
    static_assert(S::tile % STEP == 0);
    for (int begin = 0; begin < total; begin += S::tile) {
      const int end = min(total, begin + S::tile);
      const bool seen = range.begin < end && range.end > begin;
      if (__ballot_sync(kWarp, seen) == 0) continue;
      fill_tile(a, owners, first, second, stats, head, fours, begin, total, lane, tile);
      const int last = min(end, range.end);
      for (int partner = max(begin, range.begin / STEP * STEP); partner < last; partner += STEP) {
        body(partner, partner - begin);
      }
    }
  }
};

template <class S>
__global__ void __launch_bounds__(kThreads, 6)
    packed_forward(const PackedAttention a, const Queries queries, bool fours) {
  __shared__ Tile<S> tiles[kWarps];
  const Walk<S, Queries> walk(a, queries, tiles[threadIdx.x / 32], fours);
  const int lane = walk.lane;
  float q[S::Q][S::E], sum[S::Q][S::E] = {}, top[S::Q], total[S::Q] = {};
#pragma unroll
  for (int u = 0; u < S::Q; ++u) {
    load_own<S>(a.q, walk.group[u], walk.head_column, a.width, fours, lane, q[u]);
    top[u] = -INFINITY;
  }
  constexpr int kKeys = 4;  // scores at a time
  walk.template each<kKeys>(a.k, a.v, nullptr, [&](int partner, int row) {
    float score[S::Q][kKeys];
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      float key[S::E];
      read_row<S>(walk.tile.first, row + j, lane, key);
#pragma unroll
      for (int u = 0; u < S::Q; ++u) {
        const float product = a.scale * dot<S>(q[u], key, walk.members);
        score[u][j] = walk.range.has(u, partner + j) ? product : -INFINITY;
      }
    }
#pragma unroll
    for (int u = 0; u < S::Q; ++u) {
      float peak = top[u];
#pragma unroll
      for (int j = 0; j < kKeys; ++j) peak = fmaxf(peak, score[u][j]);
      const float smaller = peak > top[u] ? expf(top[u] - peak) : 1.0f;
      total[u] *= smaller;
      scale_row(smaller, sum[u]);
      top[u] = peak;
    }
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      float value[S::E];
      read_row<S>(walk.tile.second, row + j, lane, value);
#pragma unroll
      for (int u = 0; u < S::Q; ++u) {
        if (!walk.range.has(u, partner + j)) continue;
        const float share = expf(score[u][j] - top[u]);
        total[u] += share;
        add_row(share, value, sum[u]);
      }
    }
  });
#pragma unroll
  for (int u = 0; u < S::Q; ++u) {
    store_own<S>(a, walk.group[u], walk.head_column, fours, lane, 1.0f / total[u], sum[u], a.out);
  }
}

// Derivatives to queries; leaves largest score, 1 / sum and mean pull of a query for the keys.
//
// One pass: the mean pull, which is known at the end only, is taken off by the mean key. So that
// this costs few digits, pulls are taken relative to `origin`, their mean after 1, 2, 4, ... keys.
template <class S>
__global__ void __launch_bounds__(kThreads)
    packed_query_grad(const PackedAttention a, const Queries queries, float* stats, bool fours) {
  __shared__ Tile<S> tiles[kWarps];
  const Walk<S, Queries> walk(a, queries, tiles[threadIdx.x / 32], fours);
  const int lane = walk.lane;
  float q[S::Q][S::E], grad[S::Q][S::E], pulled_key[S::Q][S::E] = {}, mean_key[S::Q][S::E] = {};
  float top[S::Q], total[S::Q] = {}, pulled[S::Q] = {}, origin[S::Q] = {};
#pragma unroll
  for (int u = 0; u < S::Q; ++u) {
    load_own<S>(a.q, walk.group[u], walk.head_column, a.width, fours, lane, q[u]);
    load_own<S>(a.grad, walk.group[u], walk.head_column, a.width, fours, lane, grad[u]);
    top[u] = -INFINITY;
  }
  walk.template each<1>(a.k, a.v, nullptr, [&](int partner, int row) {
    float key[S::E], value[S::E];
    read_row<S>(walk.tile.first, row, lane, key);
    read_row<S>(walk.tile.second, row, lane, value);
#pragma unroll
    for (int u = 0; u < S::Q; ++u) {
      const float score = a.scale * dot<S>(q[u], key, walk.members);
      const float whole_pull = dot<S>(grad[u], value, walk.members);
      if (!walk.range.has(u, partner)) continue;
      const int before = partner - walk.range.low[u];
      if ((before & (before - 1)) == 0) {
        const float moved = before == 0 ? whole_pull : pulled[u] / total[u];
        origin[u] += moved;
        pulled[u] = 0.0f;
        add_row(-moved, mean_key[u], pulled_key[u]);
      }
      const float pull = whole_pull - origin[u];
      if (score > top[u]) {
        const float smaller = expf(top[u] - score);
        total[u] *= smaller;
        pulled[u] *= smaller;
        scale_row(smaller, pulled_key[u]);
        scale_row(smaller, mean_key[u]);
        top[u] = score;
      }
      const float share = expf(score - top[u]);
      total[u] += share;
      pulled[u] += share * pull;
      add_row(share, key, mean_key[u]);
      add_row(share * pull, key, pulled_key[u]);
    }
  });
#pragma unroll
  for (int u = 0; u < S::Q; ++u) {
    const Owner& owner = walk.group[u];
    if (owner.number < 0) continue;
    const float factor = 1.0f / total[u], mean = pulled[u] * factor;
    add_row(-mean, mean_key[u], pulled_key[u]);
    store_own<S>(a, owner, walk.head_column, fours, lane, a.scale * factor, pulled_key[u],
                 a.grad_q);
    if (lane % S::L == 0) {
      float* mine = stats + 3 * (owner.number * a.heads + walk.head);
      mine[0] = top[u];
      mine[1] = factor;
      mine[2] = mean + origin[u];
    }
  }
}

// Derivatives to keys and values, at every step of every row.
template <class S>
__global__ void __launch_bounds__(kThreads)
    packed_key_grad(const PackedAttention a, const Keys keys, const float* stats, bool fours) {
  __shared__ Tile<S> tiles[kWarps];
  const Walk<S, Keys> walk(a, keys, tiles[threadIdx.x / 32], fours);
  const int lane = walk.lane;
  float key[S::Q][S::E], value[S::Q][S::E], to_key[S::Q][S::E] = {}, to_value[S::Q][S::E] = {};
#pragma unroll
  for (int u = 0; u < S::Q; ++u) {
    load_own<S>(a.k, walk.group[u], walk.head_column, a.width, fours, lane, key[u]);
    load_own<S>(a.v, walk.group[u], walk.head_column, a.width, fours, lane, value[u]);
  }
  walk.template each<1>(a.q, a.grad, stats, [&](int partner, int row) {
    float q[S::E], grad[S::E];
    read_row<S>(walk.tile.first, row, lane, q);
    read_row<S>(walk.tile.second, row, lane, grad);
    const float* of = walk.tile.stats[row];
#pragma unroll
    for (int u = 0; u < S::Q; ++u) {
      const float score = a.scale * dot<S>(key[u], q, walk.members);
      const float pull = dot<S>(value[u], grad, walk.members) - of[2];
      if (!walk.range.has(u, partner)) continue;
      const float share = of[1] * expf(score - of[0]);
      add_row(share, grad, to_value[u]);
      add_row(share * pull, q, to_key[u]);
    }
  });
#pragma unroll
  for (int u = 0; u < S::Q; ++u) {
    store_own<S>(a, walk.group[u], walk.head_column, fours, lane, a.scale, to_key[u], a.grad_k);
    store_own<S>(a, walk.group[u], walk.head_column, fours, lane, 1.0f, to_value[u], a.grad_v);
  }
}

template <class S>
dim3 grid_for(int64_t owners, int heads) {
  return dim3(static_cast<unsigned>(ceil_div(owners, S::owners * kWarps)),
              static_cast<unsigned>(heads));
}

// True if all rows can be read and written four numbers at a time.
bool in_fours(const PackedAttention& a, std::initializer_list<StepRows> read,
              std::initializer_list<const float*> written) {
  bool whole = a.width % 4 == 0;
  for (const StepRows& x : read) {
    whole = whole && aligned(x.data, 16) && x.step % 4 == 0 && x.row % 4 == 0;
  }
  for (const float* x : written) whole = whole && aligned(x, 16);
  return whole;
}

// Calls body with the lanes, and columns a lane, that hold the smallest width not below a head's.
template <class Body>
int by_width(int width, const Body& body) {
  if (width <= 8) return body.template run<2, 4>();
  if (width <= 16) return body.template run<4, 4>();
  if (width <= 32) return body.template run<4, 8>();
  return body.template run<8, 8>();
}

struct Forward {
  const PackedAttention& a;
  Queries queries;
  bool fours;
  void* stream;
  template <int L, int E>
  int run() const {
    using S = Shape<L, E, 2>;
    if (queries.count == 0) return 0;
    packed_forward<S><<<grid_for<S>(queries.count, a.heads), kThreads, 0, as_stream(stream)>>>(
        a, queries, fours);
    return launch_status();
  }
};

struct Backward {
  const PackedAttention& a;
  Queries queries;
  Keys keys;
  float* stats;
  bool fours;
  void* stream;
  template <int L, int E>
  int run() const {
    using S = Shape<L, E, 2>;
    if (queries.count > 0) {
      packed_query_grad<S><<<grid_for<S>(queries.count, a.heads), kThreads, 0,
                             as_stream(stream)>>>(a, queries, stats, fours);
      const int status = launch_status();
      if (status != 0) return status;
    }
    if (keys.count == 0) return 0;
    packed_key_grad<S><<<grid_for<S>(keys.count, a.heads), kThreads, 0, as_stream(stream)>>>(
        a, keys, stats, fours);
    return launch_status();
  }
};

}  // namespace

extern "C" {

int dgb_packed_attention_width() { return kMaxWidth; }

int dgb_packed_attention(const PackedAttention* args, int64_t wanted, void* stream) {
  const PackedAttention& a = *args;
  const bool fours = in_fours(a, {a.q, a.k, a.v}, {a.out});
  return by_width(a.width, Forward{a, {wanted}, fours, stream});
}

int dgb_packed_attention_backward(const PackedAttention* args, int64_t wanted, int64_t steps,
                                  float* stats, void* stream) {
  const PackedAttention& a = *args;
  const bool fours = in_fours(a, {a.q, a.k, a.v, a.grad}, {a.grad_q, a.grad_k, a.grad_v});
  return by_width(a.width, Backward{a, {wanted}, {steps * a.rows, steps}, stats, fours, stream});
}

}  // extern "C"

}  // namespace dgbench
