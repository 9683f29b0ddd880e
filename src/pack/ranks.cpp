#include "pack/ranks.h"

#include <algorithm>
#include <tuple>

namespace headroom::pack {
namespace {

const AllocatorFigures* find_allocator(const PackAnswer& answer, std::string_view name) {
  const auto at = std::find_if(answer.allocators.begin(), answer.allocators.end(),
                               [&](const AllocatorFigures& each) { return each.name == name; });
  return at == answer.allocators.end() ? nullptr : &*at;
}

RankFigures figures_of(const PackAnswer& answer) {
  RankFigures figures;
  figures.file = answer.file;
  figures.requests = answer.requests.size();
  figures.plan = answer.plan.size;
  figures.is_partial = answer.is_partial;
  if (const AllocatorFigures* const torch = find_allocator(answer, "torch")) {
    figures.reserved = torch->peak_reserved;
    figures.lost = std::max(Bytes(0), torch->peak_reserved - torch->peak_allocated);
  }
  for (const AllocatorFigures& each : answer.allocators) {  // the least reserved first
    if (each.setting.empty()) continue;
    if (each.peak_reserved < figures.reserved) figures.best = each;
    break;
  }
  figures.is_simulated = !answer.loss;
  if (answer.loss) {
    figures.is_end_state = answer.loss->is_end_state;
    figures.reserved = answer.loss->reserved;
    figures.lost = answer.loss->lost();
    figures.is_out_of_memory = answer.loss->failure.has_value();
  }
  return figures;
}

bool is_worse(const RankFigures& a, const RankFigures& b) {
  const auto key = [](const RankFigures& each) {
    return std::tuple(!each.error, each.is_out_of_memory, each.lost, each.reserved);
  };
  return key(a) > key(b);
}

}  // namespace

double RankFigures::lost_pct() const {
  return reserved.count <= 0
             ? 0.0
             : 100.0 * static_cast<double>(lost.count) / static_cast<double>(reserved.count);
}

size_t RanksAnswer::failed() const {
  return static_cast<size_t>(std::count_if(
      ranks.begin(), ranks.end(), [](const RankFigures& each) { return each.error.has_value(); }));
}

bool RanksAnswer::is_whole() const {
  return std::none_of(ranks.begin(), ranks.end(), [](const RankFigures& each) {
    return each.error.has_value() || each.is_partial;
  });
}

Result<RanksAnswer> answer_ranks(const PackQuestion& question,
                                 const std::vector<std::string>& files) {
  HEADROOM_CHECK(!files.empty(), "no files");
  RanksAnswer ranks;
  std::optional<RankFigures> worst;
  for (const std::string& file : files) {
    PackQuestion one = question;
    one.file = file;
    auto found = answer(one);
    if (!found) {
      RankFigures figures;
      figures.file = file;
      figures.error = found.error();
      ranks.ranks.push_back(std::move(figures));
      continue;
    }
    RankFigures figures = figures_of(*found);
    if (!worst || is_worse(figures, *worst)) {
      worst = figures;
      ranks.worst = std::move(*found);
    }
    ranks.ranks.push_back(std::move(figures));
  }
  if (!worst) return *ranks.ranks.front().error;
  std::stable_sort(ranks.ranks.begin(), ranks.ranks.end(), is_worse);
  return ranks;
}

}  // namespace headroom::pack
