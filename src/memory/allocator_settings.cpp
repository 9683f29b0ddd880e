#include "memory/allocator_settings.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

namespace headroom::memory {
namespace {

constexpr size_t kMaxConfigLength = 4096;
constexpr size_t kFirstIntervalLog2 = 20;  // intervals start at 1 MiB

struct Token {
  std::string_view text;
  size_t offset = 0;
};

bool is_mark(char c) { return c == ',' || c == ':' || c == '[' || c == ']'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::vector<Token> split_into_tokens(std::string_view text) {
  std::vector<Token> tokens;
  size_t i = 0;
  while (i < text.size()) {
    if (is_space(text[i])) {
      ++i;
      continue;
    }
    const size_t start = i++;
    if (!is_mark(text[start])) {
      while (i < text.size() && !is_mark(text[i]) && !is_space(text[i])) ++i;
    }
    tokens.push_back({text.substr(start, i - start), start});
  }
  return tokens;
}

class ConfigParser {
 public:
  explicit ConfigParser(std::string_view text)
      : tokens_(split_into_tokens(text)), end_(text.size()) {}

  Result<AllocatorSettings> parse() {
    while (!done()) {
      const Token key = tokens_[next_++];
      HEADROOM_TRY(expect(":"));
      HEADROOM_TRY(parse_value(key));
      if (done()) break;
      HEADROOM_TRY(expect(","));
    }
    if (settings_.max_split_size_bytes < settings_.large_segment_size_bytes) {
      return error_at(0, "max_split_size_mb is below the large segment size");
    }
    return settings_;
  }

 private:
  [[nodiscard]] bool done() const { return next_ >= tokens_.size(); }

  static Error error_at(size_t offset, std::string message) {
    return Error{ErrorCode::bad_input, std::move(message),
                 "allocator settings, byte " + std::to_string(offset),
                 "the format is that of PYTORCH_CUDA_ALLOC_CONF: key:value,key:value"};
  }

  Result<Token> take(std::string_view what) {
    if (done()) return error_at(end_, "expected " + std::string(what) + ", found the end");
    return tokens_[next_++];
  }
  Result<void> expect(std::string_view mark) {
    HEADROOM_ASSIGN(const Token token, take("'" + std::string(mark) + "'"));
    if (token.text == mark) return {};
    return error_at(token.offset, "expected '" + std::string(mark) + "', found '" +
                                      std::string(token.text) + "'");
  }
  Result<int64_t> take_integer(int64_t low, int64_t high) {
    HEADROOM_ASSIGN(const Token token, take("a number"));
    int64_t value = 0;
    const char* const last = token.text.data() + token.text.size();
    const auto [stop, failure] = std::from_chars(token.text.data(), last, value);
    if (failure != std::errc{} || stop != last || value < low || value > high) {
      return error_at(token.offset, "expected a whole number from " + std::to_string(low) + " to " +
                                        std::to_string(high) + ", found '" +
                                        std::string(token.text) + "'");
    }
    return value;
  }
  Result<double> take_fraction(bool one_allowed) {
    HEADROOM_ASSIGN(const Token token, take("a number"));
    double value = 0;
    const char* const last = token.text.data() + token.text.size();
    const auto [stop, failure] = std::from_chars(token.text.data(), last, value);
    const bool in_range = value > 0 && (one_allowed ? value <= 1 : value < 1);
    if (failure != std::errc{} || stop != last || !std::isfinite(value) || !in_range) {
      return error_at(token.offset,
                      "expected a number between 0 and 1, found '" + std::string(token.text) + "'");
    }
    return value;
  }
  Result<bool> take_bool() {
    HEADROOM_ASSIGN(const Token token, take("True or False"));
    if (token.text == "True") return true;
    if (token.text == "False") return false;
    return error_at(token.offset,
                    "expected True or False, found '" + std::string(token.text) + "'");
  }
  Result<int64_t> take_mebibytes(int64_t low) {
    HEADROOM_ASSIGN(const int64_t mebibytes, take_integer(low, kMaxRequest / kMiB));
    return mebibytes * kMiB;
  }

  Result<void> parse_value(const Token& key) {
    const std::string_view name = key.text;
    if (name == "max_split_size_mb") {
      HEADROOM_ASSIGN(settings_.max_split_size_bytes, take_mebibytes(1));
    } else if (name == "max_non_split_rounding_mb") {
      HEADROOM_ASSIGN(settings_.max_non_split_rounding_bytes, take_mebibytes(kLargeBuffer / kMiB));
    } else if (name == "large_segment_size_mb") {
      HEADROOM_ASSIGN(settings_.large_segment_size_bytes, take_mebibytes(kMinLargeAlloc / kMiB));
    } else if (name == "garbage_collection_threshold") {
      HEADROOM_ASSIGN(settings_.garbage_collection_threshold, take_fraction(false));
    } else if (name == "per_process_memory_fraction") {
      HEADROOM_ASSIGN(settings_.memory_fraction, take_fraction(true));
    } else if (name == "expandable_segments") {
      HEADROOM_ASSIGN(settings_.expandable_segments, take_bool());
    } else if (name == "roundup_power2_divisions") {
      return parse_divisions();
    } else if (name == "backend") {
      return parse_backend();
    } else {
      return skip_harmless(key);
    }
    return {};
  }

  Result<void> parse_backend() {
    HEADROOM_ASSIGN(const Token token, take("a back end"));
    if (token.text == "native") return {};
    Error error = error_at(
        token.offset, "back end '" + std::string(token.text) + "' is not the caching allocator");
    error.hint = "only backend:native can be replayed";
    return error;
  }

  // Settings that change locks, host memory or graph capture, and no device address.
  Result<void> skip_harmless(const Token& key) {
    static constexpr std::array<std::string_view, 10> kHarmless = {
        "release_lock_on_cudamalloc",     "release_lock_on_hipmalloc",
        "pinned_use_cuda_host_register",  "pinned_use_hip_host_register",
        "pinned_num_register_threads",    "pinned_use_background_threads",
        "pinned_reserve_segment_size_mb", "graph_capture_record_stream_reuse",
        "throw_on_cudamalloc_oom",        "pinned_max_round_threshold_mb"};
    if (std::find(kHarmless.begin(), kHarmless.end(), key.text) == kHarmless.end()) {
      return error_at(key.offset, "unknown setting '" + std::string(key.text) + "'");
    }
    HEADROOM_ASSIGN(const Token value, take("a value"));
    if (is_mark(value.text.front())) return error_at(value.offset, "expected a value");
    return {};
  }

  Result<int64_t> take_divisions() {
    const size_t offset = done() ? end_ : tokens_[next_].offset;
    HEADROOM_ASSIGN(const int64_t divisions, take_integer(0, int64_t{1} << 20));
    if (divisions == 0 || std::has_single_bit(static_cast<uint64_t>(divisions))) return divisions;
    return error_at(offset, "divisions must be a power of two, or 0");
  }

  // "roundup_power2_divisions:4", or a list "[256:1,512:2,>:4]" of an interval's start in MiB and
  // its divisions. The first entry also holds for all smaller sizes, and ">" for all after the last
  // one named; intervals that are named by nobody keep 0.
  Result<void> parse_divisions() {
    auto& table = settings_.roundup_power2_divisions;
    if (done() || tokens_[next_].text != "[") {
      HEADROOM_ASSIGN(const int64_t divisions, take_divisions());
      table.fill(divisions);
      return {};
    }
    ++next_;
    bool first = true;
    size_t after_last = 0;
    while (true) {
      if (!done() && tokens_[next_].text == ">") {
        ++next_;
        HEADROOM_TRY(expect(":"));
        HEADROOM_ASSIGN(const int64_t divisions, take_divisions());
        std::fill(table.begin() + static_cast<std::ptrdiff_t>(after_last), table.end(), divisions);
      } else {
        const size_t offset = done() ? end_ : tokens_[next_].offset;
        HEADROOM_ASSIGN(const int64_t start, take_integer(1, int64_t{1} << 30));
        if (!std::has_single_bit(static_cast<uint64_t>(start))) {
          return error_at(offset, "an interval must start at a power of two MiB");
        }
        const size_t index = std::min<size_t>(
            static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(start))), table.size() - 1);
        HEADROOM_TRY(expect(":"));
        HEADROOM_ASSIGN(const int64_t divisions, take_divisions());
        if (first) std::fill_n(table.begin(), index, divisions);
        table[index] = divisions;
        after_last = index + 1;
        first = false;
      }
      HEADROOM_ASSIGN(const Token token, take("',' or ']'"));
      if (token.text == "]") return {};
      if (token.text != ",") return error_at(token.offset, "expected ',' or ']'");
    }
  }

