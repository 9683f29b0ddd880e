#include "report/pack/html.h"

#include <algorithm>

#include "report/fit/words.h"
#include "report/pack/map.h"
#include "report/pack/words.h"
#include "report/page/charts.h"
#include "text/number.h"

namespace headroom::report {
namespace {

constexpr size_t kMostRows = 20;  // of a table; the rest is in --json

Section answer_section(const pack::PackAnswer& answer) {
  Html html;
  html.raw("<h1>").text(answer.file).raw(" <span class=\"chip\">").text(answer.kind);
  html.raw("</span></h1>\n<p class=\"line\">");
  html.text(answer.loss ? loss_sentence(*answer.loss) : plan_sentence(answer, false)).raw("</p>\n");
  if (answer.loss)
    html.raw("<p class=\"sub\">Planned: ").text(plan_sentence(answer, false) + ".").raw("</p>\n");
  if (answer.is_partial) {
    html.raw("<p class=\"sub\">Not all of the file could be read: this is about what could.</p>\n");
  }
  html.raw("<dl class=\"tiles\">");
  if (answer.loss) {
    const pack::LossAtPeak& loss = *answer.loss;
    const auto share = [&](Bytes bytes) { return share_words(bytes, loss.reserved); };
    tile(html, "Reserved", format_bytes(loss.reserved), "held from the driver");
    tile(html, "Allocated", format_bytes(loss.allocated), share(loss.allocated) + " of it");
    tile(html, "Stranded", format_bytes(loss.stranded), share(loss.stranded) + ", beside blocks");
    tile(html, "Cached", format_bytes(loss.cached), share(loss.cached) + ", whole segments");
  }
  tile(html, "Plan", format_bytes(answer.plan.size),
       gap_words(answer.plan.gap_pct) + " over the bound");
  if (answer.understanding && answer.understanding->shares_streams()) {
    tile(html, "Its iterations' plan", format_bytes(Bytes(answer.understanding->plan->bytes)),
         "with memory of one stream for another; apart " +
             format_bytes(Bytes(answer.understanding->apart_bytes)));
  }
  html.raw("</dl>\n");
  const bool is_lossy = answer.loss && answer.loss->lost().count * 20 > answer.loss->reserved.count;
  return {"answer", "", html, !answer.fits() ? "no" : is_lossy ? "at_risk" : "yes"};
}

Section map_section(const pack::PackAnswer& answer) {
  Html html;
  html.raw("<p class=\"soft\">Each rectangle is a block: from left to right its lifetime, from ");
  html.raw("bottom to top its addresses. ");
  if (answer.loss) {
    html.raw("Hatched is what PyTorch held and nobody used. The moment looked at is ");
    html.text(moment_words(answer)).raw(".");
  }
  html.raw("</p>\n");
  html.add(address_map(address_map_of(answer)));
  Section section{"map", "Address map", html, ""};
  section.has_map = true;
  return section;
}

Section loss_section(const pack::PackAnswer& answer) {
  const pack::LossAtPeak& loss = *answer.loss;
  const pack::SiteNames& names = answer.recording->sites;
  std::vector<std::vector<std::string>> sites;
  for (size_t i = 0; i < loss.sites.size() && i < kMostRows; ++i) {
    const pack::PinningSite& site = loss.sites[i];
    sites.push_back({names.site(site.site).words(),
                     with_commas(static_cast<int64_t>(site.segments)),
                     with_commas(static_cast<int64_t>(site.blocks)), format_bytes(site.bytes),
                     format_bytes(site.stranded), format_bytes(site.stranded_alone)});
  }
  std::vector<std::vector<std::string>> segments;
  for (const pack::StrandedSegment& segment : loss.segments) {
    if (segment.blocks == 0) continue;  // cached: given back by empty_cache()
    if (segments.size() == kMostRows) break;
    segments.push_back({hex_words(segment.address), format_bytes(segment.size),
                        format_bytes(segment.stranded), format_bytes(segment.largest_gap),
                        holder_words(segment, names, 3)});
  }
  Html html;
  html.raw("<p class=\"soft\">Memory that a block keeps PyTorch from giving back at that moment, ");
  html.raw("by the line of code that asked for the block. A segment with several holders counts ");
  html.raw("for each.</p>\n");
  html.add(html_table(
      {"call site", "#segments", "#blocks", "#of", "#stranded there", "#by it alone"}, sites));
  html.raw("<h3>The segments that strand most</h3>\n");
  html.add(html_table({"#segment", "#size", "#stranded", "#in one piece", "held by"}, segments));
  return {"lost", "What is lost", html, ""};
}

Section settings_section(const pack::PackAnswer& answer) {
  Bytes of_default;
  for (const pack::AllocatorFigures& figures : answer.allocators) {
    if (figures.name == "torch") of_default = figures.peak_reserved;
  }
  std::vector<LimitBar> bars;
  for (const pack::AllocatorFigures& figures : answer.allocators) {
    LimitBar bar;
    bar.name = figures.name;
    bar.note = setting_words(figures);
    bar.asked = figures.name == "torch";
    bar.tone = figures.peak_reserved < of_default   ? "yes"
               : figures.peak_reserved > of_default ? "no"
                                                    : "at_risk";
    bar.low = bar.expected = bar.high = figures.peak_reserved;
    bar.figure = format_bytes(figures.peak_reserved);
    bar.figure_note = text::formatted("%.1f %% used", 100 * figures.efficiency);
    bars.push_back(std::move(bar));
  }
  Html html;
  html.raw("<p class=\"soft\">What the same requests would have reserved, by replaying them. ");
  html.raw("The line is what lives at one moment: nothing can reserve less. ");
  html.text(answer.loss && answer.recorded ? used_words(answer)
                                           : "used: the most that lived over the most reserved");
  html.raw(".</p>\n");
  html.add(limit_bars(bars, {"lives at one moment", answer.lower_bound}));
  const std::string command = setting_command(answer);
  const std::string gain = setting_gain(answer);
  if (!gain.empty()) {
    html.raw("<p class=\"sub\">");
    if (!command.empty()) html.raw("<code>").text(command).raw("</code> ");
    html.text(gain).raw(".</p>\n");
  }
  return {"settings", "Settings", html, ""};
}

Section notes_section(const pack::PackAnswer& answer) {
  std::vector<std::vector<std::string>> rows;
  if (answer.loss && answer.recording) {
    rows.push_back({"reserved, allocated, stranded", answer.recording->is_simulated
                                                         ? "counted: PyTorch's allocator, simulated"
                                                         : "measured: the recording"});
  }
  if (!answer.recording || answer.recording->has_history) {
    rows.push_back({"under other settings, arena", "counted: the requests, replayed"});
  }
  rows.push_back(
      {"plan", "counted: " + answer.plan.method + ", and checked by code that it does not share"});
  Html html;
  html.add(html_table({"figure", "from"}, rows));
  if (!answer.notes.empty()) {
    html.raw("<h3>Notes</h3><ul class=\"notes\">");
    for (const std::string& note : answer.notes) html.raw("<li>").text(note).raw("</li>");
    html.raw("</ul>\n");
  }
  return {"trust", "Where it comes from", html, ""};
}

}  // namespace

std::vector<Section> pack_sections(const pack::PackAnswer& answer) {
  std::vector<Section> sections{answer_section(answer), map_section(answer)};
  if (answer.loss && answer.recording) sections.push_back(loss_section(answer));
  const bool has_history = !answer.recording || answer.recording->has_history;
  if (has_history) sections.push_back(settings_section(answer));
  sections.push_back(notes_section(answer));
  return sections;
}

}  // namespace headroom::report
