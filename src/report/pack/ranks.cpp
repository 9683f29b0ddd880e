#include "report/pack/ranks.h"

#include <algorithm>

#include "report/fit/words.h"
#include "report/pack/html.h"
#include "report/pack/words.h"
#include "text/number.h"
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

std::string count_words_of(size_t count) { return with_commas(static_cast<int64_t>(count)); }

std::string worst_sentence(const pack::RanksAnswer& answer) {
  const pack::RankFigures& worst = answer.ranks.front();
  std::string words = worst.is_out_of_memory ? " ran out of memory, " : " lost ";
  if (worst.is_out_of_memory) {
    words += format_bytes(worst.lost) + " of " + format_bytes(worst.reserved) + " lost";
  } else {
    words += text::formatted("%.1f %%", worst.lost_pct()) + " of " + format_bytes(worst.reserved) +
             " (" + format_bytes(worst.lost) + ")";
  }
  const size_t read = answer.ranks.size() - answer.failed();
  if (read > 1) words += ", the most of " + count_words_of(read) + " recordings";
  if (answer.failed() > 0) words += "; " + count_words_of(answer.failed()) + " could not be read";
  return worst.file + words;
}

// The folders that all names begin with, which need not be said in each row.
size_t common_folders(const pack::RanksAnswer& answer) {
  std::string_view common = answer.ranks.front().file;
  for (const pack::RankFigures& rank : answer.ranks) {
    const auto end = std::ranges::mismatch(common, rank.file).in1;
    common = common.substr(0, static_cast<size_t>(end - common.begin()));
  }
  const size_t slash = common.rfind('/');
  return slash == std::string_view::npos || answer.ranks.size() == 1 ? 0 : slash + 1;
}

std::vector<std::string> rank_row(const pack::RankFigures& rank, size_t folders) {
  const std::string file = rank.file.substr(folders);
  if (rank.error) return {file, "", "", "", "", "", rank.error->to_string()};
  return {file,
          format_bytes(rank.reserved),
          format_bytes(rank.lost),
          text::formatted("%.1f %%", rank.lost_pct()),
          format_bytes(rank.plan),
          rank.best ? format_bytes(rank.best->peak_reserved) : "",
          std::string(rank.is_partial ? "read in part " : "") +
              (rank.is_out_of_memory ? "out of memory " : "") +
              (rank.is_simulated ? "simulated " : "") +
              (rank.is_end_state ? "as the snapshot was taken " : "") +
              (rank.best ? setting_words(*rank.best) : "")};
}

}  // namespace

std::string ranks_text(const pack::RanksAnswer& answer, const Terminal& terminal) {
  std::string lines =
      text::paint(text::printable(worst_sentence(answer)), Style::bold, terminal.colour) + "\n\n";
  Table table({{"recording", Align::left, true},
               {"reserved", Align::right, false},
               {"lost", Align::right, false},
               {"", Align::right, false},
               {"plan", Align::right, false},
               {"best setting", Align::right, false},
               {"PYTORCH_CUDA_ALLOC_CONF", Align::left, true}});
  const size_t folders = common_folders(answer);
  for (const pack::RankFigures& rank : answer.ranks) {
    std::vector<text::TableCell> cells;
    for (std::string& cell : rank_row(rank, folders)) cells.emplace_back(text::printable(cell));
    cells.back().style = rank.error ? Style::bad : Style::dim;
    table.row(std::move(cells));
  }
  return lines + table.render(terminal);
}

Json ranks_json(const pack::RanksAnswer& answer) {
  Json ranks = Json::array();
  for (const pack::RankFigures& rank : answer.ranks) {
    Json one = Json::object().set("file", rank.file);
    if (rank.error) {
      ranks.push_back(one.set("status", "unreadable").set("reason", rank.error->to_string()));
      continue;
    }
    ranks.push_back(one.set("status", rank.is_partial ? "partial" : "ok")
                        .set("requests", rank.requests)
                        .set("is_out_of_memory", rank.is_out_of_memory)
                        .set("is_simulated", rank.is_simulated)
                        .set("is_end_state", rank.is_end_state)
                        .set("reserved_bytes", rank.reserved)
                        .set("lost_bytes", rank.lost)
                        .set("lost_pct", rank.lost_pct())
                        .set("plan_bytes", rank.plan)
                        .set("best_setting", rank.best ? Json(rank.best->setting) : Json(nullptr))
                        .set("best_setting_reserved_bytes",
                             rank.best ? Json(rank.best->peak_reserved) : Json(nullptr)));
  }
  return Json::object()
      .set("schema", "headroom.pack.ranks/1")
      .set("worst", answer.ranks.empty() ? Json(nullptr) : Json(answer.ranks.front().file))
      .set("unreadable", answer.failed())
      .set("ranks", std::move(ranks));
}

