// A pickle is a program for a small stack machine. This is the part of the machine that builds
// data. Opcodes as in CPython's Lib/pickletools.py.
//
// What makes it fast: operands are read from a window with room behind it, so that one comparison
// an instruction guards them all, and whatever it pushes has room before the window is begun;
// nothing is allocated for a container that becomes a record; the pairs of a dict are read in a
// loop of their own, as most keys are references and most values small; and a list that consists of
// references alone (a call stack is one, and two thirds of a recording are call stacks) is compared
// with the list that followed the last such one before, and found by its bytes, before it is read.
#include "formats/pickle.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace headroom::formats {
namespace {

constexpr uint8_t kHighestProtocol = 5;
// No instruction and its operands are longer, nor is a pair of a dict as read_pairs() takes it;
// texts of BINUNICODE apart, which are measured.
constexpr size_t kLongestInstruction = 300;
static_assert(kLongestInstruction <= ByteSource::kPadding);
constexpr size_t kLeastWindow = ByteSource::kMostAhead;
constexpr size_t kMostWindow = size_t{1} << 16;

constexpr char kReference = 'h';      // BINGET
constexpr char kLongReference = 'j';  // LONG_BINGET
constexpr char kAppends = 'e';
constexpr char kSetItems = 'u';
constexpr char kMark = '(';
constexpr char kEmptyList = ']';
constexpr char kMemoize = '\x94';
constexpr char kPut = 'q';      // BINPUT
constexpr char kLongPut = 'r';  // LONG_BINPUT

std::string hexadecimal(uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {'0', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
}

// What the refused opcodes are called in CPython, where a user may know the name.
std::string_view refused_name(uint8_t opcode) {
  switch (opcode) {
    case 'c':
      return "GLOBAL";
    case 0x93:
      return "STACK_GLOBAL";
    case 'R':
      return "REDUCE";
    case 'b':
      return "BUILD";
    case 'i':
      return "INST";
    case 'o':
      return "OBJ";
    case 0x81:
      return "NEWOBJ";
    case 0x92:
      return "NEWOBJ_EX";
    case 'P':
      return "PERSID";
    case 'Q':
      return "BINPERSID";
    case 0x82:
      return "EXT1";
    case 0x83:
      return "EXT2";
    case 0x84:
      return "EXT4";
    case 0x97:
      return "NEXT_BUFFER";
    default:
      return "";
  }
}

// Little-endian, of 0 to 8 bytes. REQUIRES: so many can be read.
uint64_t unsigned_at(const char* at, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, at, bytes);
  return value;
}

// The same in two's complement, of 1 to 8 bytes. REQUIRES: 8 can be read.
int64_t long_at(const char* at, uint64_t bytes) {
  const unsigned spare = 64 - 8 * static_cast<unsigned>(bytes);
  const uint64_t value = unsigned_at(at, 8) << spare;  // what lies behind it is shifted out
  return static_cast<int64_t>(value) >> spare;
}

uint8_t byte_at(const char* at) { return static_cast<uint8_t>(*at); }

}  // namespace

// One run over one pickle.
class PickleMachine {
 public:
  PickleMachine(ByteSource& source, PickleSink* sink, const PickleLimits& limits)
      : source_(source), sink_(sink), limits_(limits) {}

  Result<PickleDocument> run() {
    HEADROOM_TRY(read_header());
    if (carry_out()) return std::move(document_);
    // What lies behind the end reads as zeros, so anything may have gone wrong there.
    if (is_beyond_end_) return source_.error_at(start_offset(), "the file ends here, too early");
    if (error_.where.empty()) error_.where = source_.error_at(start_offset(), "").where;
    return std::move(error_);
  }

 private:
  bool fail(std::string message, std::string hint = {}) {
    error_ = Error{ErrorCode::bad_input, std::move(message), "", std::move(hint)};
    return false;
  }
  // Why is said in run().
  [[gnu::noinline]] bool fail_end() { return fail(""); }
  [[gnu::noinline]] bool fail_memo(std::string_view what, uint64_t index) {
    return fail(std::string(what) + std::to_string(index) + " of " + std::to_string(memo_.size()));
  }
  [[nodiscard]] int64_t start_offset() const { return source_.offset() + (start_ - begin_); }

