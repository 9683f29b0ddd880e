#include "step/layer_fold.h"

#include <algorithm>
#include <functional>
#include <span>

namespace headroom::step {

namespace {

using model::Graph;
using model::Instruction;
using model::InstructionKind;
using model::kNoValue;
using model::Operation;
using model::Parameter;
using model::Region;
using model::RegionKind;
using model::ValueId;

constexpr uint32_t kKeptUnits = 4;
constexpr uint32_t kPeriodMax = 8;
constexpr int32_t kNobody = -1;

void mix(uint64_t& hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15U;
  hash ^= hash >> 29U;
}

// Equal for layers that are alike, and nearly never else: which stretches are worth a closer look.
uint64_t hash_of_layer(const Graph& graph, const Region& layer, bool is_checkpointed) {
  uint64_t hash = is_checkpointed ? 1 : 0;
  for (uint32_t i = layer.begin; i < layer.end; ++i) {
    const Instruction& instruction = graph.instructions[i];
    mix(hash, static_cast<uint64_t>(instruction.kind));
    if (instruction.kind != InstructionKind::operation) continue;
    const Operation& operation = graph.operations[instruction.index];
    mix(hash, static_cast<uint64_t>(operation.kind) << 16U | operation.inputs.size());
    for (const int64_t value : operation.attributes.ints) mix(hash, static_cast<uint64_t>(value));
  }
  return hash;
}

bool is_equal(const model::Attributes& a, const model::Attributes& b) {
  return a.ints == b.ints && a.number == b.number && a.dtype == b.dtype && a.flag == b.flag;
}

// Units of `period` layers, from layer `first` on.
struct Stretch {
  uint32_t first = 0;
  uint32_t period = 1;
  uint32_t units = 0;
  [[nodiscard]] uint32_t skipped_layers() const {
    return units > kKeptUnits ? (units - kKeptUnits) * period : 0;
  }
};

Stretch longest_stretch(const std::vector<uint64_t>& hashes) {
  Stretch best;
  const auto count = static_cast<uint32_t>(hashes.size());
  for (uint32_t period = 1; period <= kPeriodMax && period * kKeptUnits < count; ++period) {
    uint32_t first = 0;
    for (uint32_t i = period; i <= count; ++i) {
      if (i < count && hashes[i] == hashes[i - period]) continue;
      const Stretch stretch{first, period, (i - first) / period};
      if (stretch.skipped_layers() > best.skipped_layers()) best = stretch;
      first = i + 1 - period;
    }
  }
  return best;
}

// Holds the middle units of a stretch against each other, and writes the fold as it goes.
class Comparison {
 public:
  Comparison(const Graph& graph, const std::vector<bool>& checkpointed,
             const std::vector<uint32_t>& layers, const Stretch& stretch)
      : graph_(graph), checkpointed_(checkpointed), units_(stretch.units) {
    for (uint32_t unit = 0; unit < units_; ++unit) {
      first_region_.push_back(layers[stretch.first + unit * stretch.period]);
      begin_.push_back(graph.regions[first_region_.back()].begin);
    }
    end_ = graph.regions[layers[stretch.first + units_ * stretch.period - 1]].end;
    modules_ = first_region_[2] - first_region_[1];
  }

  std::optional<LayerFold> fold() {
    if (!find_makers() || !is_one_level() || leaks()) return std::nullopt;
    declare();
    parameters_.resize(units_ - 2);
    carried_.assign(made_[1].size(), false);
    let_go_.assign(made_[1].size(), false);
    // All are compared with their neighbour, so that each is like the first.
    for (uint32_t unit = 1; unit + 2 < units_; ++unit) {
      if (!is_like_next(unit)) return std::nullopt;
    }
    return result();
  }

 private:
  [[nodiscard]] uint32_t end_of(uint32_t unit) const {
    return unit + 1 < units_ ? begin_[unit + 1] : end_;
  }
  [[nodiscard]] bool is_middle(int32_t unit) const {
    return unit >= 1 && unit + 1 < static_cast<int32_t>(units_);
  }

  // Who makes each value: a unit, by the number in which it comes there, or somebody else.
  bool find_makers() {
    maker_.assign(graph_.value_count, kNobody);
    place_.assign(graph_.value_count, 0);
    made_.resize(units_);
    std::vector<bool> is_made(graph_.value_count);
    int32_t unit = kNobody;
    for (uint32_t i = 0; i < graph_.instructions.size(); ++i) {
      if (unit + 1 < static_cast<int32_t>(units_) && i == begin_[static_cast<size_t>(unit) + 1]) {
        ++unit;
      }
      const Instruction& instruction = graph_.instructions[i];
      if (instruction.kind != InstructionKind::operation) continue;
      for (const ValueId value : graph_.operations[instruction.index].outputs) {
        if (is_made[value]) return false;
        is_made[value] = true;
        if (unit == kNobody || i >= end_) continue;
        maker_[value] = unit;
        place_[value] = static_cast<uint32_t>(made_[static_cast<size_t>(unit)].size());
        made_[static_cast<size_t>(unit)].push_back(value);
      }
    }
    return true;
  }

