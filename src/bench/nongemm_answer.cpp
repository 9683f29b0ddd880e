// Rows of `bench nongemm` from records: shares, composition of the whole, the paper's effects.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/median.h"
#include "bench/nongemm.h"
#include "text/number.h"

namespace headroom::bench {
namespace {

using text::formatted;

constexpr double kMuchClampedPct = 1;
// Of a composed whole. Chosen, not measured: a time that is unsure by over half is no answer.
constexpr double kMostUnsure = 0.5;
constexpr double kMuchMissedPct = 10;  // of the time, by the paper's lists of names

double sum_of(const GroupMilliseconds& groups) {
  double sum = 0;
  for (const auto& [name, ms] : groups) sum += ms;
  return sum;
}

double of_group(const GroupMilliseconds& groups, std::string_view name) {
  for (const auto& [group, ms] : groups) {
    if (group == name) return ms;
  }
  return 0;
}

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

// What of a row can be added and subtracted.
struct Measured {
  double seconds = 0;
  std::optional<double> half;
  double profiled_seconds = 0;
  TimeAccount profile;
  std::optional<double> joules;
};

Measured measured_of(const NongemmRecord& record) {
  Measured measured{record.seconds, {}, record.profiled_seconds, record.profile, record.joules};
  if (record.uncertainty) measured.half = *record.uncertainty * record.seconds;
  return measured;
}

// Time cannot be negative: what noise made so is cut, and returned in `cut_ms`.
GroupMilliseconds groups_with(const GroupMilliseconds& one, const GroupMilliseconds& other,
                              double weight, double& cut_ms) {
  GroupMilliseconds sums = one;
  for (const auto& [name, ms] : other) {
    const auto found = std::ranges::find(sums, name, &std::pair<std::string, double>::first);
    if (found == sums.end()) {
      sums.emplace_back(name, weight * ms);
    } else {
      found->second += weight * ms;
    }
  }
  for (auto& [name, ms] : sums) {
    cut_ms += std::max(0.0, -ms);
    ms = std::max(0.0, ms);
  }
  return sums;
}

Measured times_of(const Measured& one, double times) {
  Measured many = one;
  many.seconds *= times;
  many.profiled_seconds *= times;
  if (many.half) *many.half *= times;
  if (many.joules) *many.joules *= times;
  for (GroupMilliseconds* groups : {&many.profile.groups, &many.profile.paper_groups}) {
    for (auto& [name, ms] : *groups) ms *= times;
  }
  many.profile.idle_ms *= times;
  many.profile.wall_ms *= times;
  return many;
}

// one + weight * other
Measured sum_with(const Measured& one, const Measured& other, double weight, double& cut_ms) {
  Measured sum;
  double paper_cut_ms = 0;  // says the same
  sum.seconds = one.seconds + weight * other.seconds;
  sum.profiled_seconds = one.profiled_seconds + weight * other.profiled_seconds;
  if (one.half && other.half) sum.half = std::hypot(*one.half, weight * *other.half);
  if (one.joules && other.joules) {
    sum.joules = std::max(0.0, *one.joules + weight * *other.joules);
  }
  sum.profile.groups = groups_with(one.profile.groups, other.profile.groups, weight, cut_ms);
  sum.profile.paper_groups =
      groups_with(one.profile.paper_groups, other.profile.paper_groups, weight, paper_cut_ms);
  sum.profile.idle_ms = std::max(0.0, one.profile.idle_ms + weight * other.profile.idle_ms);
  sum.profile.wall_ms = sum_of(sum.profile.groups) + sum.profile.idle_ms;
  return sum;
}

// As the paper's code has it: what its lists do not name is lost.
std::optional<double> paper_share(const GroupMilliseconds& groups) {
  const double total = sum_of(groups);
  const double missed = of_group(groups, "missed");
  if (total <= missed || percent(missed, total) > kMuchMissedPct) return std::nullopt;
  return std::clamp(100 - percent(of_group(groups, "GEMM"), total - missed), 0.0, 100.0);
}

void add_shares(const Measured& measured, NongemmRow& row) {
  row.seconds = measured.seconds;
  row.seconds_half = measured.half;
  row.groups = measured.profile.groups;
  const double total = sum_of(row.groups);
  row.gemm_pct = percent(of_group(row.groups, "gemm"), total);
  row.attention_pct = percent(of_group(row.groups, "attention"), total);
  row.nongemm_pct = total > 0 ? std::max(0.0, 100 - row.gemm_pct - row.attention_pct) : 0;
  row.paper_nongemm_pct = paper_share(measured.profile.paper_groups);
  const double wall = measured.profile.wall_ms;
  row.covered_pct = std::clamp(percent(wall - measured.profile.idle_ms, wall), 0.0, 100.0);
  row.profiler_cost_pct = 100 * (measured.profiled_seconds / measured.seconds - 1);
  row.joules = measured.joules;
}

NongemmRow whole_row(const NongemmRecord& record) {
  NongemmRow row;
  row.setting = record.setting;
  row.layers_of_model = record.layers_of_model;
  row.parameters = record.parameters;
  row.notes = record.notes;
  add_shares(measured_of(record), row);
  return row;
}

NongemmRecord not_composed(const NongemmRecord& record, std::string reason) {
  NongemmRecord refused;
  refused.setting = record.setting;
  refused.status = NongemmStatus::failed;
  refused.reason = std::move(reason);
  return refused;
}

// What the layers take that `more` has beyond the other depth, in its own run: of its seconds,
// which no profiler saw, the share that they have of its profiled time. Two periods say how sure
// that is; of one period it is as sure as its run.
std::optional<Measured> layers_within(const NongemmRecord& more) {
  const std::optional<AddedLayers>& added = more.profile.added;
  if (!added || added->wall_ms <= 0 || more.profile.wall_ms <= added->wall_ms) return std::nullopt;
  const double share = added->wall_ms / more.profile.wall_ms;
  Measured layers;
  layers.profile = *added;
  layers.seconds = share * more.seconds;
  layers.profiled_seconds = share * more.profiled_seconds;
  if (added->apart_ms) {
    layers.half = *added->apart_ms / (2 * added->wall_ms) * layers.seconds;
  } else if (more.uncertainty) {
    layers.half = *more.uncertainty * layers.seconds;
  }
  if (more.joules) layers.joules = share * *more.joules;
  return layers;
}

// A composed whole, and what of it noise had made negative.
struct Composed {
  Measured whole;
  bool is_within_one_run = false;
  double cut_ms = 0;
};

// What `more` lacks is so many times what it has beyond `few`, which repeats within it; where
// nothing repeats as it should, the layers are the difference of the two runs.
Composed sum_of_layers(const NongemmRecord& few, const NongemmRecord& more, double times) {
  Composed composed;
  const auto layers = layers_within(more);
  composed.is_within_one_run = layers.has_value();
  Measured ends = measured_of(more);
  if (layers) {
    // Of a single run the part's own spread is what is known.
    if (!ends.half) ends.half = 0;
    composed.whole = sum_with(ends, *layers, times, composed.cut_ms);
  } else {
    const Measured enlarged = times_of(ends, 1 + times);
    composed.whole = sum_with(enlarged, measured_of(few), -times, composed.cut_ms);
  }
  return composed;
}

// REQUIRES: both are measured, few has fewer layers than more, and the model has more still.
std::optional<Composed> compose(const NongemmRecord& few, const NongemmRecord& more) {
  const double times = static_cast<double>(*more.layers_of_model - *more.layers) /
                       static_cast<double>(*more.layers - *few.layers);
  Composed composed = sum_of_layers(few, more, times);
  const Measured& whole = composed.whole;
  const bool is_more = composed.is_within_one_run || more.seconds > few.seconds;
  if (!is_more || whole.seconds <= 0 || whole.profiled_seconds <= 0) return std::nullopt;
  if (sum_of(whole.profile.groups) <= 0) return std::nullopt;
  if (whole.half && *whole.half > kMostUnsure * whole.seconds) return std::nullopt;
  return composed;
}

std::optional<NongemmRow> composed_row(const NongemmRecord& few, const NongemmRecord& more) {
  const auto composed = compose(few, more);
  if (!composed) return std::nullopt;
  NongemmRow row;
  row.setting = more.setting;
  row.provenance = Provenance::extrapolated;
  row.measured_layers = {*few.layers, *more.layers};
  row.layers_of_model = more.layers_of_model;
  row.parameters = more.model_parameters;
  row.notes = more.notes;
  add_shares(composed->whole, row);
  if (!composed->is_within_one_run) {
    row.notes.emplace_back("a layer's time is the difference of two runs");
  }
  if (!composed->whole.half) {
    row.notes.emplace_back("composed of single runs: how sure it is was not measured");
  }
  if (percent(composed->cut_ms, sum_of(composed->whole.profile.groups)) > kMuchClampedPct) {
    row.notes.emplace_back("noise made some groups' layers negative: they are cut to nothing");
  }
  return row;
}

// The records of one setting.
struct Parts {
  const NongemmRecord* whole = nullptr;
  const NongemmRecord* refused = nullptr;
  std::vector<const NongemmRecord*> depths;
};

void add_setting(Parts parts, NongemmAnswer& answer) {
  if (parts.whole != nullptr) {
    answer.rows.push_back(whole_row(*parts.whole));
    return;
  }
  std::ranges::sort(parts.depths, {}, [](const auto* record) { return *record->layers; });
  const bool has_two = parts.depths.size() >= 2;
  if (has_two) {
    const NongemmRecord& few = *parts.depths[0];
    const NongemmRecord& more = *parts.depths[1];
    const bool is_deeper = more.layers_of_model && *more.layers_of_model > *more.layers;
    auto row = is_deeper ? composed_row(few, more) : std::nullopt;
    if (row) {
      answer.rows.push_back(std::move(*row));
    } else {
      answer.refused.push_back(not_composed(
          more,
          "two numbers of layers cannot be told apart surely enough to compose the whole of them: "
          "measure again on a quieter machine, or with more --seconds"));
    }
    return;
  }
  if (parts.refused != nullptr) {
    answer.refused.push_back(*parts.refused);
  } else if (!parts.depths.empty()) {
    answer.refused.push_back(
        not_composed(*parts.depths[0],
                     "only one number of layers was measured, so that the whole "
                     "cannot be composed: run the same command again"));
  }
}

enum class Place { below, within, above };
Place place_of(double value, double low, double high) {
  return value < low ? Place::below : value > high ? Place::above : Place::within;
}
void count(Place place, int64_t& below, int64_t& within, int64_t& above) {
  ++(place == Place::below ? below : place == Place::above ? above : within);
}

std::string words_of(const NongemmRow& row) {
  const NongemmSetting& setting = row.setting;
  return setting.model + " (" + setting.engine + ", batch " + std::to_string(setting.batch) +
         (setting.phase == "decode" ? ", decode" : "") +
         (setting.quantize == "none" ? "" : ", " + setting.quantize) +
         (setting.engine == "onnxruntime" ? ", fusion " + setting.fusion : "") + ")";
}

std::string from_to(const NongemmRow& before, const NongemmRow& after) {
  return formatted(": %.1f", before.nongemm_pct) + formatted(" to %.1f %%", after.nongemm_pct);
}

const NongemmRow* find_row(const NongemmAnswer& answer, const NongemmSetting& setting) {
  const auto found = std::ranges::find(answer.rows, setting, &NongemmRow::setting);
  return found == answer.rows.end() ? nullptr : &*found;
}

bool is_of_the_paper(const std::string& name) {
  const auto& models = nongemm_models();
  const auto found = std::ranges::find(models, name, &NongemmModel::name);
  return found != models.end() && found->set == "paper";
}

void compare_with_paper(const NongemmRow& row, NongemmEffects& effects) {
  if (!row.paper_nongemm_pct) return;
  const bool is_plain = row.setting.quantize == "none" && row.setting.fusion == "none" &&
                        row.setting.phase == "forward";
  if (!is_plain || !is_of_the_paper(row.setting.model)) return;
  ++effects.compared;
  const Place place = place_of(*row.paper_nongemm_pct, kPaperLowPct, kPaperHighPct);
  count(place, effects.below, effects.within, effects.above);
  if (place == Place::within) return;
  effects.exceptions.push_back(
      words_of(row) + formatted(": the paper's formula gives %.1f %%, ", *row.paper_nongemm_pct) +
      (place == Place::below ? "below" : "above") + " its range");
}

// How many times as quick the rows of pairs are.
struct Speedups {
  std::vector<double> int8, int4, fusion;
};

void compare_quantized(const NongemmAnswer& answer, const NongemmRow& row, NongemmEffects& effects,
                       Speedups& speedups) {
  if (row.setting.quantize == "none") return;
  NongemmSetting plain = row.setting;
  plain.quantize = "none";
  const NongemmRow* before = find_row(answer, plain);
  if (before == nullptr) return;
  const bool is_int8 = row.setting.quantize == "int8";
  ++(is_int8 ? effects.int8_pairs : effects.int4_pairs);
  (is_int8 ? speedups.int8 : speedups.int4).push_back(before->seconds / row.seconds);
  if (row.nongemm_pct > before->nongemm_pct) {
    ++(is_int8 ? effects.int8_raised : effects.int4_raised);
  } else {
    effects.exceptions.push_back(words_of(row) + " does not raise the share" +
                                 from_to(*before, row));
  }
}

void compare_fused(const NongemmAnswer& answer, const NongemmRow& row, NongemmEffects& effects,
                   Speedups& speedups) {
  if (row.setting.fusion != "all") return;
  NongemmSetting plain = row.setting;
  plain.fusion = "none";
  if (plain.engine == "compiled") plain.engine = "pytorch";
  const NongemmRow* before = find_row(answer, plain);
  if (before == nullptr) return;
  ++effects.fusion_pairs;
  speedups.fusion.push_back(before->seconds / row.seconds);
  const bool is_lower = row.nongemm_pct < before->nongemm_pct && row.nongemm_pct > 0;
  effects.fusion_lowered += is_lower ? 1 : 0;
  if (!is_lower) {
    effects.exceptions.push_back(words_of(row) + ": the share does not fall" +
                                 from_to(*before, row));
  }
  count(place_of(row.nongemm_pct, kPaperFusedLowPct, kPaperFusedHighPct), effects.fused_below,
        effects.fused_within, effects.fused_above);
}

}  // namespace

NongemmAnswer answer_nongemm(const NongemmRecords& records) {
  NongemmAnswer answer;
  if (records.machine) answer.machine = *records.machine;
  std::vector<std::string> order;
  std::map<std::string, Parts> settings;
  for (const NongemmRecord& record : records.records) {
    const std::string id = record.setting.id();
    const auto [at, is_new] = settings.try_emplace(id);
    if (is_new) order.push_back(id);
    if (record.status != NongemmStatus::measured) {
      at->second.refused = &record;
    } else if (record.layers) {
      at->second.depths.push_back(&record);
    } else {
      at->second.whole = &record;
    }
  }
  for (const std::string& id : order) add_setting(settings[id], answer);
  // As the table of models has them, whatever order they were measured in; then others.
  const auto place = [](const NongemmRow& row) {
    const auto& models = nongemm_models();
    return std::ranges::find(models, row.setting.model, &NongemmModel::name) - models.begin();
  };
  std::ranges::stable_sort(answer.rows, {}, place);
  Speedups speedups;
  for (const NongemmRow& row : answer.rows) {
    compare_with_paper(row, answer.effects);
    compare_quantized(answer, row, answer.effects, speedups);
    compare_fused(answer, row, answer.effects, speedups);
  }
  answer.effects.int8_speedup = median(std::move(speedups.int8));
  answer.effects.int4_speedup = median(std::move(speedups.int4));
  answer.effects.fusion_speedup = median(std::move(speedups.fusion));
  return answer;
}

NongemmMerged merge_nongemm(const std::vector<NamedRecords>& files) {
  NongemmMerged merged;
  std::map<std::string, size_t> places;  // of the rows, by their setting
  std::map<std::string, size_t> order;   // of the models, as they come
  for (size_t column = 0; column < files.size(); ++column) {
    const NongemmAnswer answer = answer_nongemm(files[column].records);
    merged.machines.push_back({files[column].file, answer.machine, answer.refused.size()});
    for (const NongemmRow& row : answer.rows) {
      const auto [place, is_new] = places.try_emplace(row.setting.id(), merged.rows.size());
      if (is_new) {
        merged.rows.push_back({row.setting, {}});
        merged.rows.back().by_machine.resize(files.size());
        order.try_emplace(row.setting.model, order.size());
      }
      merged.rows[place->second].by_machine[column] = row;
    }
  }
  // What one machine alone has stands beside its model's other settings.
  std::ranges::stable_sort(
      merged.rows, {}, [&](const NongemmMerged::Row& row) { return order.at(row.setting.model); });
  return merged;
}

}  // namespace headroom::bench