  Result<void> read_header() {
    const std::string_view head = source_.peek(2);
    if (head.size() < 2 || head[0] != '\x80') {
      Error error = source_.error_at(0, "not a pickle of protocol 2 or later");
      error.hint = "torch.cuda.memory._dump_snapshot() and pickle.dump() write one";
      return error;
    }
    const auto protocol = static_cast<uint8_t>(head[1]);
    if (protocol < 2 || protocol > kHighestProtocol) {
      return source_.error_at(
          0, "pickle protocol " + std::to_string(protocol) + "; 2 to 5 can be read");
    }
    return {};
  }

  // Takes what lies before `at`, and returns where that place is in the new window.
  const char* refill(const char* at) {
    source_.skip(static_cast<size_t>(at - begin_));
    source_.fill(kLeastWindow);
    const std::string_view window = source_.window();
    begin_ = window.data();
    end_ = begin_ + window.size();
    // Up to there an instruction may begin without another look.
    is_last_ = source_.is_last() && window.size() <= kMostWindow;
    safe_end_ =
        is_last_ ? end_ : begin_ + std::min(window.size() - kLongestInstruction, kMostWindow);
    // An instruction is at least a byte long, and pushes at most one of each.
    const size_t most = std::min(window.size(), kMostWindow) + kLongestInstruction;
    stack_.reserve_more(most);
    memo_.reserve_more(most);
    document_.containers_.reserve_more(most);
    return begin_;
  }

  bool carry_out() {
    begin_ = start_ = source_.window().data();
    const char* at = refill(begin_);
    for (;;) {
      start_ = at;
      if (at >= safe_end_) [[unlikely]] {
        if (is_last_) {
          is_beyond_end_ = true;
          return false;
        }
        start_ = at = refill(at);
        if (is_too_large()) return false;
        continue;
      }
      const uint8_t opcode = byte_at(at);
      if (opcode == '.') return finish();
      at = step(opcode, at + 1);
      if (at == nullptr) [[unlikely]] {
        is_beyond_end_ = end_of_failed_ > end_;
        return false;
      }
    }
  }

  bool is_too_large() {
    const auto over = [](size_t count, int64_t limit) {
      return count > static_cast<size_t>(limit);
    };
    if (over(stack_.size(), limits_.max_values)) return !fail("too many values");
    if (over(memo_.size(), limits_.max_memo)) return !fail("too large a memo");
    if (over(document_.containers_.size(), limits_.max_containers)) {
      return !fail("too many containers");
    }
    return false;
  }

  bool finish() {
    if (stack_.size() != 1 || !marks_.empty()) return fail("the pickle stops in the middle");
    document_.root_ = stack_.back();
    return true;
  }

  // Where the next instruction begins, if this one went well.
  [[gnu::always_inline]] const char* then(bool is_well, const char* next) {
    if (is_well) [[likely]]
      return next;
    end_of_failed_ = next;
    return nullptr;
  }

  // Carries out one instruction whose operands begin at `at`; null where it cannot be.
  [[gnu::always_inline]] const char* step(uint8_t opcode, const char* at) {
    switch (opcode) {
      case kReference:
        return then(recall(byte_at(at)), at + 1);
      case kLongReference:
        return then(recall(unsigned_at(at, 4)), at + 4);
      case 0x94:
        return then(remember(memo_.size()), at);  // MEMOIZE
      case 'q':
        return then(remember(byte_at(at)), at + 1);  // BINPUT
      case 'r':
        return then(remember(unsigned_at(at, 4)), at + 4);  // LONG_BINPUT
      case kMark:
        return open_mark(at);
      case '}':
        return push_dict(at);
      case 'K':
        return then(push_integer(byte_at(at)), at + 1);  // BININT1
      case 'M':
        return then(push_integer(static_cast<int64_t>(unsigned_at(at, 2))), at + 2);  // BININT2
      case 'J':                                                                       // BININT
        return then(push_integer(static_cast<int32_t>(unsigned_at(at, 4))), at + 4);
      case 0x8a:
        return push_long(byte_at(at), at + 1);  // LONG1
      case 0x8b:
        return push_long(unsigned_at(at, 4), at + 4);  // LONG4
      case 'G':                                        // BINFLOAT, the only big-endian one
        return then(push(document_.make_real(__builtin_bswap64(unsigned_at(at, 8)))), at + 8);
      case 0x8c:
        return then(push_text({at + 1, byte_at(at)}), at + 1 + byte_at(at));  // SHORT_BINUNICODE
      case 'X':
        return push_long_text(unsigned_at(at, 4), at + 4);  // BINUNICODE
      case 0x8d:
        return push_long_text(unsigned_at(at, 8), at + 8);  // BINUNICODE8
      case 'N':
        return then(push({}), at);
      case 0x88:
        return then(push({PickleKind::boolean, 1}), at);
      case 0x89:
        return then(push({PickleKind::boolean, 0}), at);
      case 0x80:
        return at + 1;  // PROTO
      case 0x95:
        return at + 8;  // FRAME: a hint for buffering
      default:
        return then(step_container(opcode), at);
    }
  }

