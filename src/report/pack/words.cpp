#include "report/pack/words.h"

#include <algorithm>

#include "report/fit/words.h"
#include "text/number.h"

namespace headroom::report {
namespace {

// The best setting, where it reserves less than the defaults; and what they reserve.
struct BestSetting {
  const pack::AllocatorFigures* best = nullptr;
  Bytes saved;
};

BestSetting best_setting(const pack::PackAnswer& answer) {
  const auto& all = answer.allocators;
  const auto of_default = std::find_if(all.begin(), all.end(),
                                       [](const auto& figures) { return figures.name == "torch"; });
  const auto best = std::find_if(all.begin(), all.end(),
                                 [](const auto& figures) { return !figures.setting.empty(); });
  if (of_default == all.end() || best == all.end() ||
      best->peak_reserved >= of_default->peak_reserved) {
    return {};
  }
  return {&*best, of_default->peak_reserved - best->peak_reserved};
}

bool is_recorded_under(const pack::PackAnswer& answer, const pack::AllocatorFigures& figures) {
  if (!answer.settings || figures.limit) return false;
  const auto settings = memory::parse_allocator_config(figures.setting);
  return settings && *settings == *answer.settings;
}

}  // namespace

std::string gap_words(double percent) {
  return percent == 0 || percent >= 0.01 ? text::formatted("%.2f %%", percent)
                                         : text::formatted("%.1e %%", percent);
}

std::string loss_sentence(const pack::LossAtPeak& loss) {
  const std::string moment = loss.failure        ? "when memory ran out"
                             : loss.is_end_state ? "when the snapshot was taken"
                                                 : "at the peak";
  const std::string lost = " (" + format_bytes(loss.lost()) + ")";
  return share_words(loss.lost(), loss.reserved) + " of the " + format_bytes(loss.reserved) +
         " reserved " + moment +
         (loss.is_end_state ? " was in no block" + lost + "; no peak is known without a history"
                            : " was lost to fragmentation" + lost);
}

std::string plan_sentence(const pack::PackAnswer& answer, bool names_file) {
  std::string words = format_bytes(answer.plan.size) + " hold the " +
                      with_commas(static_cast<int64_t>(answer.requests.size())) + " requests" +
                      (names_file ? " of " + answer.file : "") + ": ";
  if (answer.plan.size != answer.lower_bound) {
    words += gap_words(answer.plan.gap_pct) + " above the most that lives at one moment";
    if (!answer.plan.is_optimal) return words;
    words += ", and ";
  }
  return words + (answer.streams > 1 ? "no plan that keeps its streams apart needs less"
                                     : "no plan needs less");
}

std::string moment_words(const pack::PackAnswer& answer) {
  const pack::LossAtPeak& loss = *answer.loss;
  if (loss.is_end_state) return "as the snapshot was taken";
  if (loss.moment == 0) return "as the recording began";
  std::string words =
      "after entry " + with_commas(loss.moment) + " of " + with_commas(answer.recording->end - 1);
  if (loss.seconds) words += ", " + text::formatted("%.3g s", *loss.seconds) + " after the first";
  if (loss.site != 0) words += ", at " + answer.recording->sites.site(loss.site).words();
  return words;
}

std::string used_words(const pack::PackAnswer& answer) {
  const pack::LossAtPeak& loss = *answer.loss;
  const std::string moment = loss.is_end_state  ? "when the snapshot was taken"
                             : loss.moment == 0 ? "when the recording began"
                                                : "after entry " + with_commas(loss.moment);
  return "used: the most that lived over the most reserved, whenever each was; lost: " + moment +
         " alone";
}

std::string holder_words(const pack::StrandedSegment& segment, const pack::SiteNames& sites,
                         size_t most) {
  std::string words;
  for (size_t i = 0; i < segment.holders.size() && i < most; ++i) {
    const pack::Holder& holder = segment.holders[i];
    if (i > 0) words += ", ";
    words += with_commas(static_cast<int64_t>(holder.blocks)) + " of " +
             sites.site(holder.site).words() + " (" + format_bytes(holder.bytes) + ")";
  }
  if (segment.holders.size() > most) {
    words += ", " + std::to_string(segment.holders.size() - most) + " more";
  }
  return words;
}

std::string setting_words(const pack::AllocatorFigures& figures) {
  if (figures.name == "best-fit-arena") return "a yardstick: one growing range, best fit";
  if (!figures.limit) return figures.setting;
  return figures.setting + " (limit " + format_bytes(*figures.limit) + ")";
}

std::string setting_command(const pack::PackAnswer& answer) {
  const BestSetting found = best_setting(answer);
  if (found.best == nullptr || is_recorded_under(answer, *found.best)) return "";
  return "export PYTORCH_CUDA_ALLOC_CONF=" + found.best->setting;
}

std::string recorded_setting(const pack::PackAnswer& answer) {
  if (!answer.settings || *answer.settings == memory::AllocatorSettings{}) return "";
  for (const pack::AllocatorFigures& figures : answer.allocators) {
    if (is_recorded_under(answer, figures)) return figures.setting;
  }
  return "under settings of its own";
}

std::string setting_gain(const pack::PackAnswer& answer) {
  const BestSetting found = best_setting(answer);
  if (found.best == nullptr) return "";
  std::string words = "reserves " + format_bytes(found.saved) + " less than the default settings";
  if (is_recorded_under(answer, *found.best)) {
    return found.best->setting + " " + words + ", and is set already";
  }
  if (found.best->limit) {
    words += "; garbage collection needs a limit, here " + format_bytes(*found.best->limit) +
             " by torch.cuda.set_per_process_memory_fraction";
  }
  return words;
}

std::string hex_words(int64_t address) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (auto rest = static_cast<uint64_t>(address); rest > 0; rest >>= 4)
    digits += kDigits[rest & 15];
  std::reverse(digits.begin(), digits.end());
  return "0x" + (digits.empty() ? "0" : digits);
}

}  // namespace headroom::report
