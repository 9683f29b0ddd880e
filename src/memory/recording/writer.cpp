#include "memory/recording/writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/hash.h"

namespace headroom::memory {
namespace {

constexpr size_t kWindowBytes = size_t{1} << 20;
constexpr uint64_t kSeeds[2] = {0x243F6A8885A308D3, 0x13198A2E03707344};  // pi: any numbers do
constexpr size_t kLongHeadBytes = 16;  // of a long record, before its content

struct PackedFrame {
  uint32_t function = 0;
  uint32_t file = 0;
  int32_t line = 0;
};

size_t slots_of(size_t content_bytes) {
  return (kLongHeadBytes + content_bytes + kRecordingSlotBytes - 1) / kRecordingSlotBytes;
}

}  // namespace

Result<std::unique_ptr<RecordingWriter>> RecordingWriter::open(const std::string& path,
                                                               const RecordingIdentity& identity) {
  const auto fail = [&path](const char* doing, int number) {
    return Error{ErrorCode::bad_input, std::string(doing) + ": " + std::strerror(number), path, ""};
  };
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return fail("cannot create the recording", errno);
  std::unique_ptr<RecordingWriter> writer(new RecordingWriter(file));
  writer->texts_.slots = std::make_unique<std::array<Known, Table::kSlots>>();
  writer->stacks_.slots = std::make_unique<std::array<Known, Table::kSlots>>();
  if (!writer->next_window()) return fail("no room for the recording", errno);
  RecordingHeader header;
  std::copy(kRecordingMagic.begin(), kRecordingMagic.end(), header.magic);
  header.start_unix_ns = identity.start_unix_ns;
  header.device = identity.device;
  header.rank = identity.rank;
  header.world_size = identity.world_size;
  header.device_total_bytes = identity.device_total_bytes;
  std::memcpy(writer->window_, &header, sizeof(header));
  writer->window_used_ = sizeof(header);
  return writer;
}

RecordingWriter::~RecordingWriter() { close(); }

// posix_fallocate gives the window its blocks, so that storing into the map cannot fail later. What
// is left of the window before is filled with a record that says nothing.
bool RecordingWriter::next_window() {
  const int64_t offset =
      window_ == nullptr ? 0 : window_offset_ + static_cast<int64_t>(kWindowBytes);
  const int refused = ::posix_fallocate(file_, offset, kWindowBytes);
  if (refused != 0) {
    errno = refused;
    return false;
  }
  void* const map =
      ::mmap(nullptr, kWindowBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, offset);
  if (map == MAP_FAILED) return false;
  if (window_ != nullptr) {
    const size_t rest = (kWindowBytes - window_used_) / kRecordingSlotBytes;
    publish(window_ + window_used_,
            {.kind = RecordKind::text, .stream = static_cast<uint16_t>(rest)});
    ::munmap(window_, kWindowBytes);
  }
  window_ = static_cast<char*>(map);
  window_offset_ = offset;
  window_used_ = 0;
  return true;
}

// Room for a record; null where there is none. A record never crosses a window, and the last slot
// of each is kept for the last word, in case no other window can be had.
char* RecordingWriter::place(size_t slots) {
  if (is_closed_ || is_full_) return nullptr;
  const size_t bytes = slots * kRecordingSlotBytes;
  if (kWindowBytes - window_used_ < bytes + kRecordingSlotBytes && !next_window()) {
    is_full_ = true;
    return nullptr;
  }
  char* const at = window_ + window_used_;
  window_used_ += bytes;
  return at;
}

// All but the first byte, then that one: a reader of a killed run sees a record whole or not at
// all.
void RecordingWriter::publish(char* at, const RecordingSlot& slot) {
  std::memcpy(at + 1, reinterpret_cast<const char*>(&slot) + 1, sizeof(slot) - 1);
  std::atomic_ref<uint8_t>(*reinterpret_cast<uint8_t*>(at))
      .store(static_cast<uint8_t>(slot.kind), std::memory_order_release);
}

// Where `bytes` are in the table, or the vacant place for them; null where it is too full.
RecordingWriter::Known* RecordingWriter::find(Table& table, std::string_view bytes) {
  const uint64_t first = hash_bytes(bytes, kSeeds[0]);
  const uint64_t second = hash_bytes(bytes, kSeeds[1]);
  for (size_t i = first;; ++i) {
    Known& known = (*table.slots)[i % Table::kSlots];
    if (known.number != 0 && known.first == first && known.second == second) return &known;
    if (known.number != 0) continue;
    if (table.count >= Table::kSlots / 2) return nullptr;
    known.first = first;
    known.second = second;
    return &known;
  }
}

void RecordingWriter::write_long(RecordKind kind, uint32_t number, int64_t length,
                                 std::string_view content) {
  const size_t slots = slots_of(content.size());
  char* const at = place(slots);
  if (at == nullptr) {
    ++dropped_;
    return;
  }
  std::memcpy(at + kLongHeadBytes, content.data(), content.size());
  RecordingSlot head{
      .kind = kind, .stream = static_cast<uint16_t>(slots), .stack = number, .address = length};
  std::memcpy(&head.size, at + kLongHeadBytes, sizeof(head) - kLongHeadBytes);  // as it is there
  publish(at, head);
}

uint32_t RecordingWriter::text(std::string_view text) {
  text = text.substr(0, kMostTextBytes);
  Known* const known = find(texts_, text);
  if (known == nullptr) return 0;
  if (known->number == 0) {
    known->number = ++texts_.count;
    write_long(RecordKind::text, known->number, static_cast<int64_t>(text.size()), text);
  }
  return known->number;
}

uint32_t RecordingWriter::stack(std::span<const Frame> frames) {
  const std::lock_guard lock(mutex_);
  std::array<PackedFrame, kMostFrames> packed;
  const size_t count = std::min(frames.size(), kMostFrames);
  if (count == 0) return 0;
  for (size_t i = 0; i < count; ++i) {
    packed[i] = {text(frames[i].function), text(frames[i].file), frames[i].line};
  }
  const std::string_view bytes(reinterpret_cast<const char*>(packed.data()),
                               count * sizeof(PackedFrame));
  Known* const known = find(stacks_, bytes);
  if (known == nullptr) return 0;
  if (known->number == 0) {
    known->number = ++stacks_.count;
    write_long(RecordKind::call_stack, known->number, static_cast<int64_t>(count), bytes);
  }
  return known->number;
}

uint16_t RecordingWriter::stream_index(int64_t handle) {
  for (size_t i = 0; i < stream_count_; ++i) {
    if (streams_[i] == handle) return static_cast<uint16_t>(i);
  }
  // The last one stands for all that do not fit.
  if (stream_count_ == kMostStreams) return static_cast<uint16_t>(kMostStreams - 1);
  if (stream_count_ == kMostStreams - 1) handle = -1;
  char* const at = place(1);
  if (at == nullptr) return 0;
  const auto index = static_cast<uint16_t>(stream_count_++);
  streams_[index] = handle;
  publish(at, {.kind = RecordKind::stream, .stream = index, .address = handle});
  return index;
}

void RecordingWriter::event(RecordKind kind, const Event& event) {
  const std::lock_guard lock(mutex_);
  const uint16_t stream = stream_index(event.stream);
  char* const at = place(1);
  if (at == nullptr) {
    ++dropped_;
    return;
  }
  publish(at, {.kind = kind,
               .stream = stream,
               .stack = event.stack,
               .address = event.address,
               .size = event.size,
               .time_ns = event.time_ns});
}

void RecordingWriter::phase(std::string_view name, int64_t time_ns) {
  const std::lock_guard lock(mutex_);
  const uint32_t number = text(name);
  char* const at = place(1);
  if (at == nullptr) {
    ++dropped_;
    return;
  }
  publish(at, {.kind = RecordKind::phase, .stack = number, .time_ns = time_ns});
}

void RecordingWriter::setting(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  const std::array<uint32_t, 2> pair = {text(key), text(value)};
  write_long(RecordKind::setting, 0, 2, {reinterpret_cast<const char*>(pair.data()), sizeof(pair)});
}

void RecordingWriter::close() {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return;
  is_closed_ = true;
  if (window_ != nullptr) {
    publish(window_ + window_used_, {.kind = RecordKind::end, .address = dropped_.load()});
    window_used_ += kRecordingSlotBytes;
  }
  const int64_t length = window_offset_ + static_cast<int64_t>(window_used_);
  if (window_ != nullptr) {
    ::munmap(window_, kWindowBytes);
    // Where this fails the rest stays zero, which a reader takes for the end.
    static_cast<void>(::ftruncate(file_, length) == 0);
  }
  ::close(file_);
}

}  // namespace headroom::memory
