#include "model/traced_values.h"

#include "operator/eager.h"

namespace headroom::model {

namespace {

using text::JsonView;

constexpr int64_t kSizeMax = int64_t{1} << 40;
constexpr int64_t kBytesMax = op::kTensorBytesMax;

Result<Dims> read_dims(const JsonView& view, const char* key) {
  HEADROOM_ASSIGN(const auto items, view.get_array(key, op::kDimsMax));
  Dims dims;
  for (const JsonView& item : items) {
    HEADROOM_ASSIGN(const int64_t size, item.to_int(0, kSizeMax));
    dims.push_back(size);
  }
  return dims;
}

template <typename T>
int64_t last(const std::vector<T>& list) {
  return static_cast<int64_t>(list.size()) - 1;
}

}  // namespace

Result<RecordedTensor> read_recorded_tensor(const JsonView& view) {
  RecordedTensor tensor;
  HEADROOM_ASSIGN(tensor.sizes, read_dims(view, "shape"));
  HEADROOM_ASSIGN(tensor.strides, read_dims(view, "strides"));
  HEADROOM_ASSIGN(const std::string dtype, view.get_string("dtype"));
  if (tensor.sizes.size() != tensor.strides.size()) {
    return view.error_at("strides", "as many strides as sizes are expected");
  }
  // Only sizes count here, so the unsigned types (a random state is uint64) are their signed ones.
  const bool is_unsigned = dtype == "uint16" || dtype == "uint32" || dtype == "uint64";
  const auto parsed = op::parse_dtype(is_unsigned ? dtype.substr(1) : dtype);
  if (!parsed) {
    return view.error_at("dtype", "unknown element type '" + dtype.substr(0, 80) + "'");
  }
  tensor.dtype = *parsed;
  if (op::product(tensor.sizes) > kBytesMax / op::element_size(tensor.dtype)) {
    return view.error_at("shape", "a tensor too large for any machine");
  }
  return tensor;
}

Result<void> TracedValues::read(const JsonView& json) {
  HEADROOM_ASSIGN(const auto storages, json.get_array("storages", kTraceCountMax));
  for (const JsonView& view : storages) {
    HEADROOM_ASSIGN(const int64_t bytes, view.get_int("bytes", 0, kBytesMax));
    storages_.push_back(bytes);
  }
  holders_.assign(storages_.size(), kNoValue);
  HEADROOM_ASSIGN(const auto values, json.get_array("values", kTraceCountMax));
  for (const JsonView& view : values) {
    TracedValue value;
    HEADROOM_ASSIGN(value.tensor, read_recorded_tensor(view));
    HEADROOM_ASSIGN(const int64_t storage, view.get_int("storage", 0, last(storages_)));
    HEADROOM_ASSIGN(const std::string device, view.get_string("device"));
    value.storage = static_cast<uint32_t>(storage);
    value.on_device = device.starts_with("cuda") && device.size() == 4;
    values_.push_back(value);
  }
  return {};
}

Result<ValueId> TracedValues::to_id(const JsonView& view) const {
  HEADROOM_ASSIGN(const int64_t id, view.to_int(0, last(values_)));
  return static_cast<ValueId>(id);
}

Result<ValueId> TracedValues::get_id(const JsonView& view, const char* key) const {
  HEADROOM_ASSIGN(const int64_t id, view.get_int(key, 0, last(values_)));
  return static_cast<ValueId>(id);
}

void TracedValues::keep(ValueId id, bool requires_grad) {
  TracedValue& value = values_[id];
  value.alive = value.permanent = true;
  value.requires_grad = requires_grad && op::is_floating(value.tensor.dtype);
  ValueId& holder = holders_[value.storage];
  if (holder == kNoValue) holder = id;
}

void TracedValues::bear(ValueId id) {
  TracedValue& value = values_[id];
  value.alive = true;
  if (value.permanent) return;
  ValueId& holder = holders_[value.storage];
  if (holder == kNoValue) holder = id;
  alive_[value.storage].insert(id);
}

bool TracedValues::drop(ValueId id) {
  TracedValue& value = values_[id];
  if (!value.alive || value.permanent) return false;
  value.alive = false;
  auto& others = alive_[value.storage];
  others.erase(id);
  ValueId& holder = holders_[value.storage];
  if (holder == id) holder = others.empty() ? kNoValue : *others.begin();
  return true;
}

}  // namespace headroom::model
