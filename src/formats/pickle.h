// A reader of Python pickles that holds data and nothing else.
//
// For files of other people: dictionaries, lists, tuples, text, numbers, booleans and None, in
// protocols 2 to 5. Whatever would import a name, call something or build an object of a class is
// refused with its byte offset, so nothing in a file is ever executed. Every count is bounded, and
// no size is believed before its bytes have been read.
//
// A snapshot can hold gigabytes of small dictionaries in one list. A PickleSink therefore sees each
// item when it is appended to its list and may take it out again: what it recycles costs no memory
// afterwards. Without a sink the whole document is kept, at about 16 bytes a value and 40 a
// container. Single pass; 50 to 100 MB/s. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "formats/byte_source.h"

namespace headroom::formats {

enum class PickleKind : uint8_t { none, boolean, integer, real, text, list, tuple, dict };

// A handle; what it refers to lives in the PickleDocument.
struct PickleValue {
  PickleKind kind = PickleKind::none;
  uint32_t generation = 0;  // of the container, so that a recycled one is noticed
  int64_t payload = 0;      // integer, boolean, the bits of a real, or an index

  [[nodiscard]] bool is_container() const { return kind >= PickleKind::list; }
};

struct PickleLimits {
  int64_t max_depth = 10'000;                 // open marks; a snapshot needs seven
  int64_t max_values = 1'000'000'000;         // in containers at one time
  int64_t max_containers = 100'000'000;       // at one time
  int64_t max_memo = 500'000'000;             // objects that may be referred to again
  int64_t max_text_bytes = int64_t{1} << 26;  // of one text
};

class PickleDocument {
 public:
  [[nodiscard]] PickleValue root() const { return root_; }

  // Items of a list or tuple; keys and values in turn for a dict. Nothing for other kinds.
  [[nodiscard]] std::span<const PickleValue> items(PickleValue container) const;
  // The value of a text key, the last one where it is given twice; nullptr where there is none.
  [[nodiscard]] const PickleValue* find(PickleValue dict, std::string_view key) const;
  [[nodiscard]] std::string_view text(PickleValue value) const;
  [[nodiscard]] double real(PickleValue value) const;
  // Texts are interned: equal texts have equal payloads, below text_count().
  [[nodiscard]] size_t text_count() const { return texts_.size(); }

  // Gives a container's memory back. A later reference to it is an error of the file.
  void recycle(PickleValue container);

 private:
  friend class PickleMachine;
  struct Container {
    std::vector<PickleValue> items;
    uint32_t generation = 0;
    PickleKind kind = PickleKind::none;
  };
  PickleValue make_container(PickleKind kind);
  PickleValue intern(std::string&& text);
  [[nodiscard]] bool is_current(PickleValue value) const;

  std::vector<Container> containers_;
  std::vector<uint32_t> vacant_;
  std::vector<std::string_view> texts_;  // into the keys of text_ids_, which never move
  std::unordered_map<std::string, uint32_t> text_ids_;
  PickleValue root_;
};

// What becomes of an item that is appended to a list: it stays, it is left out of the list, or it
// is left out and its memory is given back.
enum class PickleVerdict : uint8_t { keep, leave_out, recycle };
using PickleSink = std::function<Result<PickleVerdict>(PickleDocument& document, PickleValue list,
                                                       PickleValue item)>;

// Reads one pickle. Errors say "FILE: byte N" by `source`'s name.
Result<PickleDocument> read_pickle(ByteSource& source, const PickleSink& sink = {},
                                   const PickleLimits& limits = {});

}  // namespace headroom::formats
