#include "memory/recording/reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <optional>

namespace headroom::memory {
namespace {

static_assert(std::endian::native == std::endian::little, "slots are read as they lie in the file");

constexpr size_t kMostNotes = 20;
constexpr int64_t kMostAddress = int64_t{1} << 62;

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  Result<RunRecording> read() {
    HEADROOM_TRY(read_header());
    result_.events.reserve(bytes_.size() / kRecordingSlotBytes);
    while (read_record()) {
    }
    if (!result_.is_complete) {
      note("the recording ends at " + place() +
           " without its last word: the run was killed or the file was cut; what it holds up to " +
           "there was read");
    }
    if (passed_over_ > 0) {
      note(std::to_string(passed_over_) +
           " records cannot be true and were passed over, the first " + "at byte " +
           std::to_string(first_passed_over_));
    }
    if (unknown_ > 0) {
      note(std::to_string(unknown_) + " records are of a kind that is not known here");
    }
    if (result_.dropped_events > 0) {
      note("the run could not write " + std::to_string(result_.dropped_events) +
           " events: the disk was full");
    }
    result_.is_partial = !result_.is_complete || passed_over_ > 0 || result_.dropped_events > 0;
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::string place() const { return "byte " + std::to_string(at_); }
  Error error(std::string message, std::string hint = {}) const {
    return {ErrorCode::bad_input, std::move(message), file_ + ": " + place(), std::move(hint)};
  }
  void note(std::string text) {
    if (result_.notes.size() < kMostNotes) result_.notes.push_back(std::move(text));
  }

  Result<void> read_header() {
    if (!is_recording(bytes_)) return error("not a recording of Headroom's");
    RecordingHeader header;
    if (bytes_.size() < sizeof(header)) return error("the recording ends within its header");
    std::memcpy(&header, bytes_.data(), sizeof(header));
    if (header.version != kRecordingVersion || header.slot_bytes != kRecordingSlotBytes) {
      return error("a recording of version " + std::to_string(header.version) +
                       "; this program reads version " + std::to_string(kRecordingVersion),
                   "use the version of Headroom that wrote it, or a newer one");
    }
    result_.device = std::max(0, header.device);
    result_.rank = std::max(0, header.rank);
    result_.world_size = std::max(1, header.world_size);
    result_.start_unix_ns = header.start_unix_ns;
    result_.device_total_bytes = std::max<int64_t>(0, header.device_total_bytes);
    at_ = sizeof(header);
    return {};
  }

  // False at the end, whole or not.
  bool read_record() {
    if (bytes_.size() - at_ < kRecordingSlotBytes) return false;
    RecordingSlot slot;
    std::memcpy(&slot, bytes_.data() + at_, sizeof(slot));
    const auto kind = static_cast<uint8_t>(slot.kind);
    if (slot.kind == RecordKind::nothing) return false;
    const size_t slots = kind < kFirstLong ? 1 : slot.stream;
    const size_t length = slots * kRecordingSlotBytes;
    if (slots == 0) {  // there is no telling where the next one begins
      pass_over();
      return false;
    }
    if (length > bytes_.size() - at_) return false;
    if (kind < kFirstLong) {
      take_event(slot);
    } else {
      take_long(slot, bytes_.substr(at_ + offsetof(RecordingSlot, size),
                                    length - offsetof(RecordingSlot, size)));
    }
    at_ += length;
    return !result_.is_complete;
  }

  void pass_over() {
    if (passed_over_++ == 0) first_passed_over_ = at_;
  }

  void take_event(RecordingSlot slot) {
    if (slot.kind > RecordKind::end) {
      ++unknown_;
    } else if (slot.kind == RecordKind::end) {
      result_.is_complete = true;
      result_.dropped_events = std::max<int64_t>(0, slot.address);
    } else if (slot.kind == RecordKind::stream) {
      if (slot.stream != result_.streams.size()) return pass_over();
      result_.streams.push_back(slot.address);
    } else {
      const bool is_phase = slot.kind == RecordKind::phase;
      const auto stack = is_phase ? text_of(slot.stack) : stack_of(slot.stack);
      const bool is_stream_known = slot.stream < result_.streams.size() || is_phase;
      const bool is_address = slot.address >= 0 && slot.address < kMostAddress;
      const bool is_plausible = (is_address || slot.kind > RecordKind::stream_use) &&
                                slot.size >= 0 && slot.size < kMostAddress && slot.time_ns >= 0;
      if (!stack || !is_stream_known || !is_plausible) return pass_over();
      slot.stack = *stack;
      result_.events.push_back(slot);
    }
  }

  void take_long(const RecordingSlot& slot, std::string_view content) {
    if (slot.kind == RecordKind::text && slot.stack == 0) return;  // fills a window
    if (slot.kind == RecordKind::text) return take_text(slot, content);
    if (slot.kind == RecordKind::call_stack) return take_stack(slot, content);
    if (slot.kind == RecordKind::setting) return take_setting(content);
    ++unknown_;
  }

  void take_text(const RecordingSlot& slot, std::string_view content) {
    const bool fits = slot.address >= 0 && static_cast<uint64_t>(slot.address) <= content.size();
    if (!fits || slot.stack != texts_.size() + 1) return pass_over();
    texts_.push_back(result_.sites.add_text(content.substr(0, static_cast<size_t>(slot.address))));
  }

  void take_stack(const RecordingSlot& slot, std::string_view content) {
    constexpr size_t kFrameBytes = 12;
    const bool fits =
        slot.address > 0 && static_cast<uint64_t>(slot.address) <= content.size() / kFrameBytes;
    if (!fits || slot.stack != stacks_.size() + 1) return pass_over();
    frames_.clear();
    for (int64_t i = 0; i < slot.address; ++i) {
      std::array<uint32_t, 3> words{};
      std::memcpy(words.data(), content.data() + static_cast<size_t>(i) * kFrameBytes, kFrameBytes);
      const auto function = text_of(words[0]);
      const auto file = text_of(words[1]);
      if (!function || !file) return pass_over();
      frames_.push_back(
          result_.sites.add_frame({*function, *file, static_cast<int32_t>(words[2])}));
    }
    stacks_.push_back(result_.sites.add_stack(frames_));
  }

  void take_setting(std::string_view content) {
    std::array<uint32_t, 2> pair{};
    if (content.size() < sizeof(pair)) return pass_over();
    std::memcpy(pair.data(), content.data(), sizeof(pair));
    const auto key = text_of(pair[0]);
    const auto value = text_of(pair[1]);
    if (!key || !value) return pass_over();
    result_.settings.emplace_back(result_.sites.text(*key), result_.sites.text(*value));
  }

  // The file's numbers count from 1, and 0 is none.
  [[nodiscard]] std::optional<uint32_t> text_of(uint32_t number) const {
    if (number == 0) return 0;
    return number <= texts_.size() ? std::optional(texts_[number - 1]) : std::nullopt;
  }
  [[nodiscard]] std::optional<uint32_t> stack_of(uint32_t number) const {
    if (number == 0) return 0;
    return number <= stacks_.size() ? std::optional(stacks_[number - 1]) : std::nullopt;
  }

  std::string_view bytes_;
  const std::string& file_;
  size_t at_ = 0;
  RunRecording result_;
  std::vector<uint32_t> texts_;   // of result_.sites, by the file's number less 1
  std::vector<uint32_t> stacks_;  // the same
  std::vector<uint32_t> frames_;
  int64_t passed_over_ = 0;
  size_t first_passed_over_ = 0;
  int64_t unknown_ = 0;
};

}  // namespace

bool is_recording(std::string_view first_bytes) { return first_bytes.starts_with(kRecordingMagic); }

Result<RunRecording> parse_recording(std::string_view bytes, const std::string& file) {
  return Reader(bytes, file).read();
}

}  // namespace headroom::memory
