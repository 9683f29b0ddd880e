#include "text/byte_feed.h"

#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "text/gzip.h"

namespace headroom::text {
namespace {

constexpr size_t kPiece = size_t{256} << 10;

enum class Form { unknown, plain, gzip };

const char* fault_of(int status) {
  switch (status) {
    case ISAL_INVALID_BLOCK:
      return "a block of no known kind";
    case ISAL_INVALID_SYMBOL:
      return "a code that means nothing";
    case ISAL_INVALID_LOOKBACK:
      return "a reference to before its begin";
    case ISAL_INCORRECT_CHECKSUM:
      return "the checksum is another";
    default:
      return "its header";
  }
}

}  // namespace

struct ByteFeed::State {
  State() : packed(kPiece) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (file != nullptr && file != stdin) std::fclose(file);
  }

  // Fills `ready` where it is empty; what stays empty is at its end.
  void refill() {
    if (!ready.empty() || file == nullptr) return;
    ready = {packed.data(), std::fread(packed.data(), 1, packed.size(), file)};
  }

  // By the first two bytes, whatever the name of the file is.
  void find_form() {
    if (file != nullptr) {
      size_t have = std::fread(packed.data(), 1, 2, file);
      have += std::fread(packed.data() + have, 1, packed.size() - have, file);
      ready = {packed.data(), have};
    }
    form = is_gzip(ready) ? Form::gzip : Form::plain;
    if (form == Form::gzip) begin_member();
  }

  void begin_member() {
    isal_inflate_init(&stream);
    stream.crc_flag = ISAL_GZIP;  // with header and checksum
    at_member_end = false;
  }

  size_t copy(char* out, size_t capacity) {
    if (file != nullptr && ready.empty()) return std::fread(out, 1, capacity, file);
    const size_t count = std::min(capacity, ready.size());
    std::memcpy(out, ready.data(), count);
    ready.remove_prefix(count);
    return count;
  }

  [[nodiscard]] Error packed_error(const std::string& name, std::string message) const {
    return Error{ErrorCode::bad_input, std::move(message),
                 name + ": byte " + std::to_string(taken) + " of the gzip data", ""};
  }

  // One step of inflate: how many bytes it wrote. Nothing new and no end is an Error.
  Result<size_t> inflate_some(const std::string& name, char* out, size_t capacity) {
    refill();
    if (at_member_end) {
      // Zeros may pad the last member; another one may follow.
      if (!is_gzip(ready)) return size_t{0};
      begin_member();
    }
    const auto offered_in = static_cast<uint32_t>(std::min(ready.size(), size_t{1} << 30));
    const auto offered_out = static_cast<uint32_t>(std::min(capacity, size_t{1} << 30));
    // The interface has no const; it does not write to its input.
    stream.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(ready.data()));
    stream.avail_in = offered_in;
    stream.next_out = reinterpret_cast<uint8_t*>(out);
    stream.avail_out = offered_out;
    const int status = isal_inflate(&stream);
    const size_t used = offered_in - stream.avail_in;
    const size_t written = offered_out - stream.avail_out;
    taken += static_cast<int64_t>(used);
    ready.remove_prefix(used);
    if (status < 0) {
      failure = packed_error(name, std::string("is corrupt gzip data: ") + fault_of(status));
    } else if (stream.block_state == ISAL_BLOCK_FINISH) {
      at_member_end = true;
    } else if (used == 0 && written == 0) {
      failure = packed_error(name, "ends in the middle of its gzip data; the file is truncated");
    }
    if (written == 0 && failure) return *failure;
    return written;
  }

  Form form = Form::unknown;
  std::FILE* file = nullptr;  // null for memory
  std::vector<char> packed;
  std::string_view ready;  // what is read and not yet taken
  std::string peeked;      // what was looked at and not yet taken, unpacked
  size_t peeked_taken = 0;
  inflate_state stream{};
  bool at_member_end = false;
  int64_t taken = 0;
  std::optional<Error> failure;
};

ByteFeed::ByteFeed(std::string_view data, std::string name)
    : name_(std::move(name)), state_(std::make_unique<State>()) {
  state_->ready = data;
}

ByteFeed::ByteFeed(ByteFeed&&) noexcept = default;
ByteFeed& ByteFeed::operator=(ByteFeed&&) noexcept = default;
ByteFeed::~ByteFeed() = default;

Result<ByteFeed> ByteFeed::open(const std::string& path) {
  ByteFeed feed({}, path == "-" ? "standard input" : path);
  feed.state_->file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (feed.state_->file == nullptr) {
    return Error{ErrorCode::bad_input, std::string("cannot be read: ") + std::strerror(errno), path,
                 ""};
  }
  return feed;
}

Result<std::string_view> ByteFeed::peek(size_t count) {
  State& state = *state_;
  state.peeked.erase(0, state.peeked_taken);
  state.peeked_taken = 0;
  while (state.peeked.size() < count) {
    const size_t have = state.peeked.size();
    state.peeked.resize(count);
    const Result<size_t> more = read_on(state.peeked.data() + have, count - have);
    state.peeked.resize(have + (more ? *more : 0));
    if (!more && have == 0) return more.error();
    if (!more || *more == 0) break;  // a fault comes again, to whom reads up to it
  }
  return std::string_view(state.peeked).substr(0, count);
}

Result<size_t> ByteFeed::read(char* out, size_t capacity) {
  HEADROOM_CHECK(capacity > 0, "a read of nothing");
  State& state = *state_;
  if (state.peeked_taken == state.peeked.size()) return read_on(out, capacity);
  const size_t count = state.peeked.copy(out, capacity, state.peeked_taken);
  state.peeked_taken += count;
  return count;
}

Result<size_t> ByteFeed::read_on(char* out, size_t capacity) {
  State& state = *state_;
  if (state.form == Form::unknown) state.find_form();
  if (state.failure) return *state.failure;
  if (state.form == Form::plain) {
    const size_t count = state.copy(out, capacity);
    if (count == 0 && state.file != nullptr && std::ferror(state.file) != 0) {
      return Error{ErrorCode::bad_input, std::string("cannot be read: ") + std::strerror(errno),
                   name_, ""};
    }
    return count;
  }
  for (;;) {
    HEADROOM_ASSIGN(const size_t count, state.inflate_some(name_, out, capacity));
    if (count > 0) return count;
    if (state.at_member_end) {
      state.refill();
      if (!is_gzip(state.ready)) return size_t{0};
    }
  }
}

}  // namespace headroom::text
