// The share of each vertex's edges that is kept, and subgraphs by a moving frontier (T-GCN 3), the same
// as on the CPU.
//
// A frontier is a chain of draws, each of which needs the one before: a warp walks one, and as many
// subgraphs as there are walk side by side. Its tree of sums has four children a node, so that a level
// is one load of 16 bytes and three comparisons, and lies in shared memory; a change adds its
// difference to all levels at once, a lane each. What a draw waits for is memory: an edge of the slot's
// vertex, then the degree of where it leads.
#include "common/block_scan.cuh"
#include "edge_sampling/cuda_launchers.h"

namespace dgbench {
namespace {

constexpr int64_t kShortRow = 1 << 16;          // a longer row draws 64 bits for each edge
constexpr uint32_t kKeepPurpose = 0x4b454550u;  // of edge_sampling/cpu_table.cpp
constexpr uint32_t kKeep = 0, kRound = 1;
constexpr uint32_t kDrawPurpose = 0x53495357u;  // of weighted/cpu_search.hpp

DGB_HD Draws row_block(uint64_t seed, uint64_t row, uint32_t use, uint32_t block) {
  return philox(block, static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32), use,
                static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32) ^ kKeepPurpose);
}

// A warp goes along a row, four neighbouring edges a lane. An edge is kept where its number, a threshold,
// is below how many are still needed, so that each decision needs those before it. The lanes guess that
// none of the edges before theirs is kept, decide, and decide again by what the others decided until
// nobody changes his mind: the first lane is right at once and each time one more at least, but where
// thresholds are spread over a row nearly all are right after the second.
__global__ void __launch_bounds__(kBlock) keep_rows(const KeepRows k) {
  constexpr int kEach = 4, kStep = 32 * kEach;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kBlockWarps;
  int64_t v = static_cast<int64_t>(blockIdx.x) * kBlockWarps + (threadIdx.x >> 5);
  for (; v < k.vertices; v += warps) {
    const int64_t begin = k.indptr[v], degree = k.indptr[v + 1] - begin;
    const bool wide = degree >= kShortRow;
    uint64_t needed = static_cast<uint64_t>(k.needed[v]);
    for (int64_t from = 0; from < degree; from += kStep) {
      const int64_t first = from + kEach * lane;
      uint64_t threshold[kEach];
      Draws block{0, 0};
      for (int j = 0; j < kEach; ++j) {
        const auto item = static_cast<uint64_t>(first + j);
        if (j == 0 || (wide && j == 2)) {
          block = row_block(k.seed, static_cast<uint64_t>(v), kKeep,
                            static_cast<uint32_t>(wide ? item / 2 : item / 4));
        }
        const uint64_t half = wide ? item & 1 : item >> 1 & 1;
        const uint64_t word = half != 0 ? block.odd : block.even;
        const uint64_t narrow = item & 1 ? word >> 32 : word & 0xffffffffu;
        // The number as a share of the edges that are left: kept where that is below `needed`.
        const auto left = static_cast<uint64_t>(degree) - item;
        threshold[j] = first + j >= degree ? ~uint64_t{0}
                       : wide              ? mul_high(word, left)
                                           : narrow * left >> 32;
      }
      int before = 0, mine = 0;  // kept in front of this lane's edges, and bits of its own
      unsigned changed = kAllLanes;
      while (changed != 0) {
        uint64_t rest = needed - static_cast<uint64_t>(before);
        int kept = 0;
        for (int j = 0; j < kEach; ++j) {
          // What was guessed may be more than is needed; then nothing is.
          const bool is_kept = static_cast<int64_t>(rest) > 0 && threshold[j] < rest;
          kept |= is_kept ? 1 << j : 0;
          rest -= is_kept ? 1 : 0;
        }
        const int own = __popc(static_cast<unsigned>(kept));
        const int sum = warp_scan(own);
        changed = __ballot_sync(kAllLanes, sum - own != before);
        before = sum - own;
        mine = kept;
      }
      for (int j = 0; j < kEach; ++j) {
        if (first + j < degree) k.keep[k.eid[begin + first + j]] = (mine >> j & 1) != 0;
      }
      const int all = before + __popc(static_cast<unsigned>(mine));
      needed -= static_cast<uint64_t>(__shfl_sync(kAllLanes, all, 31));
    }
  }
}