  AllocatorSettings settings_;
  std::vector<Token> tokens_;
  size_t end_ = 0;
  size_t next_ = 0;
};

int64_t divisions_for(const AllocatorSettings& settings, int64_t size) {
  const auto log2 = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(size))) - 1;
  const size_t index = log2 <= kFirstIntervalLog2 ? 0 : log2 - kFirstIntervalLog2;
  return settings.roundup_power2_divisions[std::min<size_t>(
      index, settings.roundup_power2_divisions.size() - 1)];
}

// The next multiple of (power of two below `size`) / divisions: 1200 with 4 divisions -> 1280.
int64_t round_to_division(int64_t size, int64_t divisions) {
  const auto floor = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size)));
  return round_up(size, floor / divisions);
}

}  // namespace

Result<AllocatorSettings> parse_allocator_config(std::string_view text) {
  if (text.size() > kMaxConfigLength) {
    return Error{ErrorCode::bad_input,
                 "longer than " + std::to_string(kMaxConfigLength) + " characters",
                 "allocator settings", ""};
  }
  return ConfigParser(text).parse();
}

int64_t rounded_size(const AllocatorSettings& settings, int64_t requested) {
  if (requested < kMinBlockSize) return kMinBlockSize;
  const int64_t divisions = divisions_for(settings, requested);
  if (divisions > 1 && requested > kMinBlockSize * divisions) {
    return round_to_division(requested, divisions);
  }
  return round_up(requested, kMinBlockSize);
}

int64_t segment_size_for(const AllocatorSettings& settings, int64_t size) {
  if (size <= kSmallSize) return kSmallBuffer;
  if (size < kMinLargeAlloc) return settings.large_segment_size_bytes;
  return round_up(size, kRoundLarge);
}

}  // namespace headroom::memory
