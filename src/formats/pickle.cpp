// A pickle is a program for a small stack machine. This is the part of the machine that builds
// data, instruction by instruction. Opcodes as in CPython's Lib/pickletools.py.
//
// What makes it fast: operands are read from a window with room behind it, so that one comparison
// an instruction guards them all, and whatever it pushes has room before the window is begun;
// nothing is allocated for a container that becomes a record; and what recordings consist of is not
// read instruction by instruction (pickle_pieces.cpp).
#include "formats/pickle.h"

#include <algorithm>
#include <utility>

#include "formats/pickle_machine.h"

namespace headroom::formats {

using namespace opcode;

namespace {

constexpr uint8_t byte(char code) { return static_cast<uint8_t>(code); }

constexpr uint8_t kHighestProtocol = 5;

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

}  // namespace

Result<PickleDocument> PickleMachine::run() {
  HEADROOM_TRY(read_header());
  if (carry_out()) return std::move(document_);
  // What lies behind the end reads as zeros, so anything may have gone wrong there.
  if (is_beyond_end_) return source_.error_at(start_offset(), "the file ends here, too early");
  if (error_.where.empty()) error_.where = source_.error_at(start_offset(), "").where;
  return std::move(error_);
}

bool PickleMachine::fail(std::string message, std::string hint) {
  error_ = Error{ErrorCode::bad_input, std::move(message), "", std::move(hint)};
  return false;
}

// Why is said in run().
bool PickleMachine::fail_end() { return fail(""); }
bool PickleMachine::fail_memo(std::string_view what, uint64_t index) {
  return fail(std::string(what) + std::to_string(index) + " of " + std::to_string(memo_.size()));
}

Result<void> PickleMachine::read_header() {
  const std::string_view head = source_.peek(2);
  if (head.size() < 2 || head[0] != '\x80') {
    Error error = source_.error_at(0, "not a pickle of protocol 2 or later");
    error.hint = "torch.cuda.memory._dump_snapshot() and pickle.dump() write one";
    return error;
  }
  const auto protocol = static_cast<uint8_t>(head[1]);
  if (protocol < 2 || protocol > kHighestProtocol) {
    return source_.error_at(0,
                            "pickle protocol " + std::to_string(protocol) + "; 2 to 5 can be read");
  }
  return {};
}

// Takes what lies before `at`, and returns where that place is in the new window.
const char* PickleMachine::refill(const char* at) {
  source_.skip(static_cast<size_t>(at - begin_));
  source_.fill(kLeastWindow);
  const std::string_view window = source_.window();
  begin_ = window.data();
  end_ = begin_ + window.size();
  // Up to there an instruction may begin without another look.
  is_last_ = source_.is_last() && window.size() <= kMostWindow;
  safe_end_ = is_last_ ? end_ : begin_ + std::min(window.size() - kLongestInstruction, kMostWindow);
  // An instruction is at least a byte long, and pushes at most one of each.
  const size_t most = std::min(window.size(), kMostWindow) + kLongestInstruction;
  stack_.reserve_more(most);
  memo_.reserve_more(most);
  document_.containers_.reserve_more(most);
  return begin_;
}

bool PickleMachine::carry_out() {
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

bool PickleMachine::is_too_large() {
  const auto over = [](size_t count, int64_t limit) { return count > static_cast<size_t>(limit); };
  if (over(stack_.size(), limits_.max_values)) return !fail("too many values");
  if (over(memo_.size(), limits_.max_memo)) return !fail("too large a memo");
  if (over(document_.containers_.size(), limits_.max_containers)) {
    return !fail("too many containers");
  }
  return false;
}

bool PickleMachine::finish() {
  if (stack_.size() != 1 || !marks_.empty()) return fail("the pickle stops in the middle");
  document_.root_ = stack_.back();
  return true;
}

// Carries out one instruction whose operands begin at `at`; null where it cannot be.
[[gnu::always_inline]] inline const char* PickleMachine::step(uint8_t opcode, const char* at) {
  switch (opcode) {
    case kReference:
      return then(recall(byte_at(at)), at + 1);
    case kLongReference:
      return then(recall(unsigned_at<4>(at)), at + 4);
    case byte(kMemoize):
      return then(remember(memo_.size()), at);
    case kPut:
      return then(remember(byte_at(at)), at + 1);
    case kLongPut:
      return then(remember(unsigned_at<4>(at)), at + 4);
    case kMark:
      return open_mark(at);
    case kEmptyDict:
      return push_dict(at);
    case kByte:
      return then(push_integer(byte_at(at)), at + 1);
    case kTwoBytes:
      return then(push_integer(static_cast<int64_t>(unsigned_at<2>(at))), at + 2);
    case kFourBytes:
      return then(push_integer(static_cast<int32_t>(unsigned_at<4>(at))), at + 4);
    case byte(kManyBytes):
      return push_long(byte_at(at), at + 1);
    case 0x8b:
      return push_long(unsigned_at<4>(at), at + 4);  // LONG4
    case 'G':                                        // BINFLOAT, the only big-endian one
      return then(push(document_.make_real(__builtin_bswap64(unsigned_at<8>(at)))), at + 8);
    case byte(kShortText):
      return then(push_text({at + 1, byte_at(at)}), at + 1 + byte_at(at));
    case kText:
      return push_long_text(unsigned_at<4>(at), at + 4);
    case 0x8d:
      return push_long_text(unsigned_at<8>(at), at + 8);  // BINUNICODE8
    case kNone:
      return then(push({}), at);
    case byte(kTrue):
      return then(push({PickleKind::boolean, 1}), at);
    case byte(kFalse):
      return then(push({PickleKind::boolean, 0}), at);
    case 0x80:
      return at + 1;  // PROTO
    case 0x95:
      return at + 8;  // FRAME: a hint for buffering
    default:
      return then(step_container(opcode), at);
  }
}

bool PickleMachine::step_container(uint8_t opcode) {
  switch (opcode) {
    case kEmptyList:
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
    case kSetItems:
      return take_mark() && set_items(group_);
    default:
      return refuse(opcode);
  }
}

bool PickleMachine::refuse(uint8_t opcode) {
  const std::string_view name = refused_name(opcode);
  if (name.empty()) return fail("instruction " + hexadecimal(opcode) + " is not one of plain data");
  return fail("instruction " + std::string(name) + " would run code from the file",
              "only pickles of plain dicts, lists, texts and numbers are read");
}

// Little-endian two's complement of any length; what does not fit 64 bits is refused.
const char* PickleMachine::push_long(uint64_t length, const char* at) {
  if (length > 8) return then(fail("an integer of more than 64 bits"), at);
  if (length == 0) return then(push_integer(0), at);
  return then(push_integer(long_at(at, length)), at + length);
}

bool PickleMachine::push_text(std::string_view text) {
  if (text.data() + text.size() > end_) [[unlikely]]
    return fail_end();
  if (text.size() > 8) return push({PickleKind::text, document_.texts_.intern(text)});
  // Short ones repeat each other ("N/A").
  const uint64_t word = text.empty() ? 0 : unsigned_at<8>(text.data()) << (64 - 8 * text.size());
  if (word != last_word_ || text.size() != last_size_) {
    last_text_ = {PickleKind::text, document_.texts_.intern(text)};
    last_word_ = word;
    last_size_ = text.size();
  }
  return push(last_text_);
}

const char* PickleMachine::push_long_text(uint64_t length, const char* at) {
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

bool PickleMachine::fail_operands() { return fail("an instruction without its operands"); }

bool PickleMachine::count_values(size_t count) {
  values_ += static_cast<int64_t>(count);
  return values_ <= limits_.max_values || fail("too many values");
}

// Replaces the last `count` values by one tuple of them.
bool PickleMachine::gather_tuple(size_t count) {
  if (!need(count) || !count_values(count + 1)) return false;
  const PickleValue tuple = document_.make_container(PickleKind::tuple);
  document_.keep_tuple(tuple, stack_.last(count));
  stack_.drop(count);
  return push(tuple);
}

// The same for a list or a dict: an empty one is put below them, and then they are added to it.
bool PickleMachine::gather(PickleKind kind, size_t count) {
  push_container(kind);
  PickleValue* const top = &stack_.back();
  std::rotate(top - count, top, top + 1);
  return kind == PickleKind::list ? append(count) : set_items(count);
}

// The container below the last `count` values, which are to be put into it.
bool PickleMachine::find_target(size_t count, PickleKind kind) {
  if (!need(count + 1)) return false;
  target_ = stack_[stack_.size() - count - 1];
  return target_.kind() == kind ||
         fail(kind == PickleKind::list ? "appending to what is not a list"
                                       : "setting items of what is not a dict");
}

bool PickleMachine::keep_last(size_t count) {
  if (!count_values(count)) return false;
  const auto items = stack_.last(count);
  std::vector<PickleValue>& kept = document_.items_to_keep(target_);
  kept.insert(kept.end(), items.begin(), items.end());
  stack_.drop(count);
  return true;
}

bool PickleMachine::append(size_t count) {
  is_shareable_ = false;
  if (!find_target(count, PickleKind::list)) return false;
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

bool PickleMachine::set_items(size_t count, uint32_t shape) {
  is_shareable_ = false;
  if (count % 2 != 0) return fail("a dict with a key but no value");
  if (!find_target(count, PickleKind::dict)) return false;
  const PickleDocument::Container container = document_.containers_[target_.index()];
  if (container.is(State::record)) return fail("a dict that is added to after its use");
  if (sink_ == nullptr || container.is(State::kept)) return keep_last(count);
  return make_record(count, shape);
}

// And at once what mostly follows it: references, to be put into the dict or list before the mark.
const char* PickleMachine::open_mark(const char* at) {
  if (is_reference(at) && stack_.size() > (marks_.empty() ? 0 : marks_.back())) {
    const PickleKind kind = stack_.back().kind();
    if (kind == PickleKind::dict) return read_dict(at);
    if (kind == PickleKind::list && sink_ != nullptr) {
      if (const char* const next = list_of_references(at)) return next;
      if (!error_.message.empty()) return nullptr;
    }
  }
  return then(push_mark(), at);
}

Result<PickleDocument> read_pickle(ByteSource& source, PickleSink* sink,
                                   const PickleLimits& limits) {
  return PickleMachine(source, sink, limits).run();
}

}  // namespace headroom::formats