  // The second unit enters no region that it does not leave, and leaves none that it did not enter.
  [[nodiscard]] bool is_one_level() const {
    int depth = 0;
    for (uint32_t i = begin_[1]; i < begin_[2]; ++i) {
      if (graph_.instructions[i].kind == InstructionKind::enter) ++depth;
      if (graph_.instructions[i].kind == InstructionKind::leave && --depth < 0) return false;
    }
    return depth == 0;
  }

  // Whether anything but the last unit uses what middle units make.
  [[nodiscard]] bool leaks() const {
    const auto is_foreign = [&](ValueId value, bool in_last) {
      if (value == kNoValue || !is_middle(maker_[value])) return false;
      return !in_last || maker_[value] + 2 != static_cast<int32_t>(units_);
    };
    if (is_foreign(graph_.loss, false) || is_foreign(graph_.logits, false)) return true;
    for (uint32_t i = 0; i < graph_.instructions.size(); ++i) {
      if (i == begin_[1]) i = begin_[units_ - 1];
      const bool in_last = i >= begin_[units_ - 1] && i < end_;
      const Instruction& instruction = graph_.instructions[i];
      std::span<const ValueId> used;
      if (instruction.kind == InstructionKind::operation) {
        used = graph_.operations[instruction.index].inputs;
      } else if (instruction.kind == InstructionKind::enter) {
        used = graph_.regions[instruction.index].inputs;
      } else {
        continue;
      }
      const auto foreign = [&](ValueId value) { return is_foreign(value, in_last); };
      if (std::ranges::any_of(used, foreign)) return true;
    }
    return false;
  }

  void declare() {
    declared_.assign(graph_.value_count, nullptr);
    first_use_.assign(graph_.value_count, {});
    for (const Parameter& parameter : graph_.parameters) {
      if (!parameter.tied_to) declared_[parameter.value] = &parameter;
    }
    for (const Parameter& buffer : graph_.buffers) declared_[buffer.value] = &buffer;
  }

  bool is_like_next(uint32_t unit) {
    const uint32_t next = unit + 1;
    if (end_of(unit) - begin_[unit] != end_of(next) - begin_[next]) return false;
    if (first_region_[next + 1] - first_region_[next] != modules_) return false;
    for (uint32_t i = 0; i < end_of(unit) - begin_[unit]; ++i) {
      const Instruction& a = graph_.instructions[begin_[unit] + i];
      const Instruction& b = graph_.instructions[begin_[next] + i];
      if (a.kind != b.kind) return false;
      bool same = false;
      switch (a.kind) {
        case InstructionKind::operation:
          same = is_same_operation(graph_.operations[a.index], graph_.operations[b.index], unit);
          break;
        case InstructionKind::drop:
          same = is_same_drop(a.index, b.index, unit);
          break;
        case InstructionKind::enter:
          same = is_same_region(a.index, b.index, unit);
          break;
        case InstructionKind::leave:
          same = is_counterpart(a.index, b.index, unit);
          break;
      }
      if (!same) return false;
    }
    return true;
  }

  // Regions of two neighbours, each in its own.
  [[nodiscard]] bool is_counterpart(uint32_t a, uint32_t b, uint32_t unit) const {
    return a >= first_region_[unit] && a - first_region_[unit] < modules_ && b == a + modules_;
  }
  [[nodiscard]] bool is_same_module(uint32_t a, uint32_t b, uint32_t unit) const {
    if (a > first_region_[unit] && a - 1 - first_region_[unit] < modules_) return b == a + modules_;
    return a == b;
  }

  bool is_same_region(uint32_t a, uint32_t b, uint32_t unit) {
    const Region& one = graph_.regions[a];
    const Region& other = graph_.regions[b];
    return is_counterpart(a, b, unit) && checkpointed_[a] == checkpointed_[b] &&
           one.kind == other.kind && one.positional == other.positional &&
           are_same(one.inputs, other.inputs, unit) && are_same(one.outputs, other.outputs, unit);
  }

  bool is_same_operation(const Operation& a, const Operation& b, uint32_t unit) {
    if (a.recording || b.recording) return false;
    return a.kind == b.kind && is_same_module(a.module, b.module, unit) &&
           is_equal(a.attributes, b.attributes) && are_same(a.inputs, b.inputs, unit) &&
           are_same(a.outputs, b.outputs, unit);
  }