  bool step_container(uint8_t opcode) {
    switch (opcode) {
      case ']':
        return push_container(PickleKind::list);
      case ')':
        return push_container(PickleKind::tuple);
      case 0x85:
        return gather_tuple(1);
      case 0x86:
        return gather_tuple(2);
      case 0x87:
        return gather_tuple(3);
      case 't':
        return take_mark() && gather_tuple(group_);
      case 'l':
        return take_mark() && gather(PickleKind::list, group_);
      case 'd':
        return take_mark() && gather(PickleKind::dict, group_);
      case 'a':
        return append(1);
      case 's':
        return set_items(2);
      case kAppends:
        return take_mark() && append(group_);
      case 'u':
        return take_mark() && set_items(group_);
      default:
        return refuse(opcode);
    }
  }

  bool refuse(uint8_t opcode) {
    const std::string_view name = refused_name(opcode);
    if (name.empty())
      return fail("instruction " + hexadecimal(opcode) + " is not one of plain data");
    return fail("instruction " + std::string(name) + " would run code from the file",
                "only pickles of plain dicts, lists, texts and numbers are read");
  }

  [[gnu::always_inline]] bool push(PickleValue value) {
    stack_.push(value);
    return true;
  }
  [[gnu::always_inline]] bool push_integer(int64_t value) {
    return push(document_.make_integer(value));
  }

  // Little-endian two's complement of any length; what does not fit 64 bits is refused.
  const char* push_long(uint64_t length, const char* at) {
    if (length > 8) return then(fail("an integer of more than 64 bits"), at);
    if (length == 0) return then(push_integer(0), at);
    return then(push_integer(long_at(at, length)), at + length);
  }

  [[gnu::always_inline]] bool push_text(std::string_view text) {
    if (text.data() + text.size() > end_) [[unlikely]]
      return fail_end();
    if (text.size() > 8) return push({PickleKind::text, document_.texts_.intern(text)});
    // Short ones repeat each other ("N/A").
    const uint64_t word = text.empty() ? 0 : unsigned_at(text.data(), 8) << (64 - 8 * text.size());
    if (word != last_word_ || text.size() != last_size_) {
      last_text_ = {PickleKind::text, document_.texts_.intern(text)};
      last_word_ = word;
      last_size_ = text.size();
    }
    return push(last_text_);
  }
  const char* push_long_text(uint64_t length, const char* at) {
    if (at > end_) return then(fail_end(), at);
    if (length <= static_cast<size_t>(std::max<std::ptrdiff_t>(0, end_ - at))) {
      return then(push_text({at, length}), at + length);
    }
    if (length > static_cast<uint64_t>(limits_.max_text_bytes)) {
      return then(fail("a text of " + std::to_string(length) + " bytes"), at);
    }
    // It goes on beyond the window: piece by piece.
    std::string text;
    for (at = refill(at);; at = refill(end_)) {
      start_ = begin_;
      const size_t part = std::min<size_t>(length - text.size(), static_cast<size_t>(end_ - at));
      text.append(at, part);
      if (text.size() == length) {
        return then(push({PickleKind::text, document_.texts_.intern(text)}), at + part);
      }
      if (source_.is_last()) return then(fail_end(), end_ + 1);
    }
  }

