// What the dicts of a PyTorch snapshot are made of: the keys that mean something, and their values
// in one dict at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/pickle.h"

namespace headroom::formats {

enum class SnapshotField : uint8_t {
  unknown,
  action,
  active_size,
  addr,
  address,
  allocated_size,
  blocks,
  device,
  device_free,
  filename,
  frames,
  history,
  is_expandable,
  line,
  name,
  real_size,
  requested_size,
  segment_pool_id,
  segment_type,
  size,
  stage,
  state,
  stream,
  time_us,
  total_size,
};
inline constexpr size_t kSnapshotFields = static_cast<size_t>(SnapshotField::total_size) + 1;

[[nodiscard]] std::string_view snapshot_field_name(SnapshotField field);

// A list of words, and which of them a pickled text is: each text is compared once.
class Vocabulary {
 public:
  explicit Vocabulary(std::span<const std::string_view> words) : words_(words) {}
  // Its index in the list; 0 where it is none of them, or no text.
  [[nodiscard]] uint8_t find(const PickleDocument& document, PickleValue text) {
    if (text.kind() != PickleKind::text) return 0;
    const size_t index = text.index();
    if (index < known_.size() && known_[index] != kNotYet) return known_[index];
    return look_up(document, text);
  }

 private:
  static constexpr uint8_t kNotYet = 255;
  uint8_t look_up(const PickleDocument& document, PickleValue text);
  std::span<const std::string_view> words_;
  std::vector<uint8_t> known_;  // by text
};

// The fields of one dict. A value that is not what was asked for is remembered as the dict's
// problem, the first one only, and read as 0.
class SnapshotFields {
 public:
  using Field = SnapshotField;
  SnapshotFields();

  // `items` are looked at until the next load(). Dicts of the same `shape` have the same keys.
  void load(const PickleDocument& document, uint32_t shape, std::span<const PickleValue> items) {
    document_ = &document;
    items_ = items.data();
    if (!problem_.empty()) problem_.clear();
    const size_t number = shape == PickleSink::kNoShape ? 0 : size_t{shape} + 1;
    const bool is_known = number < layouts_.size() && (number > 0 || has_last_keys(items));
    if (!is_known) learn(number, items);
    layout_ = &layouts_[number];
  }

  [[nodiscard]] bool has(Field field) const { return layout_->places[index(field)] != 0; }
  // None where it is absent.
  [[nodiscard]] PickleValue operator[](Field field) const {
    const uint32_t place = layout_->places[index(field)];
    return place != 0 ? items_[place] : PickleValue();
  }
  // `fallback` where the field is absent or None; without one that is a problem.
  int64_t integer(Field field, std::optional<int64_t> fallback = std::nullopt) {
    const PickleValue value = (*this)[field];
    if (value.kind() == PickleKind::integer) [[likely]]
      return *document_->integer(value);
    return no_integer(field, fallback);
  }
  // The same, where a negative value is a problem too.
  int64_t size(Field field, std::optional<int64_t> fallback = std::nullopt) {
    const int64_t value = integer(field, fallback);
    return value >= 0 ? value : no_size(field);
  }

  void complain(std::string problem);
  // Empty where all is well.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  // Where the values of the fields are among the items; 0 (a key's place) for those that are not.
  struct Layout {
    std::array<uint32_t, kSnapshotFields> places{};
  };
  [[nodiscard]] bool has_last_keys(std::span<const PickleValue> items) const;
  void learn(size_t number, std::span<const PickleValue> items);
  int64_t no_integer(Field field, std::optional<int64_t> fallback);
  int64_t no_size(Field field);
  static constexpr size_t index(Field field) { return static_cast<size_t>(field); }

  const PickleDocument* document_ = nullptr;
  const PickleValue* items_ = nullptr;
  const Layout* layout_ = nullptr;
  Vocabulary keys_;
  // Of each shape; before them, that of the last dict without one, whose keys are last_keys_.
  std::vector<Layout> layouts_;
  std::vector<PickleValue> last_keys_;
  std::string problem_;
};

}  // namespace headroom::formats
