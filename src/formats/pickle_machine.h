// The machine behind read_pickle(), for the files that make it up: pickle.cpp has its instructions,
// one by one, and pickle_pieces.cpp reads the dicts and lists of which most of a recording
// consists in larger pieces. Use read_pickle().
//
// Invariants:
//  1. Between two instructions all that lies before `at` is carried out, and nothing behind it.
//  2. Before safe_end_, kLongestInstruction bytes can be read: of the window or, behind its end
//  where
//     no other comes, zeros.
//  3. The stack, the memo and the containers have room for what a window of kMostWindow bytes can
//     push, as no byte pushes more than one of each. It is made when the window is begun.
//  4. Memo entries are numbered without gaps and written once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/pile.h"
#include "formats/byte_source.h"
#include "formats/dict_shapes.h"
#include "formats/pickle.h"
#include "formats/pickle_opcodes.h"
#include "formats/repeated_pieces.h"

namespace headroom::formats {

// One run over one pickle.
class PickleMachine {
 public:
  PickleMachine(ByteSource& source, PickleSink* sink, const PickleLimits& limits)
      : source_(source), sink_(sink), limits_(limits) {}

  Result<PickleDocument> run();

 private:
  using State = PickleDocument::State;

  // No instruction and its operands are longer, nor is a pair of a dict as it is read in one go;
  // texts of BINUNICODE apart, which are measured.
  static constexpr size_t kLongestInstruction = 300;
  static_assert(kLongestInstruction <= ByteSource::kPadding);
  static constexpr size_t kLeastWindow = size_t{1} << 13;
  static constexpr size_t kMostWindow = size_t{1} << 16;

  // pickle.cpp
  bool fail(std::string message, std::string hint = {});
  bool fail_end();
  bool fail_memo(std::string_view what, uint64_t index);
  bool fail_operands();
  [[nodiscard]] int64_t start_offset() const { return source_.offset() + (start_ - begin_); }
  Result<void> read_header();
  const char* refill(const char* at);
  bool carry_out();
  bool is_too_large();
  bool finish();
  const char* step(uint8_t opcode, const char* at);
  bool step_container(uint8_t opcode);
  bool refuse(uint8_t opcode);
  const char* push_long(uint64_t length, const char* at);
  bool push_text(std::string_view text);
  const char* push_long_text(uint64_t length, const char* at);
  const char* open_mark(const char* at);
  bool count_values(size_t count);
  bool gather_tuple(size_t count);
  bool gather(PickleKind kind, size_t count);
  bool find_target(size_t count, PickleKind kind);
  bool keep_last(size_t count);
  bool append(size_t count);
  bool set_items(size_t count, uint32_t shape = PickleSink::kNoShape);

  // pickle_pieces.cpp
  struct Along {
    const char* at = nullptr;  // where it ended; null where it failed
    uint32_t shape = DictShapes::kNone;
    size_t pairs = 0;
    bool is_whole = false;  // the end of the dict is at `at`
    bool is_plain = true;   // all values are references and numbers
  };
  const char* read_dict(const char* at);
  void read_along(Along& along);
  const char* end_dict(const char* begin, const Along& along, bool is_fresh);
  const char* read_pairs(const char* at);
  const char* push_reference(const char* at, PickleValue*& top) const;
  const char* push_small(const char* at, PickleValue*& top);
  const char* push_other(const char* at);
  const char* push_dict(const char* at);
  const char* push_list(const char* at);
  const char* list_of_references(const char* at);
  [[nodiscard]] const char* end_of_references(const char* at) const;
  const char* fill_list(std::string_view bytes, bool is_fresh);

  // Where the next instruction begins, if this one went well.
  [[gnu::always_inline]] const char* then(bool is_well, const char* next) {
    if (is_well) [[likely]]
      return next;
    end_of_failed_ = next;
    return nullptr;
  }
  [[gnu::always_inline]] bool push(PickleValue value) {
    stack_.push(value);
    return true;
  }
  [[gnu::always_inline]] bool push_integer(int64_t value) {
    return push(document_.make_integer(value));
  }
  [[gnu::always_inline]] bool push_container(PickleKind kind) {
    return push(document_.make_container(kind));
  }
  // There are as many values that an instruction may touch: those above the last open mark.
  [[gnu::always_inline]] bool need(size_t count) {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    return stack_.size() - floor >= count || fail_operands();
  }
  [[gnu::always_inline]] bool push_mark() {
    if (marks_.size() >= static_cast<size_t>(limits_.max_depth)) return fail("nested too deeply");
    marks_.push_back(stack_.size());
    return true;
  }
  // Takes the last mark off; group_ is how many values lie above it.
  [[gnu::always_inline]] bool take_mark() {
    if (marks_.empty()) [[unlikely]]
      return fail("a group that was never opened");
    group_ = stack_.size() - marks_.back();
    marks_.pop_back();
    return true;
  }
  [[gnu::always_inline]] bool remember(uint64_t index) {
    if (!need(1)) return false;
    // CPython and torch number memo entries from 0 without gaps, so anything else is damage.
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
  // What the sink makes of the last `count` values, for the dict target_. REQUIRES: it is empty,
  // and there is a sink.
  [[gnu::always_inline]] bool make_record(size_t count, uint32_t shape) {
    const auto made = sink_->on_dict(document_, start_offset(), shape, stack_.last(count));
    is_shareable_ = made.is_shareable;
    if (!made.record) return keep_last(count);
    document_.containers_[target_.index()].set(State::record, *made.record);
    stack_.drop(count);
    return true;
  }
  // Remembers the top of the stack, if that is what comes next. Null if it fails.
  [[gnu::always_inline]] const char* put(const char* at) {
    if (*at == opcode::kMemoize) {
      remember(memo_.size());
      return at + 1;
    }
    if (*at == opcode::kPut) return then(remember(opcode::byte_at(at + 1)), at + 2);
    if (*at == opcode::kLongPut) return then(remember(opcode::unsigned_at<4>(at + 1)), at + 5);
    return at;
  }

  ByteSource& source_;
  PickleSink* sink_;
  const PickleLimits& limits_;
  PickleDocument document_;
  Pile<PickleValue> stack_;
  std::vector<size_t> marks_;  // sizes of stack_ where groups were opened
  Pile<PickleValue> memo_;
  RepeatedPieces lists_;  // of references, APPENDS with them
  RepeatedPieces dicts_;  // of references and numbers, SETITEMS with them
  DictShapes shapes_;
  std::vector<DictKey> keys_;  // of a dict whose shape is being learnt
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

}  // namespace headroom::formats
