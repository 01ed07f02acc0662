// A batch of events into a temporal graph on a device: plan and writing, after the sort of
// temporal_store/cuda_resident_sort.cu.
//
// A batch of 100 k events at both ends, 500 k vertices: 6 launches and no wait of the host (4 for
// up to 2048 vertices, 6 to 4 M, 8 beyond). About 90 MB, most of it in the second-level cache: 13
// for the sort, 26 for lines of vertices read and written, 25 for segments, 19 for events in the
// order of vertices, 7 for records. Expected on an H200: 45 to 80 us, by chains of dependent loads
// and not by bytes (22 us).
#include "common/block_scan.cuh"
#include "common/launch.cuh"
#include "temporal_store/cuda_resident.h"

namespace dgbench::temporal {
namespace {

// The end of the segment that place `at` belongs to: steps that double, then halves.
__device__ __forceinline__ int64_t segment_end(const Half* sorted, int64_t at, int64_t halves) {
  const uint32_t owner = sorted[at].owner;
  int64_t low = at, step = 1;
  while (low + step < halves && sorted[low + step].owner == owner) {
    low += step;
    step *= 2;
  }
  int64_t high = low + step < halves ? low + step : halves;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (sorted[middle].owner == owner) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return high;
}

__device__ __forceinline__ int64_t segment_begin(const Half* sorted, int64_t at) {
  const uint32_t owner = sorted[at].owner;
  int64_t high = at, step = 1;
  while (high - step >= 0 && sorted[high - step].owner == owner) {
    high -= step;
    step *= 2;
  }
  int64_t low = high - step >= 0 ? high - step : -1;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (sorted[middle].owner == owner) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return high;
}

__device__ __forceinline__ unsigned long long half_and_place(uint32_t half, int64_t place) {
  return static_cast<unsigned long long>(half) << 32 | static_cast<unsigned long long>(place);
}

// Whether the batch at hand is taken, by one thread after all others have looked.
__device__ void decide(const ResidentInsert& in, const Half* sorted, const Places& need) {
  ResidentState& state = *in.state;
  Refused& no = state.refused;
  if (no.why == Refusal::None) {
    const unsigned long long invalid = fresh(&state.invalid), uneven = fresh(&state.uneven),
                             crowded = fresh(&state.crowded), late = fresh(&state.late);
    const unsigned long long worse = crowded != kRight ? crowded : late;
    const auto place = static_cast<uint32_t>(worse);
    no.event = worse != kRight ? in.event_of(static_cast<uint32_t>(worse >> 32)) : 0;
    if (invalid != kRight) {
      no.why = static_cast<Refusal>(invalid % 8);
      no.event = static_cast<int64_t>(invalid / 8);
      no.value = no.why == Refusal::Source        ? in.batch.src[no.event]
                 : no.why == Refusal::Destination ? in.batch.dst[no.event]
                                                  : in.edge_of(no.event, state.events);
    } else if (uneven != kRight) {
      no.why = Refusal::Compact;
      no.event = static_cast<int64_t>(uneven);
    } else if (worse != kRight) {
      no.why = crowded != kRight ? Refusal::Degree : Refusal::Late;
      no.value = sorted[place].owner;
      no.last = place > 0 && sorted[place - 1].owner == sorted[place].owner
                    ? in.time_of_half(sorted[place - 1].half)
                    : in.vertices[no.value].t_max;
    } else if (state.used.slots + need.slots > in.room.slots ||
               state.used.fences + need.fences > in.room.fences ||
               state.used.blocks + need.blocks > in.room.blocks) {
      no.why = Refusal::Room;
    }
    no.batch = state.batches;
    no.t = in.batch.t[no.event];
  }
  state.accepted = no.why == Refusal::None;
  state.begin = state.used;
  state.first = state.events;
  if (state.accepted) {
    state.used.slots += need.slots;
    state.used.fences += need.fences;
    state.used.blocks += need.blocks;
    ++state.batches;
    state.events += in.batch.size;
    state.records += in.halves();
  }
  state.invalid = state.uneven = state.crowded = state.late = kRight;
  state.finished = 0;
}

// Sums over the threads before this one; `all` becomes the sum over all of them.
__device__ __forceinline__ Places scan(const Places& mine, uint64_t* warp_sums, Places& all) {
  Places before;
  before.slots = block_scan(mine.slots, warp_sums, all.slots);
  before.fences = block_scan(mine.fences, warp_sums, all.fences);
  before.blocks = block_scan(mine.blocks, warp_sums, all.blocks);
  return before;
}

__device__ __forceinline__ void add(Places& to, const Places& more) {
  to.slots += more.slots;
  to.fences += more.fences;
  to.blocks += more.blocks;
}

// A block takes a run of sorted halves; the last one to finish adds the runs up and decides.
static_assert(kPlanTile == kBlock, "a thread plans one half at a time");
__global__ void __launch_bounds__(kBlock)
    plan_segments(const ResidentInsert in, const Half* sorted, int64_t run) {
  __shared__ uint64_t warp_sums[kBlockWarps];
  __shared__ uint32_t begins[kBlock];  // of the segments that begin in this tile
  __shared__ uint32_t carried;         // where the segment begins that the tile begins in
  __shared__ bool is_last;
  const int64_t halves = in.halves(), first = static_cast<int64_t>(blockIdx.x) * run;
  const int64_t last = first + run < halves ? first + run : halves;
  if (threadIdx.x == 0) carried = static_cast<uint32_t>(segment_begin(sorted, first));
  Places sum{};
  for (int64_t tile = first; tile < last; tile += kBlock) {
    const int64_t at = tile + threadIdx.x;
    bool begins_here = false;
    Places need{};
    Segment segment{};
    if (at < last) {
      const Half half = sorted[at];
      const Half other = at > 0 ? sorted[at - 1] : Half{};
      begins_here = at == 0 || other.owner != half.owner;
      double newest;
      if (begins_here) {
        const Vertex& v = in.vertices[half.owner];
        const auto count = static_cast<uint32_t>(segment_end(sorted, at, halves) - at);
        newest = v.t_max;
        segment = planned(in.policy, v, count, need);
        if (uint64_t{v.before} + v.size + count >= kNone) {
          atomicMin(&in.state->crowded, half_and_place(half.half, at));
        }
      } else {
        newest = in.time_of_half(other.half);
      }
      if (in.time_of_half(half.half) < newest) {
        atomicMin(&in.state->late, half_and_place(half.half, at));
      }
    }
    uint64_t begun = 0;
    const uint64_t earlier = block_scan<uint64_t>(begins_here ? 1 : 0, warp_sums, begun);
    if (begins_here) begins[earlier] = static_cast<uint32_t>(at);
    Places whole{};
    Places before = scan(need, warp_sums, whole);
    add(before, sum);
    add(sum, whole);
    if (at < last) {
      const uint64_t number = earlier + (begins_here ? 1 : 0);
      in.heads[at] = number > 0 ? begins[number - 1] : carried;
    }
    if (begins_here) {
      segment.fresh = before.slots;
      if (segment.refenced) segment.fence = before.fences;
      segment.block = static_cast<uint32_t>(before.blocks);
      in.segments[at] = segment;
    }
    __syncthreads();
    if (threadIdx.x == 0 && begun > 0) carried = begins[begun - 1];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    in.sums[blockIdx.x] = sum;
    __threadfence();
    is_last = atomicAdd(&in.state->finished, 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return;
  constexpr int kEach = (static_cast<int>(kPlanBlocks) + kBlock - 1) / kBlock;
  Places own[kEach], mine{};
  for (int k = 0; k < kEach; ++k) {
    const unsigned r = threadIdx.x * kEach + k;
    own[k] = Places{};
    if (r >= gridDim.x) continue;
    own[k] = {fresh(&in.sums[r].slots), fresh(&in.sums[r].fences), fresh(&in.sums[r].blocks)};
    add(mine, own[k]);
  }
  Places need{};
  Places before = scan(mine, warp_sums, need);
  for (int k = 0; k < kEach; ++k) {
    const unsigned r = threadIdx.x * kEach + k;
    if (r < gridDim.x) in.sums[r] = before;
    add(before, own[k]);
  }
  if (threadIdx.x == 0) decide(in, sorted, need);
}

struct Copy {
  uint64_t from;
  uint64_t to;
  uint32_t count;
};

// All that the lanes of a warp want copied, each by the whole warp.
template <class T>
__device__ __forceinline__ void copy_together(T* pool, const Copy& mine) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  for (unsigned left = __ballot_sync(kAllLanes, mine.count > 0); left != 0; left &= left - 1) {
    const int from = __ffs(static_cast<int>(left)) - 1;
    const uint32_t count = __shfl_sync(kAllLanes, mine.count, from);
    const T* const source = pool + __shfl_sync(kAllLanes, mine.from, from);
    T* const target = pool + __shfl_sync(kAllLanes, mine.to, from);
    for (uint32_t k = lane; k < count; k += 32) target[k] = source[k];
  }
}

// A segment with its places in the pools.
__device__ __forceinline__ Segment placed(const ResidentInsert& in, uint32_t head, int64_t run) {
  Segment segment = in.segments[head];
  const Places& before = in.sums[head / run];
  const Places& begin = in.state->begin;
  segment.fresh += begin.slots + before.slots;
  segment.block += static_cast<uint32_t>(begin.blocks + before.blocks);
  if (segment.refenced) segment.fence += begin.fences + before.fences;
  if (segment.moved) segment.next += segment.fresh;
  return segment;
}

// A new block and, unless it is the last one, its fence; `at` is the place of its first half.
__device__ __forceinline__ void put_block(const ResidentInsert& in, const Half* sorted,
                                          const Segment& to, int64_t at, uint32_t number) {
  const uint32_t done = number * to.capacity, rest = to.count - to.left - done;
  const bool newest = rest <= to.capacity;
  const uint32_t size = newest ? rest : to.capacity, block = to.block + number;
  const double t_min = in.time_of_half(sorted[at].half);
  const double t_max = in.time_of_half(sorted[at + size - 1].half);
  in.blocks[block] = {to.fresh + done, to.capacity, size, t_min, t_max,
                      number == 0 ? to.tail : block - 1, newest ? kNone : block + 1,
                      sorted[at].owner, 0};
  if (newest) return;
  in.fences[to.fence + to.fences + number] = {t_min, to.fresh + done, to.before + done, size};
}

// The line of a vertex after its segment, which begins at `at`, and what closes its newest block.
// What else has to be moved is left to the warp.
__device__ __forceinline__ void put_line(const ResidentInsert& in, const Half* sorted,
                                         const Segment& to, int64_t at, Copy& records,
                                         Copy& fences) {
  Vertex& line = in.vertices[sorted[at].owner];
  Vertex v = line;
  const double t_max = in.time_of_half(sorted[at + to.count - 1].half);
  if (to.moved) {
    records = {v.first, to.fresh, v.size};
    in.blocks[v.tail].first = v.first = to.fresh;
    in.blocks[v.tail].capacity = v.capacity = to.capacity;
  }
  if (to.capacity == 0 || to.moved) {
    v.size += to.count;
    v.t_max = t_max;
    line = v;
    return;
  }
  if (v.tail == kNone) {
    v.head = to.block;
  } else {
    Block& closed = in.blocks[v.tail];
    closed.size = v.size + to.left;
    closed.t_min = v.t_min;
    closed.t_max = to.left > 0 ? in.time_of_half(sorted[at + to.left - 1].half) : v.t_max;
    closed.next = to.block;
    in.fences[to.fence + v.fences] = {v.t_min, v.first, v.before, v.size + to.left};
  }
  if (to.refenced) fences = {v.fence, to.fence, v.fences};
  const uint32_t rest = to.count - to.left, older = (rest - 1) / to.capacity;
  const uint32_t done = older * to.capacity;
  v.first = to.fresh + done;
  v.size = rest - done;
  v.capacity = to.capacity;
  v.t_min = in.time_of_half(sorted[at + to.left + done].half);
  v.t_max = t_max;
  v.before = to.before + done;
  v.fences = to.fences + older;
  v.fence = to.fence;
  v.tail = to.block + older;
  line = v;
}

template <class Record>
__global__ void __launch_bounds__(kBlock)
    place_halves(const ResidentInsert in, const Half* sorted, int64_t run) {
  if (in.state->accepted == 0) return;
  auto* const pool = static_cast<Record*>(in.records);
  const int64_t halves = in.halves(), step = static_cast<int64_t>(gridDim.x) * kBlock;
  for (int64_t tile = static_cast<int64_t>(blockIdx.x) * kBlock; tile < halves; tile += step) {
    const int64_t at = tile + threadIdx.x;
    Copy records{}, fences{};
    if (at < halves) {
      const uint32_t half = sorted[at].half, head = in.heads[at];
      const auto number = static_cast<uint32_t>(at - head);
      const Segment to = placed(in, head, run);
      const int64_t event = in.event_of(half);
      const uint32_t beyond = number - to.left;
      const bool goes_on = number < to.left;
      write_record(pool[goes_on ? to.next + number : to.fresh + beyond],
                   in.backwards(half) ? in.batch.src[event] : in.batch.dst[event],
                   in.edge_of(event, in.state->first), in.batch.t[event], in.origin);
      if (!goes_on && beyond % to.capacity == 0) {
        put_block(in, sorted, to, at, beyond / to.capacity);
      }
      if (number == 0) put_line(in, sorted, to, at, records, fences);
    }
    copy_together(pool, records);
    copy_together(in.fences, fences);
  }
}

template <class Record>
int place(const ResidentInsert& in, void* stream) {
  const int64_t halves = in.halves(), most = 1 << 20;
  const int64_t blocks = ceil_div(halves, kBlock);
  place_halves<Record><<<static_cast<unsigned>(blocks < most ? blocks : most), kBlock, 0,
                         as_stream(stream)>>>(in, dgb_resident_sorted(&in),
                                              run_length(halves, kPlanTile, kPlanBlocks));
  return launch_status();
}

struct ClearLine {
  Vertex* vertices;
  ResidentState* state;

  DGB_HD void operator()(int64_t i) const {
    if (i == 0) {
      ResidentState none{};
      none.invalid = none.uneven = none.crowded = none.late = kRight;
      *state = none;
      return;
    }
    Vertex v{};
    v.t_min = HUGE_VAL;
    v.t_max = -HUGE_VAL;
    v.head = v.tail = kNone;
    vertices[i - 1] = v;
  }
};

struct Forgive {
  ResidentState* state;

  DGB_HD void operator()(int64_t) const { state->refused = Refused{}; }
};

}  // namespace

extern "C" {

int dgb_resident_clear(const ResidentInsert* in, void* stream) {
  return for_each(in->num_vertices + 1, ClearLine{in->vertices, in->state}, stream);
}

int dgb_resident_forgive(const ResidentInsert* in, void* stream) {
  return for_each(1, Forgive{in->state}, stream);
}

int dgb_resident_plan(const ResidentInsert* in, void* stream) {
  const int64_t halves = in->halves();
  if (halves <= 0) return 0;
  const int64_t run = run_length(halves, kPlanTile, kPlanBlocks);
  plan_segments<<<static_cast<unsigned>(ceil_div(halves, run)), kBlock, 0, as_stream(stream)>>>(
      *in, dgb_resident_sorted(in), run);
  return launch_status();
}

int dgb_resident_place(const ResidentInsert* in, void* stream) {
  if (in->halves() <= 0) return 0;
  switch (in->layout) {
    case Layout::Packed: return place<Packed>(*in, stream);
    case Layout::Compact: return place<Compact>(*in, stream);
    default: return place<Wide>(*in, stream);
  }
}

}  // extern "C"

}  // namespace dgbench::temporal