  bool push_container(PickleKind kind) { return push(document_.make_container(kind)); }

  // Takes the last mark off; group_ is how many values lie above it.
  [[gnu::always_inline]] bool take_mark() {
    if (marks_.empty()) [[unlikely]]
      return fail("a group that was never opened");
    group_ = stack_.size() - marks_.back();
    marks_.pop_back();
    return true;
  }
  // There are as many values that an instruction may touch: those above the last open mark.
  [[gnu::always_inline]] bool need(size_t count) {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    return stack_.size() - floor >= count || fail_operands();
  }
  [[gnu::noinline]] bool fail_operands() { return fail("an instruction without its operands"); }

  bool count_values(size_t count) {
    values_ += static_cast<int64_t>(count);
    return values_ <= limits_.max_values || fail("too many values");
  }

  // Replaces the last `count` values by one tuple of them.
  bool gather_tuple(size_t count) {
    if (!need(count) || !count_values(count + 1)) return false;
    const PickleValue tuple = document_.make_container(PickleKind::tuple);
    document_.keep_tuple(tuple, stack_.last(count));
    stack_.drop(count);
    return push(tuple);
  }
  // The same for a list or a dict: an empty one is put below them, and then they are added to it.
  bool gather(PickleKind kind, size_t count) {
    push_container(kind);
    PickleValue* const top = &stack_.back();
    std::rotate(top - count, top, top + 1);
    return kind == PickleKind::list ? append(count) : set_items(count);
  }

  // The container below the last `count` values, which are to be put into it.
  bool find_target(size_t count, PickleKind kind) {
    if (!need(count + 1)) return false;
    target_ = stack_[stack_.size() - count - 1];
    return target_.kind() == kind ||
           fail(kind == PickleKind::list ? "appending to what is not a list"
                                         : "setting items of what is not a dict");
  }
  bool keep_last(size_t count) {
    if (!count_values(count)) return false;
    const auto items = stack_.last(count);
    std::vector<PickleValue>& kept = document_.items_to_keep(target_);
    kept.insert(kept.end(), items.begin(), items.end());
    stack_.drop(count);
    return true;
  }

  bool append(size_t count) {
    if (!find_target(count, PickleKind::list)) return false;
    using State = PickleDocument::State;
    const PickleDocument::Container container = document_.containers_[target_.index()];
    if (sink_ == nullptr || container.is(State::kept)) return keep_last(count);
    const auto known = document_.record(target_);
    const auto made = sink_->on_list(document_, start_offset(), known, stack_.last(count));
    is_shareable_ = made.is_shareable;
    if (!made.record) {
      return known ? fail("a list whose items are of different kinds") : keep_last(count);
    }
    document_.containers_[target_.index()].set(State::record, *made.record);
    stack_.drop(count);
    return true;
  }

  bool set_items(size_t count) {
    if (count % 2 != 0) return fail("a dict with a key but no value");
    if (!find_target(count, PickleKind::dict)) return false;
    using State = PickleDocument::State;
    const PickleDocument::Container container = document_.containers_[target_.index()];
    if (container.is(State::record)) return fail("a dict that is added to after its use");
    if (sink_ == nullptr || container.is(State::kept)) return keep_last(count);
    const auto made = sink_->on_dict(document_, start_offset(), stack_.last(count));
    if (!made) return keep_last(count);
    document_.containers_[target_.index()].set(State::record, *made);
    stack_.drop(count);
    return true;
  }

  [[gnu::always_inline]] bool remember(uint64_t index) {
    if (!need(1)) return false;
    // CPython and torch number memo entries from 0 without gaps, so anything else is damage; and
    // what is remembered never changes, which lookups of lists by their bytes rest on.
    if (index != memo_.size()) [[unlikely]] {
      return fail_memo("out of order: memo entry ", index);
    }
    memo_.push(stack_.back());
    return true;
  }
  [[gnu::always_inline]] bool recall(uint64_t index) {
    if (index >= memo_.size()) [[unlikely]] {
      return fail_memo("a reference to memo entry ", index);
    }
    return push(memo_[index]);
  }