  bool are_same(std::span<const ValueId> a, std::span<const ValueId> b, uint32_t unit) {
    return std::ranges::equal(a, b, [&](ValueId x, ValueId y) { return is_same(x, y, unit); });
  }

  bool is_same_drop(ValueId a, ValueId b, uint32_t unit) {
    if (maker_[b] == static_cast<int32_t>(unit)) let_go_[place_[b]] = true;
    return a != b && is_same(a, b, unit);
  }

  // Values used in the same place by a unit and the next one.
  bool is_same(ValueId a, ValueId b, uint32_t unit) {
    if (a == kNoValue || b == kNoValue) return a == b;
    if (a == b) return !is_middle(maker_[a]);
    const auto self = static_cast<int32_t>(unit);
    if (maker_[a] == self && maker_[b] == self + 1) return place_[a] == place_[b];
    if (maker_[b] == self) {
      carried_[place_[b]] = true;
      // What comes into the first of them comes from wherever it does.
      if (unit == 1) return !is_middle(maker_[a]);
      return maker_[a] == self - 1 && place_[a] == place_[b];
    }
    return declared_[a] != nullptr && declared_[b] != nullptr && is_same_parameter(a, b, unit);
  }

  bool is_same_parameter(ValueId a, ValueId b, uint32_t unit) {
    const Parameter& one = *declared_[a];
    const Parameter& other = *declared_[b];
    if (!(one.shape == other.shape) || one.dtype != other.dtype ||
        one.trainable != other.trainable || one.role != other.role) {
      return false;
    }
    const std::optional<uint32_t> in_this = use(a, unit);
    return in_this && in_this == use(b, unit + 1);
  }

  // The number of a parameter among those that the unit uses; nothing where another uses it too.
  std::optional<uint32_t> use(ValueId value, uint32_t unit) {
    FirstUse& first = first_use_[value];
    auto& list = parameters_[unit - 1];
    if (first.unit == 0) {
      first = {unit, static_cast<uint32_t>(list.size())};
      list.push_back(value);
    }
    if (first.unit != unit) return std::nullopt;
    return first.number;
  }

  [[nodiscard]] LayerFold result() {
    LayerFold fold;
    fold.units = units_;
    fold.modules_per_unit = modules_;
    fold.kept_of_module.assign(graph_.regions.size() + 1, LayerFold::kNoUnit);
    for (uint32_t region = 0; region < graph_.regions.size(); ++region) {
      for (uint32_t kept = 0; kept < kKeptUnits; ++kept) {
        const uint32_t unit = kept < 2 ? kept : units_ - kKeptUnits + kept;
        const uint32_t at = graph_.regions[region].begin;
        if (at < begin_[unit] || at >= end_of(unit)) continue;
        fold.kept_of_module[region + 1] = static_cast<int8_t>(kept);
      }
    }
    fold.skipped.begin = begin_[2];
    fold.skipped.end = begin_[units_ - 2];
    for (size_t place = 0; place < made_[1].size(); ++place) {
      if (!carried_[place]) continue;
      fold.skipped.passed_on.push_back({made_[1][place], made_[units_ - 3][place], let_go_[place]});
    }
    fold.parameters = std::move(parameters_);
    return fold;
  }

  struct FirstUse {
    uint32_t unit = 0;  // 0: of none
    uint32_t number = 0;
  };

  const Graph& graph_;
  const std::vector<bool>& checkpointed_;
  uint32_t units_;
  uint32_t modules_ = 0;
  std::vector<uint32_t> first_region_;      // by unit
  std::vector<uint32_t> begin_;             // by unit, instructions
  uint32_t end_ = 0;                        // of the last unit
  std::vector<int32_t> maker_;              // by value
  std::vector<uint32_t> place_;             // by value, in its unit
  std::vector<std::vector<ValueId>> made_;  // by unit
  std::vector<const Parameter*> declared_;  // by value
  std::vector<FirstUse> first_use_;         // by value
  std::vector<std::vector<ValueId>> parameters_;
  std::vector<bool> carried_;  // by place: the next unit uses it
  std::vector<bool> let_go_;   // by place: the next unit drops it
};

}  // namespace

std::optional<LayerFold> fold_layers(const Graph& graph, const std::vector<bool>& checkpointed) {
  std::vector<uint32_t> layers;
  std::vector<uint64_t> hashes;
  for (uint32_t region = 0; region < graph.regions.size(); ++region) {
    if (graph.regions[region].kind != RegionKind::layer) continue;
    layers.push_back(region);
    hashes.push_back(hash_of_layer(graph, graph.regions[region], checkpointed[region]));
  }
  const Stretch stretch = longest_stretch(hashes);
  if (stretch.skipped_layers() == 0) return std::nullopt;
  return Comparison(graph, checkpointed, layers, stretch).fold();
}

}  // namespace headroom::step
