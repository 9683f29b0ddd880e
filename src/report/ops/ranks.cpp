#include "report/ops/ranks.h"

#include <algorithm>

#include "report/fit/words.h"
#include "report/ops/words.h"
#include "text/json_parts.h"
#include "text/paragraph.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using text::Align;
using text::Json;
using text::Style;
using text::Table;
using text::Terminal;

constexpr size_t kMostCollectives = 10;

// What the straggler does longer than the others, on average; nothing of ranks that were read in
// part, whose steps lack what was lost.
std::string reason_words(const ops::RanksAnswer& answer, size_t straggler) {
  double kernels = 0;
  double idle = 0;
  double others = 0;
  for (size_t rank = 0; rank < answer.ranks.size(); ++rank) {
    if (rank == straggler || answer.ranks[rank].is_partial) continue;
    kernels += answer.ranks[rank].kernel_ms;
    idle += answer.ranks[rank].idle_ms;
    ++others;
  }
  if (others == 0 || answer.ranks[straggler].is_partial) return "";
  const ops::RankTimes& slow = answer.ranks[straggler];
  const bool is_cpu = slow.device == "CPU";
  const double more_kernels = slow.kernel_ms - kernels / others;
  const double more_idle = slow.idle_ms - idle / others;
  if (more_kernels <= 0 && more_idle <= 0) return "";
  if (more_kernels >= more_idle) {
    return std::string("; its own ") + (is_cpu ? "operators" : "kernels") + " take " +
           milliseconds(more_kernels) + " more a step than those of the others";
  }
  return std::string("; ") +
         (is_cpu ? "neither an operator nor a collective runs there" : "its device is idle") +
         " for " + milliseconds(more_idle) + " more a step than with the others";
}

}  // namespace

std::string ranks_words(const ops::RanksAnswer& answer) {
  if (!answer.straggler) return "No rank waits for another";
  const ops::RankTimes& slow = answer.ranks[*answer.straggler];
  const auto others = static_cast<double>(answer.ranks.size() - 1);
  return "The others wait for rank " + std::to_string(slow.rank) + ", " +
         milliseconds(slow.caused_ms / others) + " each a step (" +
         percent_words(answer.straggler_pct) + " of all waiting)" +
         reason_words(answer, *answer.straggler);
}

namespace {

std::string ranks_table(const ops::RanksAnswer& answer, const Terminal& terminal) {
  Table table({{"rank", Align::right, false},
               {"a step", Align::right, false},
               {"own work", Align::right, false},
               {"idle", Align::right, false},
               {"transfer", Align::right, false},
               {"waiting", Align::right, false},
               {"not hidden", Align::right, false},
               {"came last", Align::right, false},
               {"others waited", Align::right, false},
               {"file", Align::left, true}});
  for (size_t i = 0; i < answer.ranks.size(); ++i) {
    const ops::RankTimes& rank = answer.ranks[i];
    const Style style = answer.straggler == i ? Style::bold : Style::plain;
    table.row(
        {{std::to_string(rank.rank), style},
         {milliseconds(rank.step_ms), style},
         {milliseconds(rank.kernel_ms), style},
         {milliseconds(rank.idle_ms), style},
         {milliseconds(rank.transfer_ms), style},
         {milliseconds(rank.waiting_ms), style},
         {milliseconds(rank.exposed_ms), style},
         {std::to_string(rank.last_count) + " of " + std::to_string(rank.collectives), style},
         {milliseconds(rank.caused_ms), style},
         {text::printable(rank.file) + (rank.is_partial ? ", read in part" : ""), Style::dim}});
  }
  return table.render(terminal);
}

std::string collectives_table(const ops::RanksAnswer& answer, const Terminal& terminal) {
  Table table({{"collective", Align::left, true},
               {"count", Align::right, false},
               {"ranks", Align::right, false},
               {"transfer", Align::right, false},
               {"waiting", Align::right, false},
               {"for rank", Align::right, false}});
  for (size_t i = 0; i < std::min(kMostCollectives, answer.collectives.size()); ++i) {
    const ops::CollectiveTimes& row = answer.collectives[i];
    table.row({text::elide(text::printable(row.name), 70), with_commas(row.count),
               std::to_string(row.rank_count), milliseconds(row.transfer_ms),
               milliseconds(row.waiting_ms),
               row.straggler < 0 ? "" : std::to_string(row.straggler)});
  }
  std::string lines = table.render(terminal);
  if (answer.collectives.size() > kMostCollectives) {
    lines += text::paint("and " + std::to_string(answer.collectives.size() - kMostCollectives) +
                             " more (--json has them)",
                         Style::dim, terminal.colour) +
             "\n";
  }
  return lines;
}

}  // namespace

std::string ops_ranks_text(const ops::RanksAnswer& answer, const Terminal& terminal) {
  std::string lines = text::wrapped(ranks_words(answer), terminal, 0, Style::bold) + "\n";
  lines += ranks_table(answer, terminal);
  lines += "\n" + collectives_table(answer, terminal);
  lines += "\n" + text::wrapped(percent_words(answer.matched_pct) +
                                    " of the time of collectives could be matched between ranks; "
                                    "waiting is what one takes longer than on the rank that came "
                                    "last",
                                terminal);
  for (const std::string& note : answer.notes) {
    lines += text::wrapped("note: " + note, terminal, kNoteIndent);
  }
  return lines;
}

Json ops_ranks_json(const ops::RanksAnswer& answer) {
  Json ranks = Json::array();
  for (const ops::RankTimes& rank : answer.ranks) {
    ranks.push_back(Json::object()
                        .set("rank", rank.rank)
                        .set("file", rank.file)
                        .set("device", rank.device)
                        .set("steps", static_cast<int64_t>(rank.steps))
                        .set("step_ms", rank.step_ms)
                        .set("own_work_ms", rank.kernel_ms)
                        .set("idle_ms", rank.idle_ms)
                        .set("communication_ms", rank.communication_ms)
                        .set("transfer_ms", rank.transfer_ms)
                        .set("waiting_ms", rank.waiting_ms)
                        .set("exposed_ms", rank.exposed_ms)
                        .set("collectives", rank.collectives)
                        .set("last_count", rank.last_count)
                        .set("caused_ms", rank.caused_ms)
                        .set("is_partial", rank.is_partial));
  }
  Json collectives = Json::array();
  for (const ops::CollectiveTimes& row : answer.collectives) {
    collectives.push_back(
        Json::object()
            .set("name", row.name)
            .set("count", row.count)
            .set("ranks", static_cast<int64_t>(row.rank_count))
            .set("transfer_ms", row.transfer_ms)
            .set("waiting_ms", row.waiting_ms)
            .set("straggler", row.straggler < 0 ? Json(nullptr) : Json(row.straggler)));
  }
  return Json::object()
      .set("schema", "headroom.ops_ranks/1")
      .set("provenance", "measured")
      .set("straggler",
           answer.straggler ? Json(answer.ranks[*answer.straggler].rank) : Json(nullptr))
      .set("straggler_pct", answer.straggler_pct)
      .set("matched_pct", answer.matched_pct)
      .set("ranks", std::move(ranks))
      .set("collectives", std::move(collectives))
      .set("notes", text::json_array(answer.notes));
}

}  // namespace headroom::report
