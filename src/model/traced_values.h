// The tensors of a traced module: what the trace says of each, and which are there as its operators
// go by. Internal to the reading of traces (traced_graph.cpp).
//
// Invariants:
//   1. An id that came out of to_id() or get_id() is in range; so is its storage.
//   2. A permanent value (parameter, buffer, input) is alive and never dropped.
//   3. holder(id) is alive and lives on the same storage as id, or is kNoValue where nothing does.
// Cost: a few words a value; every question is O(1), a drop O(log n).
#pragma once

#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "model/graph.h"
#include "text/json.h"

namespace headroom::model {

// How much one list of a trace may hold.
inline constexpr size_t kTraceCountMax = 4'000'000;
inline constexpr size_t kTraceListMax = 65'536;

struct TracedValue {
  RecordedTensor tensor;
  uint32_t storage = 0;
  bool on_device = false;
  bool alive = false;
  bool permanent = false;
  bool rewritten = false;      // an operator writes to it in place
  bool requires_grad = false;  // so far
  bool has_node = false;
};

// "shape", "strides" and "dtype" of `view`. Errors: bad_input, also for what no machine holds.
Result<RecordedTensor> read_recorded_tensor(const text::JsonView& view);

class TracedValues {
 public:
  // "storages" and "values" of the file.
  Result<void> read(const text::JsonView& json);

  [[nodiscard]] size_t size() const { return values_.size(); }
  [[nodiscard]] size_t storage_count() const { return storages_.size(); }
  TracedValue& operator[](ValueId id) { return values_[id]; }
  const TracedValue& operator[](ValueId id) const { return values_[id]; }
  [[nodiscard]] int64_t storage_bytes(ValueId id) const { return storages_[values_[id].storage]; }

  Result<ValueId> to_id(const text::JsonView& view) const;
  Result<ValueId> get_id(const text::JsonView& view, const char* key) const;

  // It is there from before the step to its end.
  void keep(ValueId id, bool requires_grad);
  // An operator made it.
  void bear(ValueId id);
  // Python let it go; false where it was not there, or stays.
  bool drop(ValueId id);
  // A value that lives on the storage of `id`.
  [[nodiscard]] ValueId holder(ValueId id) const { return holders_[values_[id].storage]; }

 private:
  std::vector<int64_t> storages_;  // bytes
  std::vector<TracedValue> values_;
  std::vector<ValueId> holders_;                           // by storage
  std::unordered_map<uint32_t, std::set<ValueId>> alive_;  // by storage, permanent ones excepted
};

}  // namespace headroom::model
