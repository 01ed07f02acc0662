#include "temporal_store/cuda_patches.hpp"

#include <algorithm>
#include <cstring>

namespace dgbench::temporal {
namespace {

constexpr uint64_t kAhead = 8;  // pieces asked for before they are copied

uint64_t rounded(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

void PatchList::add(uint8_t* to, const uint8_t* from, uint64_t count) {
  for (uint64_t at = 0; at < count; at += kLongest) {
    const uint64_t size = std::min(kLongest, count - at);
    patches.push_back({reinterpret_cast<uint64_t>(to + at), from + at, packed, size});
    packed += rounded(size);
  }
  bytes += count;
}

void PatchList::clear() {
  patches.clear();
  packed = 0;
  bytes = 0;
}

int PatchSender::prepare() {
  if (ready_) return 0;
  clear();
  for (Buffer& buffer : buffers_) {
    void* at = nullptr;
    if (const int status = dgb_host_allocate(&at, kBuffer)) return status;
    buffer.at = static_cast<uint8_t*>(at);
    if (const int status = dgb_device_allocate(&buffer.there, kBuffer)) return status;
    if (const int status = dgb_mark_make(&buffer.copied)) return status;
    if (const int status = dgb_mark_make(&buffer.placed)) return status;
  }
  ready_ = true;
  return 0;
}

void PatchSender::clear() {
  for (Buffer& buffer : buffers_) {
    if (buffer.busy) dgb_mark_wait(buffer.placed);
    for (void* mark : {buffer.copied, buffer.placed}) {
      if (mark != nullptr) dgb_mark_drop(mark);
    }
    if (buffer.at != nullptr) dgb_host_free(buffer.at);
    if (buffer.there != nullptr) dgb_device_free(buffer.there);
    buffer = Buffer{};
  }
  ready_ = false;
}

// Heads in front, then the pieces, in a buffer of their own or the host's memory.
void PatchSender::gather(const std::vector<Part>& parts, uint64_t from, uint64_t heads, uint8_t* to,
                         int threads) {
  auto* const head = reinterpret_cast<PieceHead*>(to);
  uint8_t* const content = to + heads * sizeof(PieceHead);
  const auto count = static_cast<int64_t>(parts.size());
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1 && heads > 256)
  for (int64_t p = 0; p < count; ++p) {
    const Part& part = parts[p];
    const Patch* const patches = part.list->patches.data();
    for (std::size_t i = part.first; i < part.last; ++i) {
      if (i + kAhead < part.last) __builtin_prefetch(patches[i + kAhead].from);
      const Patch& patch = patches[i];
      const uint64_t place = part.base + patch.place - from;
      head[part.index + i - part.first] = {patch.to, static_cast<uint32_t>(place / 16),
                                           static_cast<uint32_t>(patch.bytes / 4)};
      std::memcpy(content + place, patch.from, patch.bytes);
    }
  }
}

int PatchSender::send_one(Buffer& buffer, const std::vector<Part>& parts, uint64_t from,
                          uint64_t bytes, int threads, void* stream) {
  if (buffer.busy) {
    if (const int status = dgb_mark_wait(buffer.copied)) return status;
  }
  const uint64_t heads = parts.back().index + parts.back().last - parts.back().first;
  gather(parts, from, heads, buffer.at, threads);
  const uint64_t all = heads * sizeof(PieceHead) + bytes;
  if (buffer.busy) {
    if (const int status = dgb_mark_await(buffer.placed, stream)) return status;
  }
  if (const int status = dgb_copy_in(buffer.there, buffer.at, all, stream)) return status;
  buffer.busy = true;
  if (const int status = dgb_mark_set(buffer.copied, stream)) return status;
  ScatterPieces functor{};
  functor.heads = static_cast<const PieceHead*>(buffer.there);
  functor.content = static_cast<const FourWords*>(buffer.there) + heads;
  const int status = dgb_scatter_pieces(&functor, static_cast<int64_t>(heads), stream);
  const int marked = dgb_mark_set(buffer.placed, stream);
  return status == 0 ? marked : status;
}

int PatchSender::send(const std::vector<PatchList>& lists, int threads, void* stream) {
  static_assert(sizeof(PieceHead) == sizeof(FourWords), "pieces begin at a multiple of 16 bytes");
  std::vector<Part> parts;
  uint64_t base = 0;   // of the list among all
  uint64_t from = 0;   // of the buffer among all
  uint64_t index = 0;  // pieces in the buffer
  std::size_t turn = 0;
  const auto flush = [&](uint64_t end) {
    if (parts.empty()) return 0;
    const int status =
        send_one(buffers_[turn++ % 2], parts, from, end - from, threads, stream);
    parts.clear();
    from = end;
    index = 0;
    return status;
  };
  for (const PatchList& list : lists) {
    const std::size_t count = list.patches.size();
    for (std::size_t first = 0; first < count;) {
      const auto fits = std::partition_point(
          list.patches.begin() + static_cast<std::ptrdiff_t>(first), list.patches.end(),
          [&](const Patch& patch) { return base + patch.place < from + kRoom; });
      const auto last = static_cast<std::size_t>(fits - list.patches.begin());
      if (last > first) parts.push_back({&list, first, last, base, index});
      index += last - first;
      first = last;
      if (last == count) continue;
      if (const int status = flush(base + list.patches[last].place)) return status;
    }
    base += list.packed;
  }
  return flush(base);
}

}  // namespace dgbench::temporal