struct RowUniforms {
  uint64_t seed;
  double* out;
  DGB_HD void operator()(int64_t v) const {
    out[v] = unit_of(row_block(seed, static_cast<uint64_t>(v), kRound, 0).even);
  }
};

// How many edges of a row are before a time: rows are in time order.
struct CountBefore {
  const int64_t* indptr;
  const double* t;
  const int64_t* vertices;
  const double* bounds;
  int64_t* counts;
  DGB_HD void operator()(int64_t i) const {
    const int64_t begin = indptr[vertices[i]];
    int64_t low = begin, high = indptr[vertices[i] + 1];
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (t[middle] < bounds[i]) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    counts[i] = low - begin;
  }
};

DGB_HD Draws number_pair(uint64_t seed, uint64_t stream, uint64_t pair) {
  return philox(static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32),
                static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32),
                static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32) ^ kDrawPurpose);
}

// Numbers of a stream one after the other; the lanes make 64 at a time.
struct WarpNumbers {
  uint64_t seed, stream, next;
  uint64_t base;
  Draws mine;
  int lane;

  __device__ WarpNumbers(uint64_t seed, uint64_t stream, int lane)
      : seed(seed), stream(stream), next(0), base(0), lane(lane) {
    refill();
  }
  __device__ void refill() {
    base = next & ~uint64_t{1};
    mine = number_pair(seed, stream, base / 2 + static_cast<uint64_t>(lane));
  }
  __device__ uint64_t at(uint64_t number) const {  // each lane's own
    const Draws two = number_pair(seed, stream, number / 2);
    return number & 1 ? two.odd : two.even;
  }
  __device__ uint64_t operator()() {  // the same to all lanes
    if (next - base >= 64) refill();
    const uint64_t k = next++ - base;
    return __shfl_sync(kAllLanes, k & 1 ? mine.odd : mine.even, static_cast<int>(k >> 1));
  }
};

template <class Sum>
struct alignas(4 * sizeof(Sum)) Four {
  Sum at[4];
};

template <class Sum>
__device__ __forceinline__ Four<Sum> load_four(const Sum* from) {
  if constexpr (sizeof(Sum) == 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(from);
    return {{four.x, four.y, four.z, four.w}};
  } else {
    return {{from[0], from[1], from[2], from[3]}};
  }
}

template <class Sum>
struct Walker {
  const FrontierWalk& w;
  const int lane;
  Sum* const tree;
  FrontierSlot* const slots;
  uint32_t* const members;
  WarpNumbers numbers;
  int64_t reseeded = 0;
  uint64_t total = 0;

  __device__ Walker(const FrontierWalk& w, int64_t g, Sum* tree, FrontierSlot* slots)
      : w(w), lane(static_cast<int>(threadIdx.x)), tree(tree), slots(slots),
        members(w.members + g * w.words),
        numbers(w.seed, w.stream + static_cast<uint64_t>(g), static_cast<int>(threadIdx.x)) {}

  __device__ uint64_t weight(uint32_t degree) const { return w.by_degree ? degree : 1; }
  __device__ bool is_member(int32_t v) const {
    const volatile uint32_t* const word = members + (v >> 5);
    return (*word >> (v & 31) & 1u) != 0;
  }
  __device__ void add_member(int32_t v) { atomicOr(members + (v >> 5), 1u << (v & 31)); }
  __device__ FrontierSlot look_up(int32_t v) const {
    const int64_t row = w.indptr[v];
    return {row, static_cast<uint32_t>(w.indptr[v + 1] - row), v};
  }
  __device__ FrontierSlot occupied_at(uint64_t draw) const {
    return look_up(w.occupied[below(draw, static_cast<uint64_t>(w.some))]);
  }
  __device__ FrontierSlot reseed() {  // all lanes
    ++reseeded;
    return occupied_at(numbers());
  }
  __device__ void put(int64_t i, const FrontierSlot& slot) {  // one lane
    slots[i] = slot;
    tree[i] = static_cast<Sum>(weight(slot.degree));
  }
  // Range of slot i's first vertex.
  __device__ uint64_t range(int64_t i) const {
    return static_cast<uint64_t>(w.replacement ? w.vertices : w.vertices - w.frontier + i + 1);
  }

