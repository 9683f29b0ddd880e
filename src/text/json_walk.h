// JsonWalk: the objects of several arrays of one JSON document, wherever in it they stand.
//
// For documents that nest what JsonItems wants at the top: rocprofv3 writes its kernels as
// {"tool": [{"buffer_records": {"kernel_dispatch": [ {..}, .. ]}}]}. The walk goes through objects
// and arrays, and stops at each object of an array whose name was asked for. Such an object is held
// as text, to be read with JsonCursor. Damage ends the walk: what came before is whole, and fault()
// says where and why.
//
// Memory stays below `longest` and a buffer; nesting deeper than kDepth is a fault. Not
// thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_feed.h"
#include "text/json_scanner.h"

namespace headroom::text {

class JsonWalk {
 public:
  static constexpr size_t kDepth = 64;

  // `arrays`: the members whose objects are wanted. One of them may be `longest` bytes long, and so
  // may a text or number on the way.
  JsonWalk(ByteFeed feed, std::vector<std::string> arrays, size_t longest = size_t{4} << 20);

  // Goes to the next wanted object; false at the end of the document or at its fault.
  bool next();
  // Its array, as an index of `arrays`, and its text. Valid until next().
  [[nodiscard]] size_t array() const { return *open_.back().wanted; }
  [[nodiscard]] std::string_view item() const { return scan_.held(); }
  [[nodiscard]] int64_t offset() const { return scan_.offset(); }

  [[nodiscard]] const std::optional<JsonFault>& fault() const { return fault_; }
  [[nodiscard]] const std::string& name() const { return scan_.name(); }

 private:
  struct Open {
    bool is_object = false;
    std::optional<size_t> wanted;  // of an array
  };

  bool fail(std::string message);
  bool enter_value(int c, std::string_view name);
  bool step(int c);
  [[nodiscard]] std::optional<size_t> wanted(std::string_view name) const;

  JsonScanner scan_;
  std::vector<std::string> arrays_;
  std::vector<Open> open_;
  bool is_begun_ = false;
  bool is_item_ = false;
  std::optional<JsonFault> fault_;
};

}  // namespace headroom::text
