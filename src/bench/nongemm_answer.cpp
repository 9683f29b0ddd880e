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
  ProfiledRun profile;
  std::optional<double> joules;
};

Measured measured_of(const NongemmRecord& record) {
  Measured measured{record.seconds, {}, record.profiled_seconds, record.profile, record.joules};
  if (record.uncertainty) measured.half = *record.uncertainty * record.seconds;
  return measured;
}

// Weights with which two depths make the whole: few + (whole - few) / (more - few) * (more's -
// few's).
struct Weights {
  double few = 0;
  double more = 1;
};

Weights weights_for(int64_t few, int64_t more, int64_t whole) {
  const auto between = static_cast<double>(more - few);
  return {static_cast<double>(more - whole) / between, static_cast<double>(whole - few) / between};
}

// Time cannot be negative: what noise made so is cut, and returned in `cut_ms`.
GroupMilliseconds combine(const GroupMilliseconds& few, const GroupMilliseconds& more,
                          const Weights& weights, double& cut_ms) {
  GroupMilliseconds sums;
  for (const auto& [name, ms] : more) sums.emplace_back(name, weights.more * ms);
  for (const auto& [name, ms] : few) {
    const auto found = std::ranges::find(sums, name, &std::pair<std::string, double>::first);
    if (found == sums.end()) {
      sums.emplace_back(name, weights.few * ms);
    } else {
      found->second += weights.few * ms;
    }
  }
  for (auto& [name, ms] : sums) {
    cut_ms += std::max(0.0, -ms);
    ms = std::max(0.0, ms);
  }
  return sums;
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

// REQUIRES: both are measured, few has fewer layers than more, and the model has more still.
std::optional<NongemmRow> composed_row(const NongemmRecord& few, const NongemmRecord& more) {
  const Weights weights = weights_for(*few.layers, *more.layers, *more.layers_of_model);
  const auto both = [&](double a, double b) { return weights.few * a + weights.more * b; };
  Measured whole;
  whole.seconds = both(few.seconds, more.seconds);
  whole.profiled_seconds = both(few.profiled_seconds, more.profiled_seconds);
  if (few.uncertainty && more.uncertainty) {
    whole.half = std::hypot(weights.few * *few.uncertainty * few.seconds,
                            weights.more * *more.uncertainty * more.seconds);
  }
  if (few.joules && more.joules) whole.joules = std::max(0.0, both(*few.joules, *more.joules));
  double cut_ms = 0;
  double paper_cut_ms = 0;
  whole.profile.groups = combine(few.profile.groups, more.profile.groups, weights, cut_ms);
  whole.profile.paper_groups =
      combine(few.profile.paper_groups, more.profile.paper_groups, weights, paper_cut_ms);
  whole.profile.idle_ms = std::max(0.0, both(few.profile.idle_ms, more.profile.idle_ms));
  whole.profile.wall_ms = sum_of(whole.profile.groups) + whole.profile.idle_ms;
  const bool is_more = more.seconds > few.seconds && sum_of(whole.profile.groups) > 0;
  if (!is_more || whole.seconds <= 0 || whole.profiled_seconds <= 0) return std::nullopt;
  if (whole.half && *whole.half > kMostUnsure * whole.seconds) return std::nullopt;
  NongemmRow row;
  row.setting = more.setting;
  row.provenance = Provenance::extrapolated;
  row.measured_layers = {*few.layers, *more.layers};
  row.layers_of_model = more.layers_of_model;
  row.parameters = more.model_parameters;
  row.notes = more.notes;
  add_shares(whole, row);
  if (!whole.half) {
    row.notes.emplace_back("composed of single runs: how sure it is was not measured");
  }
  if (percent(cut_ms, sum_of(whole.profile.groups)) > kMuchClampedPct) {
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