  // As on the CPU, every slot first gets a vertex, and only then do those whose vertex has no edges
  // get another, in the order of slots: so slot i's number is number i, and that of the k-th slot
  // without edges is number frontier + k.
  __device__ void place() {
    if (w.replacement) {
      for (int64_t i = lane; i < w.frontier; i += 32) slots[i].vertex = draw_vertex(i);
    } else {
      place_different();
    }
    __syncwarp();
    numbers.next = static_cast<uint64_t>(w.frontier);
    for (int64_t from = 0; from < w.frontier; from += 32) {
      const int64_t i = from + lane;
      const bool live = i < w.frontier;
      FrontierSlot slot{};
      if (live) slot = look_up(slots[i].vertex);
      const bool bare = live && slot.degree == 0;
      const unsigned all = __ballot_sync(kAllLanes, bare);
      if (bare) {
        const unsigned before = all & ((1u << lane) - 1);
        slot = occupied_at(numbers.at(numbers.next + static_cast<uint64_t>(__popc(before))));
      }
      if (live) put(i, slot);
      numbers.next += static_cast<uint64_t>(__popc(all));
      reseeded += __popc(all);
    }
    __syncwarp();
  }
  __device__ int32_t draw_vertex(int64_t i) const {
    return static_cast<int32_t>(below(numbers.at(static_cast<uint64_t>(i)), range(i)));
  }
  // Floyd's way. The lanes try 32 slots as if none drew a vertex that another has; those before the
  // first that does are right, and that one gets the last vertex of its range.
  __device__ void place_different() {
    for (int64_t i = 0; i < w.frontier;) {
      const int64_t mine = i + lane;
      const bool live = mine < w.frontier;
      int32_t v = -1;
      bool fresh = true;
      if (live) {
        v = draw_vertex(mine);
        fresh = !is_member(v);
      }
      for (int j = 0; j < 31; ++j) {
        const int32_t other = __shfl_sync(kAllLanes, v, j);
        if (j < lane && other == v) fresh = false;
      }
      const unsigned odd = __ballot_sync(kAllLanes, live && !fresh);
      const int stop = odd != 0 ? __ffs(static_cast<int>(odd)) : 32;
      if (live && lane < stop) {
        if (!fresh) v = static_cast<int32_t>(range(mine) - 1);
        slots[mine].vertex = v;
        add_member(v);
      }
      __syncwarp();
      i += stop;
    }
    for (int64_t word = lane; word < w.words; word += 32) members[word] = 0;
  }

  __device__ void build() {
    uint64_t sum = 0;
    for (int64_t i = lane; i < w.frontier; i += 32) sum += weight(slots[i].degree);
    for (int distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    }
    total = sum;
    int64_t filled = w.frontier;
    for (int l = 0; l < w.levels; ++l) {
      Sum* const level = tree + w.level_at[l];
      const int64_t width = (filled + 3) / 4 * 4;
      for (int64_t i = filled + lane; i < width; i += 32) level[i] = 0;
      __syncwarp();
      filled = width / 4;
      if (l + 1 == w.levels) break;
      Sum* const above = tree + w.level_at[l + 1];
      for (int64_t i = lane; i < filled; i += 32) {
        const Four<Sum> four = load_four(level + 4 * i);
        above[i] = four.at[0] + four.at[1] + four.at[2] + four.at[3];
      }
      __syncwarp();
    }
  }

  __device__ int64_t descend() {
    auto g = static_cast<Sum>(below(numbers(), total));
    int64_t node = 0;
    for (int l = w.levels - 1; l >= 0; --l) {
      const Four<Sum> four = load_four(tree + w.level_at[l] + 4 * node);
      const Sum one = four.at[0], two = one + four.at[1], three = two + four.at[2];
      const int child = (g >= one ? 1 : 0) + (g >= two ? 1 : 0) + (g >= three ? 1 : 0);
      g -= child == 0 ? Sum{0} : child == 1 ? one : child == 2 ? two : three;
      node = 4 * node + child;
    }
    return node;
  }

