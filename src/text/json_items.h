// JsonItems: the objects of one long array in a JSON document, one after the other, as text.
//
// For profiler traces: gigabytes of small objects under one key ("traceEvents"), or as an array
// that is the document, with a few small members before and behind. One item is held at a time,
// whatever the size of the file; items are read with JsonCursor (text/json_cursor.h). What cannot
// be an item (cut off, of another kind, too long) is recorded with its place and skipped up to
// where the next one seems to begin, so a damaged file still gives what is whole in it.
//
// Invariants:
//   1. memory stays below limits.item + limits.members + a buffer, whatever comes;
//   2. every byte is looked at once, and at most limits.faults times limits.item bytes again;
//   3. item() is balanced in quotation marks and braces; nothing else of it has been checked.
//
// Not thread-safe; about 1.3 GB/s from memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/byte_feed.h"
#include "text/json_scanner.h"

namespace headroom::text {

struct JsonItemsLimits {
  size_t item = size_t{4} << 20;     // bytes of one item
  size_t members = size_t{4} << 20;  // bytes of the members beside the array that are kept
  int64_t faults = 256;              // more places that cannot be read, and the file is refused
};

class JsonItems {
 public:
  // The array is the document itself, or the member `key` of it.
  JsonItems(ByteFeed feed, std::string key, const JsonItemsLimits& limits = {});

  // Goes to the next item; false at the end of the document, whole or cut (faults() says). A
  // document that has no such array is an Error, and so is one with too many faults.
  Result<bool> next();

  // The item that next() went to, from '{' to '}'. Valid until next().
  [[nodiscard]] std::string_view item() const { return scan_.held(); }
  [[nodiscard]] int64_t offset() const { return scan_.offset(); }

  // The members beside the array, as far as the document is read: name and text.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& members() const {
    return members_;
  }
  [[nodiscard]] const std::vector<JsonFault>& faults() const { return faults_; }
  // Whether the document ended before its array did.
  [[nodiscard]] bool is_cut() const { return is_cut_; }
  [[nodiscard]] const std::string& name() const { return scan_.name(); }

 private:
  enum class Where { start, members, array, end };

  void fault(int64_t offset, std::string message);
  void take_failure();
  [[nodiscard]] Error not_readable(std::string message) const;

  Result<void> enter();
  Result<void> next_member();
  Result<bool> next_item();
  Result<void> note(std::string message);
  Result<void> recover(std::string message);
  bool seek_item();

  JsonScanner scan_;
  std::string key_;
  JsonItemsLimits limits_;
  bool is_member_ = false;  // the array is a member of an object
  bool found_ = false;
  bool is_cut_ = false;
  bool is_failure_taken_ = false;
  Where where_ = Where::start;
  size_t members_bytes_ = 0;
  std::vector<std::pair<std::string, std::string>> members_;
  std::vector<JsonFault> faults_;
};

}  // namespace headroom::text