  const char* open_mark(const char* at) {
    const bool is_reference = *at == kReference || *at == kLongReference;
    if (is_reference && sink_ != nullptr && !stack_.empty()) {
      if (stack_.back().kind() == PickleKind::list) {
        if (const char* const next = list_of_references(at)) return next;
        if (!error_.message.empty()) return nullptr;
      }
    }
    if (marks_.size() >= static_cast<size_t>(limits_.max_depth)) {
      return then(fail("nested too deeply"), at);
    }
    marks_.push_back(stack_.size());
    return is_reference ? read_pairs(at) : at;
  }

  // Carries out what a dict of small values looks like: a reference, a value, and so on, and
  // SETITEMS. Ends before the first instruction that is anything else.
  const char* read_pairs(const char* at) {
    PickleValue* top = stack_.end();  // beside the stack's own, which is told at the end
    while (at < safe_end_) {
      start_ = at;
      const char* const value = push_reference(at, top);
      if (value == nullptr) break;
      at = push_small(value, top);
      if (at == nullptr) {
        stack_.set_end(top);
        at = push_text_or_list(value);
        if (at == nullptr) return error_.message.empty() ? value : nullptr;
        top = stack_.end();
      }
    }
    stack_.set_end(top);
    if (at >= safe_end_ || *at != kSetItems) return at;
    start_ = at;
    return then(take_mark() && set_items(group_), at + 1);
  }

  // Null where no reference to something known begins at `at`.
  [[gnu::always_inline]] const char* push_reference(const char* at, PickleValue*& top) const {
    const bool is_short = *at == kReference;
    if (!is_short && *at != kLongReference) return nullptr;
    const uint64_t index = is_short ? byte_at(at + 1) : unsigned_at(at + 1, 4);
    if (index >= memo_.size()) return nullptr;
    *top++ = memo_[index];
    return at + (is_short ? 2 : 5);
  }
  // A number or a reference; null for anything else.
  [[gnu::always_inline]] const char* push_small(const char* at, PickleValue*& top) {
    switch (*at) {
      case kReference:
      case kLongReference:
        return push_reference(at, top);
      case 'K':
        *top++ = document_.make_integer(byte_at(at + 1));
        return at + 2;
      case 'M':
        *top++ = document_.make_integer(static_cast<int64_t>(unsigned_at(at + 1, 2)));
        return at + 3;
      case 'J':
        *top++ = document_.make_integer(static_cast<int32_t>(unsigned_at(at + 1, 4)));
        return at + 5;
      case '\x8a': {
        const uint8_t length = byte_at(at + 1);
        if (length == 0 || length > 8) return nullptr;
        *top++ = document_.make_integer(long_at(at + 2, length));
        return at + 2 + length;
      }
      default:
        return nullptr;
    }
  }
  // A short text, or a list of references; null for anything else, or where it failed with an
  // error.
  const char* push_text_or_list(const char* at) {
    if (*at == kEmptyList) return push_list(at + 1);
    if (*at != '\x8c' || byte_at(at + 1) + 2 > end_ - at) return nullptr;
    push_text({at + 2, byte_at(at + 1)});
    return put(at + 2 + byte_at(at + 1));
  }
  // An empty dict, and at once what mostly follows it: that it is remembered, and its items.
  const char* push_dict(const char* at) {
    push_container(PickleKind::dict);
    at = put(at);
    return at != nullptr && at < safe_end_ && *at == kMark ? open_mark(at + 1) : at;
  }
  const char* push_list(const char* at) {
    push_container(PickleKind::list);
    at = put(at);
    if (at == nullptr || *at != kMark) return at;
    const char* const next = list_of_references(at + 1);
    return next != nullptr || !error_.message.empty() ? next : at;
  }
  // Remembers the top of the stack, if that is what comes next. Null if it fails.
  [[gnu::always_inline]] const char* put(const char* at) {
    if (*at == kMemoize) {
      remember(memo_.size());
      return at + 1;
    }
    if (*at == kPut) return then(remember(byte_at(at + 1)), at + 2);
    if (*at == kLongPut) return then(remember(unsigned_at(at + 1, 4)), at + 5);
    return at;
  }

