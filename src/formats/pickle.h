// A reader of Python pickles that holds data and nothing else.
//
// For files of other people: dictionaries, lists, tuples, text, numbers, booleans and None, in
// protocols 2 to 5. Whatever would import a name, call something or build an object of a class is
// refused with its byte offset, so nothing in a file is ever executed. Every count is bounded, and
// no size is believed before its bytes have been read.
//
// A snapshot holds gigabytes of small dictionaries. A PickleSink therefore sees each dict and list
// as it is filled and may make a record of its own of it: then nothing of it is kept here but eight
// bytes. Values are eight bytes, texts are kept once. Single pass, not thread-safe; about 3 ns an
// instruction (docs/measurements has the figures).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/interner.h"
#include "base/pile.h"
#include "base/result.h"
#include "formats/byte_source.h"

namespace headroom::formats {

enum class PickleKind : uint8_t { none, boolean, integer, real, text, list, tuple, dict };

// A handle; what does not fit into it lives in the PickleDocument.
class PickleValue {
 public:
  PickleValue() = default;
  PickleValue(PickleKind kind, uint64_t index) : bits_(index << 4 | static_cast<uint64_t>(kind)) {}

  [[nodiscard]] PickleKind kind() const { return static_cast<PickleKind>(bits_ & 7); }
  [[nodiscard]] bool is_container() const { return kind() >= PickleKind::list; }
  [[nodiscard]] bool is_true() const { return kind() == PickleKind::boolean && index() == 1; }
  // Which text or container of the document. Equal texts have equal indices, from 0 up.
  [[nodiscard]] size_t index() const { return bits_ >> 4; }
  bool operator==(const PickleValue&) const = default;

 private:
  friend class PickleDocument;
  static constexpr uint64_t kIsWide = 8;  // a number that lies in the document, by its index
  uint64_t bits_ = 0;
};

struct PickleLimits {
  int64_t max_depth = 10'000;                 // open marks; a snapshot needs seven
  int64_t max_values = 1'000'000'000;         // on the stack, or kept in containers
  int64_t max_containers = 1'000'000'000;     // records among them
  int64_t max_memo = 1'000'000'000;           // objects that may be referred to again
  int64_t max_text_bytes = int64_t{1} << 26;  // of one text
};

class PickleDocument {
 public:
  [[nodiscard]] PickleValue root() const { return root_; }

  // Items of a list or tuple; keys and values in turn for a dict. Nothing for records and others.
  [[nodiscard]] std::span<const PickleValue> items(PickleValue container) const;
  // The value of a text key, the last one where it is given twice; none where there is none.
  [[nodiscard]] std::optional<PickleValue> find(PickleValue dict, std::string_view key) const;
  // What a sink made of this dict or list.
  [[nodiscard]] std::optional<uint64_t> record(PickleValue container) const {
    if (!container.is_container()) return std::nullopt;
    const Container found = containers_[container.index()];
    return found.is(State::record) ? std::optional(found.at()) : std::nullopt;
  }

  [[nodiscard]] std::string_view text(PickleValue value) const {
    if (value.kind() != PickleKind::text) return {};
    return texts_[static_cast<uint32_t>(value.index())];
  }
  // Integers; nothing for other kinds, booleans too.
  [[nodiscard]] std::optional<int64_t> integer(PickleValue value) const {
    if (value.kind() != PickleKind::integer) return std::nullopt;
    if ((value.bits_ & PickleValue::kIsWide) != 0) {
      return static_cast<int64_t>(wide_[value.index()]);
    }
    return static_cast<int64_t>(value.bits_) >> 4;
  }
  // Any number; 0 for the rest.
  [[nodiscard]] double real(PickleValue value) const;

 private:
  friend class PickleMachine;
  enum class State : uint8_t { empty, kept, record };
  class Container {
   public:
    [[nodiscard]] bool is(State state) const { return (bits_ & 3) == static_cast<uint64_t>(state); }
    // The record, or where the items are: into kept_ or tuples_.
    [[nodiscard]] uint64_t at() const { return bits_ >> 2; }
    void set(State state, uint64_t at) { bits_ = at << 2 | static_cast<uint64_t>(state); }

   private:
    uint64_t bits_ = 0;
  };
  // REQUIRES: room in containers_.
  PickleValue make_container(PickleKind kind) {
    containers_.push({});
    return {kind, containers_.size() - 1};
  }
  PickleValue make_integer(int64_t value) {
    const auto bits = static_cast<uint64_t>(value);
    if (static_cast<int64_t>(bits << 4) >> 4 == value) return {PickleKind::integer, bits};
    return make_wide_integer(bits);
  }
  PickleValue make_wide_integer(uint64_t bits);
  PickleValue make_real(uint64_t bits);
  std::vector<PickleValue>& items_to_keep(PickleValue container);
  void keep_tuple(PickleValue tuple, std::span<const PickleValue> items);

  Pile<Container> containers_;
  std::vector<std::vector<PickleValue>> kept_;  // lists and dicts
  std::vector<PickleValue> tuples_;             // the number of items, then they
  std::vector<uint64_t> wide_;                  // what has more than 60 bits, and reals
  Interner texts_;
  PickleValue root_;
};

// Makes records of dicts and lists while they are read.
class PickleSink {
 public:
  PickleSink() = default;
  PickleSink(const PickleSink&) = delete;
  PickleSink& operator=(const PickleSink&) = delete;
  virtual ~PickleSink() = default;

  using Record = std::optional<uint64_t>;  // below 2^62; none: the document is to keep the items
  struct Made {
    Record record;
    // A dict or list of the very same items has the same record, without asking again.
    bool is_shareable = false;
  };
  // The items of a dict that ends at byte `place`, keys and values in turn. Dicts of the same
  // `shape` have the same keys in the same order; kNoShape says nothing. A record cannot be added
  // to.
  static constexpr uint32_t kNoShape = ~uint32_t{0};
  virtual Made on_dict(const PickleDocument& document, int64_t place, uint32_t shape,
                       std::span<const PickleValue> items) = 0;
  // Items appended to a list that is `record` so far, none at its first items.
  virtual Made on_list(const PickleDocument& document, int64_t place, Record record,
                       std::span<const PickleValue> items) = 0;
};

// Reads one pickle; without a sink the document keeps everything. Errors say "FILE: byte N" by
// `source`'s name.
Result<PickleDocument> read_pickle(ByteSource& source, PickleSink* sink = nullptr,
                                   const PickleLimits& limits = {});

}  // namespace headroom::formats
