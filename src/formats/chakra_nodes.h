// Chakra's execution traces as MLCommons' tools write them (`chakra_converter`, files named .et): a
// stream of messages of protocol buffers, each behind its length: the file's metadata, then nodes.
//
// One message is held at a time, of at most kMostMessage bytes; a length is held against that
// before anything is made for it. Schema 0.0.4 of mlcommons/chakra (October 2023; the metadata's
// version came a little later) to 1.0.0: schema/protobuf/et_def.proto there, and what its
// converters put into the attributes. Node, before that, had other fields of the same numbers and
// no durations: refused. Fields that are not known are passed over. Blocking, not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/byte_feed.h"

namespace headroom::formats {

// Type of a node, by the schema's numbers; what is above is of storage, and no operator.
enum class ChakraType : uint8_t {
  unknown = 0,
  metadata = 1,
  memory_load = 2,
  memory_store = 3,
  compute = 4,
  send = 5,
  receive = 6,
  collective = 7,
  other = 8
};

// What of a node matters. Views are into the message, valid until the next one is read.
struct ChakraNode {
  uint64_t id = 0;
  std::string_view name;
  ChakraType type = ChakraType::unknown;
  // The first of each kind of dependency: who called it, and what it waited for.
  uint64_t called_by = 0;
  uint64_t waits_for = 0;
  bool has_caller = false;
  bool has_wait = false;
  uint64_t duration_us = 0;        // of an operator on the host without those that it called
  std::string_view shapes, types;  // of its inputs, as Python writes lists
  // Attributes.
  std::string_view operator_schema;  // "aten::mm(Tensor self, Tensor mat2) -> Tensor"
  std::string_view process_group;
  int64_t record_id = 0;  // the profiler's (rf_id)
  int64_t scope = 0;      // RecordScope of PyTorch
  int64_t thread = 0;
  int64_t stream = 0;
  int64_t collective = 0;  // CollectiveCommType
  int64_t collective_bytes = 0;
  bool is_on_host = false;
  bool has_stream = false;
  bool is_collective_known = false;
  bool is_readable = true;  // else a message that is no node, in which some of this may stand
};

class ChakraNodes {
 public:
  static constexpr uint64_t kMostMessage = uint64_t{1} << 24;

  explicit ChakraNodes(text::ByteFeed feed) : feed_(std::move(feed)) {}

  // The next node; false at the end, and where the file breaks off or makes no more sense: then
  // fault() says why. Older schemas are an Error.
  Result<bool> next(ChakraNode& node);

  [[nodiscard]] const std::string& name() const { return feed_.name(); }
  [[nodiscard]] int64_t place() const { return message_at_; }  // of the message, unpacked
  [[nodiscard]] const std::string& fault() const { return fault_; }
  // PyTorch's schema of what was converted, as the metadata has it: "1.1.1-chakra.0.0.4"; or "".
  [[nodiscard]] const std::string& schema() const { return schema_; }

 private:
  bool next_message();
  bool read_length(uint64_t& length);
  bool fill(uint64_t length);
  bool break_off(std::string why);
  void read_metadata();

  text::ByteFeed feed_;
  std::string message_;
  int64_t at_ = 0;
  int64_t message_at_ = 0;
  bool has_metadata_ = false;
  std::string fault_;
  std::string schema_;
};

// Whether the first bytes of an unpacked file are such a file's: messages of these fields.
[[nodiscard]] bool is_chakra(std::string_view begin);

}  // namespace headroom::formats
