#include "report/ops/ranks_html.h"

#include <algorithm>

#include "report/fit/words.h"
#include "report/ops/bars.h"
#include "report/ops/ranks.h"
#include "report/ops/words.h"

namespace headroom::report {
namespace {

using ops::RanksAnswer;
using ops::RankTimes;

constexpr size_t kMostCollectives = 20;
constexpr size_t kMostRanks = 128;  // of those drawn; a table of thousands helps nobody

std::string rank_name(const RankTimes& rank) { return "rank " + std::to_string(rank.rank); }

bool is_partial(const RanksAnswer& answer) {
  return std::ranges::any_of(answer.ranks, [](const RankTimes& rank) { return rank.is_partial; });
}

double most_of(const RanksAnswer& answer, double RankTimes::*figure) {
  double most = 0;
  for (const RankTimes& rank : answer.ranks) most = std::max(most, rank.*figure);
  return most;
}

Section answer_section(const RanksAnswer& answer) {
  Html html;
  html.raw("<h1>").text(std::to_string(answer.ranks.size())).raw(" ranks of one run");
  if (!answer.ranks.front().device.empty()) {
    html.raw(" <span class=\"chip\">").text(answer.ranks.front().device).raw("</span>");
  }
  html.raw("</h1>\n<p class=\"line\">").text(ranks_words(answer)).raw("</p>\n");
  html.raw("<dl class=\"tiles\">");
  tile(html, "A step", milliseconds(most_of(answer, &RankTimes::step_ms)), "of the slowest rank");
  if (answer.straggler) {
    const RankTimes& slow = answer.ranks[*answer.straggler];
    tile(html, "Waited for", rank_name(slow),
         percent_words(answer.straggler_pct) + " of all waiting");
    tile(html, "Came last", std::to_string(slow.last_count),
         "of " + std::to_string(slow.collectives) + " collectives");
  }
  tile(html, "Matched", percent_words(answer.matched_pct), "of the time of collectives");
  html.raw("</dl>\n");
  return {"answer", "", html, is_partial(answer) ? "at_risk" : "yes"};
}

// Moments with work of its own, those with communication alone, and those with nothing.
std::vector<StackPart> parts_of(const RankTimes& rank) {
  const double work = std::max(rank.step_ms - rank.exposed_ms - rank.idle_ms, 0.0);
  return {{"gemm", "own work, with what it hides", work},
          {"communication", "communication that nothing hides", rank.exposed_ms},
          {"idle", "idle", rank.idle_ms}};
}

Section steps_section(const RanksAnswer& answer) {
  Html html;
  html.raw("<p class=\"soft\">The wall time of a step on each rank, on one scale.</p>\n");
  html.raw("<div class=\"bars\">");
  const double whole = most_of(answer, &RankTimes::step_ms);
  std::vector<StackPart> all;
  for (size_t i = 0; i < std::min(kMostRanks, answer.ranks.size()); ++i) {
    const RankTimes& rank = answer.ranks[i];
    const std::vector<StackPart> parts = parts_of(rank);
    BarRow row{rank_name(rank), rank.file, {}, milliseconds(rank.step_ms), ""};
    row.lane.raw("<div class=\"lane\">");
    add_stack(row.lane, parts, whole);
    row.lane.raw("</div>");
    add_row(html, row);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  html.raw("</div>\n");
  add_legend(html, all);
  return {"steps", "Where a step goes", html, ""};
}

Section waiting_section(const RanksAnswer& answer) {
  Html html;
  html.raw(
      "<p class=\"soft\">A collective moves data only from when its last rank has come: what ");
  html.raw("it takes longer on the others is waiting for that rank. The bar is what all others ");
  html.raw("together waited for it a step.</p>\n<div class=\"bars\">");
  const double most = most_of(answer, &RankTimes::caused_ms);
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < std::min(kMostRanks, answer.ranks.size()); ++i) {
    const RankTimes& rank = answer.ranks[i];
    const double pct = most > 0 ? 100 * rank.caused_ms / most : 0;
    add_row(html, {rank_name(rank),
                   "came last to " + std::to_string(rank.last_count) + " of " +
                       std::to_string(rank.collectives),
                   bar_lane(answer.straggler == i ? BarTone::bad : BarTone::good, pct),
                   milliseconds(rank.caused_ms), "others waited"});
    rows.push_back({std::to_string(rank.rank), milliseconds(rank.kernel_ms),
                    milliseconds(rank.communication_ms), milliseconds(rank.transfer_ms),
                    milliseconds(rank.waiting_ms), milliseconds(rank.exposed_ms),
                    milliseconds(rank.idle_ms)});
  }
  html.raw("</div>\n");
  html.add(html_table(
      {"rank", "#own kernels", "#communication", "#transfer", "#waiting", "#not hidden", "#idle"},
      rows));
  return {"waiting", "Who waits for whom", html, ""};
}

Section collectives_section(const RanksAnswer& answer) {
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < std::min(kMostCollectives, answer.collectives.size()); ++i) {
    const ops::CollectiveTimes& row = answer.collectives[i];
    rows.push_back({row.name, with_commas(row.count), std::to_string(row.rank_count),
                    milliseconds(row.transfer_ms), milliseconds(row.waiting_ms),
                    row.straggler < 0 ? "" : std::to_string(row.straggler)});
  }
  Html html;
  html.add(
      html_table({"collective", "#count", "#ranks", "#transfer", "#waiting", "#for rank"}, rows));
  return {"collectives", "Collectives", html, ""};
}

Section trust_section(const RanksAnswer& answer) {
  Html html;
  html.add(html_table(
      {"figure", "from"},
      {{"times", "measured: the traces"},
       {"waiting and transfer", percent_words(answer.matched_pct) +
                                    " of the time of collectives could be matched between ranks, "
                                    "in order and checked by their ends"}}));
  add_notes(html, answer.notes);
  return {"trust", "Where it comes from", html, ""};
}

}  // namespace

std::vector<Section> ops_ranks_sections(const RanksAnswer& answer) {
  return {answer_section(answer), waiting_section(answer), steps_section(answer),
          collectives_section(answer), trust_section(answer)};
}

}  // namespace headroom::report
