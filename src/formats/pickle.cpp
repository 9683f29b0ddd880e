// A pickle is a program for a small stack machine. This is the part of the machine that builds
// data. Opcodes as in CPython's Lib/pickletools.py.
#include "formats/pickle.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace headroom::formats {
namespace {

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

std::span<const PickleValue> PickleDocument::items(PickleValue container) const {
  if (!container.is_container() || !is_current(container)) return {};
  return containers_[static_cast<size_t>(container.payload)].items;
}

const PickleValue* PickleDocument::find(PickleValue dict, std::string_view key) const {
  if (dict.kind != PickleKind::dict) return nullptr;
  const auto pairs = items(dict);
  for (size_t i = pairs.size(); i >= 2; i -= 2) {
    const PickleValue& candidate = pairs[i - 2];
    if (candidate.kind == PickleKind::text && text(candidate) == key) return &pairs[i - 1];
  }
  return nullptr;
}

std::string_view PickleDocument::text(PickleValue value) const {
  return value.kind == PickleKind::text ? texts_[static_cast<size_t>(value.payload)]
                                        : std::string_view{};
}

double PickleDocument::real(PickleValue value) const {
  if (value.kind == PickleKind::real) return std::bit_cast<double>(value.payload);
  return static_cast<double>(value.payload);
}

bool PickleDocument::is_current(PickleValue value) const {
  return containers_[static_cast<size_t>(value.payload)].generation == value.generation;
}

PickleValue PickleDocument::make_container(PickleKind kind) {
  uint32_t index = 0;
  if (vacant_.empty()) {
    index = static_cast<uint32_t>(containers_.size());
    containers_.emplace_back();
  } else {
    index = vacant_.back();
    vacant_.pop_back();
  }
  containers_[index].kind = kind;
  return {kind, containers_[index].generation, index};
}

PickleValue PickleDocument::intern(std::string&& text) {
  const auto [at, is_new] =
      text_ids_.try_emplace(std::move(text), static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(at->first);
  return {PickleKind::text, 0, at->second};
}

void PickleDocument::recycle(PickleValue value) {
  if (!value.is_container() || !is_current(value)) return;
  Container& container = containers_[static_cast<size_t>(value.payload)];
  container.items.clear();
  ++container.generation;
  vacant_.push_back(static_cast<uint32_t>(value.payload));
}

// One run over one pickle.
class PickleMachine {
 public:
  PickleMachine(ByteSource& source, const PickleSink& sink, const PickleLimits& limits)
      : source_(source), sink_(sink), limits_(limits) {}

  Result<PickleDocument> run() {
    HEADROOM_TRY(read_header());
    while (true) {
      start_ = source_.offset();
      HEADROOM_ASSIGN(const uint8_t opcode, take_byte());
      if (opcode == '.') break;
      HEADROOM_TRY(step(opcode));
      if (static_cast<int64_t>(stack_.size()) > limits_.max_values) {
        return fail("too many values");
      }
    }
    if (stack_.size() != 1 || !marks_.empty()) return fail("the pickle stops in the middle");
    document_.root_ = stack_.back();
    return std::move(document_);
  }

 private:
  [[nodiscard]] Error fail(std::string message) const {
    return source_.error_at(start_, std::move(message));
  }

  Result<void> read_header() {
    const std::string_view head = source_.peek(2);
    if (head.size() < 2 || head[0] != '\x80') {
      Error error = fail("not a pickle of protocol 2 or later");
      error.hint = "torch.cuda.memory._dump_snapshot() and pickle.dump() write one";
      return error;
    }
    const auto protocol = static_cast<uint8_t>(head[1]);
    if (protocol < 2 || protocol > kHighestProtocol) {
      return fail("pickle protocol " + std::to_string(protocol) + "; 2 to 5 can be read");
    }
    return {};
  }

  Result<std::string_view> take(size_t count) {
    const std::string_view piece = source_.take(count);
    if (piece.size() < count) return fail("the file ends here, in the middle of a value");
    return piece;
  }
  Result<uint8_t> take_byte() {
    HEADROOM_ASSIGN(const std::string_view piece, take(1));
    return static_cast<uint8_t>(piece[0]);
  }
  Result<uint64_t> take_unsigned(size_t bytes) {
    HEADROOM_ASSIGN(const std::string_view piece, take(bytes));
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(piece[i]);
    return value;
  }

  Result<void> push(PickleValue value) {
    stack_.push_back(value);
    return {};
  }
  Result<void> push_integer(int64_t value) { return push({PickleKind::integer, 0, value}); }
  Result<void> push_unsigned(size_t bytes) {
    HEADROOM_ASSIGN(const uint64_t value, take_unsigned(bytes));
    return push_integer(static_cast<int64_t>(value));
  }
  // Little-endian two's complement of any length; what does not fit 64 bits is refused.
  Result<void> push_long(size_t length_bytes) {
    HEADROOM_ASSIGN(const uint64_t length, take_unsigned(length_bytes));
    if (length > 8) return fail("an integer of more than 64 bits");
    HEADROOM_ASSIGN(const uint64_t bits, take_unsigned(static_cast<size_t>(length)));
    uint64_t value = bits;
    if (length > 0 && length < 8 && (bits >> (8 * length - 1)) != 0) {
      value |= ~uint64_t{0} << (8 * length);
    }
    return push_integer(static_cast<int64_t>(value));
  }
  Result<void> push_real() {
    HEADROOM_ASSIGN(const uint64_t little, take_unsigned(8));
    return push({PickleKind::real, 0, static_cast<int64_t>(__builtin_bswap64(little))});
  }
  Result<void> push_text(size_t length_bytes) {
    HEADROOM_ASSIGN(const uint64_t length, take_unsigned(length_bytes));
    if (length > static_cast<uint64_t>(limits_.max_text_bytes)) {
      return fail("a text of " + std::to_string(length) + " bytes");
    }
    std::string text;
    for (uint64_t left = length; left > 0;) {
      const auto part = static_cast<size_t>(std::min<uint64_t>(left, ByteSource::kMaxPiece));
      HEADROOM_ASSIGN(const std::string_view piece, take(part));
      text += piece;
      left -= part;
    }
    return push(document_.intern(std::move(text)));
  }

  Result<PickleValue> new_container(PickleKind kind) {
    const size_t live = document_.containers_.size() - document_.vacant_.size();
    if (static_cast<int64_t>(live) >= limits_.max_containers) return fail("too many containers");
    return document_.make_container(kind);
  }
  Result<void> push_container(PickleKind kind) {
    HEADROOM_ASSIGN(const PickleValue value, new_container(kind));
    return push(value);
  }

  std::vector<PickleValue>& items_of(PickleValue container) {
    return document_.containers_[static_cast<size_t>(container.payload)].items;
  }

  // How many values lie above the last mark, which is taken off.
  Result<size_t> take_mark() {
    if (marks_.empty()) return fail("a group that was never opened");
    const size_t count = stack_.size() - marks_.back();
    marks_.pop_back();
    return count;
  }
  // The values on the stack that an instruction may touch: those above the last open mark.
  Result<void> need(size_t count) {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - floor < count) return fail("an instruction without its operands");
    return {};
  }

  // Replaces the last `count` values by one tuple of them (or list, or dict).
  Result<void> gather(PickleKind kind, size_t count) {
    HEADROOM_TRY(need(count));
    if (kind == PickleKind::dict && count % 2 != 0) return fail("a dict with a key but no value");
    HEADROOM_ASSIGN(const PickleValue value, new_container(kind));
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    HEADROOM_TRY(count_values(count));
    items_of(value).assign(first, stack_.end());
    stack_.erase(first, stack_.end());
    return push(value);
  }

  Result<void> count_values(size_t count) {
    values_ += static_cast<int64_t>(count);
    if (values_ > limits_.max_values) return fail("too many values");
    return {};
  }

  // The container that `count` values above it are to be put into.
  Result<PickleValue> target(size_t count, PickleKind kind) {
    HEADROOM_TRY(need(count + 1));
    const PickleValue container = stack_[stack_.size() - count - 1];
    if (container.kind != kind || !document_.is_current(container)) {
      return fail(kind == PickleKind::list ? "appending to what is not a list"
                                           : "setting items of what is not a dict");
    }
    return container;
  }

  Result<void> append(size_t count) {
    HEADROOM_ASSIGN(const PickleValue list, target(count, PickleKind::list));
    for (size_t i = stack_.size() - count; i < stack_.size(); ++i) {
      const PickleValue item = stack_[i];
      // A sink may have recycled the list or the item already, where a file refers to either twice.
      if (!document_.is_current(list) || (item.is_container() && !document_.is_current(item))) {
        return fail("a reference to a value that was shared where none is expected");
      }
      PickleVerdict verdict = PickleVerdict::keep;
      if (sink_) {
        HEADROOM_ASSIGN(verdict, add_place(sink_(document_, list, item)));
      }
      if (verdict == PickleVerdict::keep) {
        HEADROOM_TRY(count_values(1));
        items_of(list).push_back(item);
      } else if (verdict == PickleVerdict::recycle) {
        values_ -= static_cast<int64_t>(document_.items(item).size());
        document_.recycle(item);
      }
    }
    stack_.resize(stack_.size() - count);
    return {};
  }

  Result<PickleVerdict> add_place(Result<PickleVerdict> result) const {
    if (result) return result;
    Error error = std::move(result).error();
    if (error.where.empty()) error.where = source_.name() + ": byte " + std::to_string(start_);
    return error;
  }

  Result<void> set_items(size_t count) {
    if (count % 2 != 0) return fail("a dict with a key but no value");
    HEADROOM_ASSIGN(const PickleValue dict, target(count, PickleKind::dict));
    HEADROOM_TRY(count_values(count));
    std::vector<PickleValue>& items = items_of(dict);
    items.insert(items.end(), stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return {};
  }

  Result<void> remember(uint64_t index) {
    HEADROOM_TRY(need(1));
    // CPython numbers memo entries from 0 without gaps, so an index beyond the next is damage.
    if (index > memo_.size() || static_cast<int64_t>(index) >= limits_.max_memo) {
      return fail("memo entry " + std::to_string(index) + " out of order");
    }
    if (index == memo_.size()) memo_.emplace_back();
    memo_[index] = stack_.back();
    return {};
  }
  Result<void> recall(uint64_t index) {
    if (index >= memo_.size()) {
      return fail("a reference to memo entry " + std::to_string(index) + " of " +
                  std::to_string(memo_.size()));
    }
    const PickleValue value = memo_[index];
    if (value.is_container() && !document_.is_current(value)) {
      return fail("a reference to a value that was shared where none is expected");
    }
    return push(value);
  }
  Result<void> remember_sized(size_t bytes) {
    HEADROOM_ASSIGN(const uint64_t index, take_unsigned(bytes));
    return remember(index);
  }
  Result<void> recall_sized(size_t bytes) {
    HEADROOM_ASSIGN(const uint64_t index, take_unsigned(bytes));
    return recall(index);
  }

  Result<void> open_mark() {
    if (static_cast<int64_t>(marks_.size()) >= limits_.max_depth) return fail("nested too deeply");
    marks_.push_back(stack_.size());
    return {};
  }

  Result<void> skip(size_t count) {
    HEADROOM_ASSIGN(const std::string_view ignored, take(count));
    static_cast<void>(ignored);
    return {};
  }

  Result<void> step(uint8_t opcode) {
    switch (opcode) {
      case 0x80:
        return skip(1);  // PROTO
      case 0x95:
        return skip(8);  // FRAME: a hint for buffering
      case 'N':
        return push({});
      case 0x88:
        return push({PickleKind::boolean, 0, 1});
      case 0x89:
        return push({PickleKind::boolean, 0, 0});
      case 'K':
        return push_unsigned(1);  // BININT1
      case 'M':
        return push_unsigned(2);  // BININT2
      case 'J': {                 // BININT, signed
        HEADROOM_ASSIGN(const uint64_t value, take_unsigned(4));
        return push_integer(static_cast<int32_t>(static_cast<uint32_t>(value)));
      }
      case 0x8a:
        return push_long(1);  // LONG1
      case 0x8b:
        return push_long(4);  // LONG4
      case 'G':
        return push_real();  // BINFLOAT, big-endian
      case 0x8c:
        return push_text(1);  // SHORT_BINUNICODE
      case 'X':
        return push_text(4);  // BINUNICODE
      case 0x8d:
        return push_text(8);  // BINUNICODE8
      default:
        return step_container(opcode);
    }
  }

  Result<void> step_container(uint8_t opcode) {
    switch (opcode) {
      case '(':
        return open_mark();
      case ']':
        return push_container(PickleKind::list);
      case '}':
        return push_container(PickleKind::dict);
      case ')':
        return push_container(PickleKind::tuple);
      case 0x85:
        return gather(PickleKind::tuple, 1);
      case 0x86:
        return gather(PickleKind::tuple, 2);
      case 0x87:
        return gather(PickleKind::tuple, 3);
      case 't':
      case 'l':
      case 'd': {
        HEADROOM_ASSIGN(const size_t count, take_mark());
        return gather(opcode == 't'   ? PickleKind::tuple
                      : opcode == 'l' ? PickleKind::list
                                      : PickleKind::dict,
                      count);
      }
      case 'a':
        return append(1);
      case 's':
        return set_items(2);
      case 'e':
      case 'u': {
        HEADROOM_ASSIGN(const size_t count, take_mark());
        return opcode == 'e' ? append(count) : set_items(count);
      }
      case 0x94:
        return remember(memo_.size());
      case 'q':
        return remember_sized(1);
      case 'r':
        return remember_sized(4);
      case 'h':
        return recall_sized(1);
      case 'j':
        return recall_sized(4);
      default:
        return refuse(opcode);
    }
  }

  Result<void> refuse(uint8_t opcode) {
    const std::string_view name = refused_name(opcode);
    if (name.empty())
      return fail("instruction " + hexadecimal(opcode) + " is not one of plain data");
    Error error = fail("instruction " + std::string(name) + " would run code from the file");
    error.hint = "only pickles of plain dicts, lists, texts and numbers are read";
    return error;
  }

  ByteSource& source_;
  const PickleSink& sink_;
  const PickleLimits& limits_;
  PickleDocument document_;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_;  // sizes of stack_ where groups were opened
  std::vector<PickleValue> memo_;
  int64_t values_ = 0;
  int64_t start_ = 0;  // of the instruction being carried out
};

Result<PickleDocument> read_pickle(ByteSource& source, const PickleSink& sink,
                                   const PickleLimits& limits) {
  return PickleMachine(source, sink, limits).run();
}

}  // namespace headroom::formats