  // Whether the sums have shared for what the walk came to.
  __device__ bool walk() {
    if (total > static_cast<Sum>(~Sum{0})) return false;
    const int64_t level = lane < w.levels ? w.level_at[lane] : 0;
    for (int64_t d = 0; d < w.draws; ++d) {
      const int64_t leaf = descend();
      const FrontierSlot slot = slots[leaf];
      if (lane == 0) add_member(slot.vertex);
      const auto edge = static_cast<int64_t>(below(numbers(), slot.degree));
      FrontierSlot next = look_up(w.dst[slot.row + edge]);
      if (next.degree == 0) next = reseed();
      const uint64_t before = weight(slot.degree), after = weight(next.degree);
      total += after - before;
      if (total > static_cast<Sum>(~Sum{0})) return false;
      __syncwarp();
      if (lane < w.levels) tree[level + (leaf >> (2 * lane))] += static_cast<Sum>(after - before);
      if (lane == 0) slots[leaf] = next;
      __syncwarp();
    }
    return true;
  }
};

template <class Sum, bool SHARED_TREE, bool SHARED_SLOTS>
__global__ void __launch_bounds__(32) walk_frontier(const FrontierWalk w) {
  extern __shared__ float shared[];
  const int64_t g = blockIdx.x;
  Sum* tree;
  FrontierSlot* slots;
  if constexpr (SHARED_TREE) {
    tree = reinterpret_cast<Sum*>(shared);
  } else {
    tree = static_cast<Sum*>(w.trees) + g * w.nodes;
  }
  if constexpr (SHARED_SLOTS) {
    slots = reinterpret_cast<FrontierSlot*>(reinterpret_cast<Sum*>(shared) + w.nodes);
  } else {
    slots = w.slots + g * w.frontier;
  }
  Walker<Sum> walker(w, g, tree, slots);
  bool fits = true;
  if (w.some > 0) {
    walker.place();
    walker.build();
    fits = walker.walk();
  }
  if (threadIdx.x == 0) {
    w.reseeded[g] = walker.reseeded;
    w.overflow[g] = fits ? 0 : 1;
  }
}

template <class Kernel>
int launch_walks(Kernel kernel, const FrontierWalk& w, int64_t shared, void* stream) {
  if (shared > 48 << 10) {
    const cudaError_t status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (status != cudaSuccess) return static_cast<int>(status);
  }
  kernel<<<static_cast<unsigned>(w.count), 32, static_cast<std::size_t>(shared), as_stream(stream)>>>(
      w);
  return launch_status();
}

}  // namespace

extern "C" {

int dgb_keep_rows(const KeepRows* args, void* stream) {
  if (args->vertices == 0) return 0;
  constexpr int64_t kMax = 1 << 20;
  const int64_t wanted = ceil_div(args->vertices, kBlockWarps);
  const auto blocks = static_cast<unsigned>(wanted < kMax ? wanted : kMax);
  keep_rows<<<blocks, kBlock, 0, as_stream(stream)>>>(*args);
  return launch_status();
}

int dgb_row_uniforms(uint64_t seed, int64_t vertices, double* out, void* stream) {
  return for_each(vertices, RowUniforms{seed, out}, stream);
}

int dgb_count_before(const int64_t* indptr, const double* t, const int64_t* vertices,
                     const double* bounds, int64_t count, int64_t* counts, void* stream) {
  return for_each(count, CountBefore{indptr, t, vertices, bounds, counts}, stream);
}

int dgb_walk_frontier(const FrontierWalk* args, bool wide, void* stream) {
  const FrontierWalk& w = *args;
  if (w.count == 0) return 0;
  if (wide) return launch_walks(walk_frontier<uint64_t, false, false>, w, 0, stream);
  const int64_t tree = 4 * w.nodes, slots = 16 * w.frontier;
  if (w.trees != nullptr) return launch_walks(walk_frontier<uint32_t, false, false>, w, 0, stream);
  if (w.slots != nullptr) return launch_walks(walk_frontier<uint32_t, true, false>, w, tree, stream);
  return launch_walks(walk_frontier<uint32_t, true, true>, w, tree + slots, stream);
}

}  // extern "C"

}  // namespace dgbench