std::vector<Section> ranks_sections(const pack::RanksAnswer& answer) {
  std::vector<std::vector<std::string>> rows;
  const size_t folders = common_folders(answer);
  for (const pack::RankFigures& rank : answer.ranks) rows.push_back(rank_row(rank, folders));
  Html html;
  html.raw("<h1>Ranks</h1><p class=\"line\">").text(worst_sentence(answer)).raw("</p>\n");
  html.add(html_table(
      {"recording", "#reserved", "#lost", "#", "#plan", "#best setting", "PYTORCH_CUDA_ALLOC_CONF"},
      rows));
  std::vector<Section> sections{{"ranks", "", html, ""}};
  if (answer.worst) {
    for (Section& section : pack_sections(*answer.worst)) sections.push_back(std::move(section));
  }
  return sections;
}

namespace {

constexpr size_t kMostSites = 12;  // in a terminal; --json has all

std::string growth_words(Bytes growth) {
  if (growth.count == 0) return "0 B";
  return (growth.count > 0 ? "+" : "-") +
         format_bytes(Bytes(growth.count > 0 ? growth.count : -growth.count));
}

std::string comparison_sentence(const pack::Comparison& comparison) {
  const Bytes growth = comparison.reserved.growth();
  std::string words = comparison.file;
  if (growth.count == 0) {
    words += " reserves as much as ";
  } else {
    words += " reserves " + format_bytes(Bytes(growth.count > 0 ? growth.count : -growth.count)) +
             (growth.count > 0 ? " more than " : " less than ");
  }
  words += comparison.baseline + ": " + format_bytes(comparison.reserved.after) + " after " +
           format_bytes(comparison.reserved.before);
  if (!comparison.sites.empty() && comparison.sites.front().bytes.growth().count > 0) {
    words += "; most grew at " + comparison.sites.front().site;
  }
  if (comparison.is_partial) words += "; not all of both files could be read";
  return words;
}

std::string moment_head(const pack::Comparison& comparison) {
  const bool is_end_state = comparison.before.is_end_state && comparison.after.is_end_state;
  return is_end_state ? "as taken" : "at the peak";
}

// Blocks of the forward pass are no growth where the other peak is in the optimizer.
std::string moments_sentence(const pack::Comparison& comparison) {
  if (!comparison.has_two_moments) return "";
  return "Two moments are compared: before at " + comparison.before.site + ", after at " +
         comparison.after.site + "; what differs may be of the phase.";
}

struct FigureRow {
  const char* name;
  pack::BeforeAfter bytes;
};

std::vector<FigureRow> figure_rows(const pack::Comparison& comparison) {
  return {{"reserved", comparison.reserved},
          {"allocated", comparison.allocated},
          {"lost", comparison.lost},
          {"plan", comparison.plan}};
}

// The sites that changed most, whichever way, in the order of the answer.
std::vector<const pack::SiteGrowth*> most_changed(const pack::Comparison& comparison, size_t most) {
  std::vector<const pack::SiteGrowth*> sites;
  for (const pack::SiteGrowth& site : comparison.sites) sites.push_back(&site);
  const auto size = [](const pack::SiteGrowth* site) {
    return std::abs(site->bytes.growth().count);
  };
  if (sites.size() > most) {
    std::nth_element(sites.begin(), sites.begin() + static_cast<ptrdiff_t>(most), sites.end(),
                     [&](const auto* a, const auto* b) { return size(a) > size(b); });
    sites.resize(most);
    std::sort(sites.begin(), sites.end());  // pointers into one vector: its order
  }
  return sites;
}

std::vector<std::string> site_row(const pack::SiteGrowth& site) {
  return {site.site, format_bytes(site.bytes.before), format_bytes(site.bytes.after),
          growth_words(site.bytes.growth()),
          count_words_of(site.blocks_before) + " \u2192 " + count_words_of(site.blocks_after)};
}

Json before_after(const pack::BeforeAfter& bytes) {
  return Json::object()
      .set("before", bytes.before)
      .set("after", bytes.after)
      .set("growth", bytes.growth());
}

}  // namespace