  // Fills the list on top of the stack, if a group of references and APPENDS begin at `at`; null if
  // not, or if it failed. Lists of the same bytes share one record, where the sink allows it.
  const char* list_of_references(const char* at) {
    using State = PickleDocument::State;
    PickleDocument::Container& list = document_.containers_[stack_.back().index()];
    const bool is_fresh = list.is(State::empty);
    // The one that followed the last one before: iterations repeat each other.
    if (is_fresh && last_shared_ < shared_.size()) {
      const uint32_t expected = shared_[last_shared_].next;
      const std::string_view bytes = shared_bytes_[expected];
      if (static_cast<size_t>(end_ - at) >= bytes.size() &&
          std::memcmp(at, bytes.data(), bytes.size()) == 0) {
        list.set(State::record, shared_[expected].record);
        last_shared_ = expected;
        return at + bytes.size();
      }
    }
    const char* const end = end_of_references(at);
    if (end == nullptr) return nullptr;
    const std::string_view bytes(at, static_cast<size_t>(end - at));
    if (is_fresh) {
      if (const auto known = shared_bytes_.find(bytes)) {
        list.set(State::record, shared_[*known].record);
        expect_again(*known);
        return end;
      }
    }
    return fill_list(bytes, is_fresh);
  }

  // Behind the APPENDS that ends a group of references and nothing else; null where there is none
  // in the window.
  [[nodiscard]] const char* end_of_references(const char* at) const {
    while (at < end_ && (*at == kReference || *at == kLongReference)) {
      at += *at == kReference ? 2 : 5;
    }
    return at < end_ && *at == kAppends ? at + 1 : nullptr;
  }

  // `bytes` are references, and APPENDS.
  const char* fill_list(std::string_view bytes, bool is_fresh) {
    const char* at = bytes.data();
    const char* const end = at + bytes.size() - 1;
    const PickleValue target = stack_.back();
    size_t count = 0;
    stack_.reserve_more(bytes.size() + kMostWindow + kLongestInstruction);
    for (; at < end; ++count) {
      const size_t width = *at == kReference ? 1 : 4;
      if (!recall(width == 1 ? byte_at(at + 1) : unsigned_at(at + 1, 4))) return nullptr;
      at += 1 + width;
    }
    is_shareable_ = false;
    if (!append(count)) return nullptr;
    if (is_fresh && is_shareable_) {
      const uint32_t number = shared_bytes_.intern(bytes);
      shared_.push_back({*document_.record(target), number});
      expect_again(number);
    }
    return end + 1;
  }
  void expect_again(uint32_t number) {
    if (last_shared_ < shared_.size()) shared_[last_shared_].next = number;
    last_shared_ = number;
  }

  // A list of references that others share.
  struct Shared {
    uint64_t record = 0;
    uint32_t next = 0;  // the one that came behind it last
  };

  ByteSource& source_;
  PickleSink* sink_;
  const PickleLimits& limits_;
  PickleDocument document_;
  Pile<PickleValue> stack_;
  std::vector<size_t> marks_;  // sizes of stack_ where groups were opened
  Pile<PickleValue> memo_;
  Interner shared_bytes_;  // of lists of references, APPENDS with them
  std::vector<Shared> shared_;
  uint32_t last_shared_ = 0;
  int64_t values_ = 0;
  // The window of the source, and the instruction being carried out.
  const char* begin_ = nullptr;
  const char* end_ = nullptr;
  const char* safe_end_ = nullptr;
  const char* start_ = nullptr;
  bool is_last_ = false;  // no window comes behind this one
  // The last text of at most 8 bytes.
  uint64_t last_word_ = 0;
  size_t last_size_ = ~size_t{0};
  PickleValue last_text_;
  // What a step leaves for the next one: the values above the mark that was taken off, the
  // container that they go to, and what the sink said of it.
  size_t group_ = 0;
  PickleValue target_;
  bool is_shareable_ = false;
  // Why it failed.
  const char* end_of_failed_ = nullptr;
  bool is_beyond_end_ = false;
  Error error_;
};

Result<PickleDocument> read_pickle(ByteSource& source, PickleSink* sink,
                                   const PickleLimits& limits) {
  return PickleMachine(source, sink, limits).run();
}

}  // namespace headroom::formats