std::string comparison_text(const pack::Comparison& comparison, const Terminal& terminal) {
  std::string lines = text::paint(text::printable(comparison_sentence(comparison)),
                                  comparison.grew() ? Style::bad : Style::good, terminal.colour) +
                      "\n\n";
  Table figures({{moment_head(comparison), Align::left, false},
                 {"before", Align::right, false},
                 {"after", Align::right, false},
                 {"", Align::right, false}});
  for (const FigureRow& row : figure_rows(comparison)) {
    figures.row({row.name,
                 format_bytes(row.bytes.before),
                 format_bytes(row.bytes.after),
                 {growth_words(row.bytes.growth()), Style::bold}});
  }
  lines += figures.render(terminal);
  const std::string moments = moments_sentence(comparison);
  if (!moments.empty()) {
    lines +=
        text::paragraph(text::printable(moments), 0, text::paragraph_columns(terminal.columns)) +
        "\n";
  }
  if (comparison.sites.empty()) return lines + "\nThe same blocks live at both peaks.\n";
  Table sites({{comparison.is_by_size ? "size" : "call site", Align::left, true},
               {"before", Align::right, false},
               {"after", Align::right, false},
               {"", Align::right, false},
               {"blocks", Align::right, false}});
  for (const pack::SiteGrowth* const site : most_changed(comparison, kMostSites)) {
    std::vector<text::TableCell> cells;
    for (std::string& cell : site_row(*site)) cells.emplace_back(text::printable(cell));
    cells[3].style = Style::bold;
    sites.row(std::move(cells));
  }
  return lines + "\nWhat lives at the peak, where it changed:\n" + sites.render(terminal);
}

Json comparison_json(const pack::Comparison& comparison) {
  Json sites = Json::array();
  for (const pack::SiteGrowth& site : comparison.sites) {
    sites.push_back(Json::object()
                        .set("site", site.site)
                        .set("bytes", before_after(site.bytes))
                        .set("blocks_before", site.blocks_before)
                        .set("blocks_after", site.blocks_after));
  }
  return Json::object()
      .set("schema", "headroom.pack.comparison/1")
      .set("file", comparison.file)
      .set("baseline", comparison.baseline)
      .set("grew", comparison.grew())
      .set("reserved_bytes", before_after(comparison.reserved))
      .set("allocated_bytes", before_after(comparison.allocated))
      .set("lost_bytes", before_after(comparison.lost))
      .set("plan_bytes", before_after(comparison.plan))
      .set("requests_before", comparison.requests_before)
      .set("requests_after", comparison.requests_after)
      .set("is_by_size", comparison.is_by_size)
      .set("is_partial", comparison.is_partial)
      .set("sites", std::move(sites));
}

std::vector<Section> comparison_sections(const pack::Comparison& comparison) {
  constexpr size_t kMostRows = 40;
  std::vector<std::vector<std::string>> figures;
  for (const FigureRow& row : figure_rows(comparison)) {
    figures.push_back({row.name, format_bytes(row.bytes.before), format_bytes(row.bytes.after),
                       growth_words(row.bytes.growth())});
  }
  std::vector<std::vector<std::string>> sites;
  for (const pack::SiteGrowth* const site : most_changed(comparison, kMostRows)) {
    sites.push_back(site_row(*site));
  }
  Html html;
  html.raw("<h1>Two recordings</h1><p class=\"line\">").text(comparison_sentence(comparison));
  html.raw("</p>\n");
  html.add(html_table({moment_head(comparison), "#before", "#after", "#change"}, figures));
  const std::string moments = moments_sentence(comparison);
  if (!moments.empty()) html.raw("<p class=\"soft\">").text(moments).raw("</p>\n");
  html.raw("<h3>What lives at the peak, where it changed</h3>\n");
  html.add(html_table(
      {comparison.is_by_size ? "size" : "call site", "#before", "#after", "#change", "#blocks"},
      sites));
  std::vector<Section> sections{{"comparison", "", html, comparison.grew() ? "no" : "yes"}};
  for (Section& section : pack_sections(comparison.answer)) sections.push_back(std::move(section));
  return sections;
}

}  // namespace headroom::report
