#include "report/pack/loss_text.h"

#include "report/fit/words.h"
#include "report/pack/words.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using pack::LossAtPeak;
using text::Align;
using text::Style;
using text::Table;
using text::Terminal;

constexpr size_t kMostRows = 6;  // the rest is in --json and --html

std::string more_words(size_t rows) {
  if (rows <= kMostRows) return "";
  return with_commas(static_cast<int64_t>(rows - kMostRows)) + " more: --json, --html\n";
}

std::string share_of(Bytes part, Bytes whole) { return share_words(part, whole); }

std::string peak_table(const pack::PackAnswer& answer, const Terminal& terminal) {
  const LossAtPeak& loss = *answer.loss;
  Table table({{"", Align::left, false},
               {"", Align::right, false},
               {"", Align::right, false},
               {"", Align::left, true}});
  const auto row = [&](const char* name, Bytes bytes, std::string note) {
    table.row({name,
               {format_bytes(bytes), Style::bold},
               share_of(bytes, loss.reserved),
               {std::move(note), Style::dim}});
  };
  if (loss.failure) {
    row("asked for", loss.failure->tried,
        format_bytes(loss.failure->device_free) + " of the device was free");
  }
  row("reserved", loss.reserved, text::printable(moment_words(answer)));
  row("allocated", loss.allocated,
      "in blocks; " + format_bytes(loss.allocated - loss.requested) +
          " of it by rounding and rests too small to split off");
  row("stranded", loss.stranded, "free inside segments that a block keeps");
  row("cached", loss.cached, "in segments without a block: torch.cuda.empty_cache() frees it");
  return table.render(terminal);
}

std::string segments_table(const pack::PackAnswer& answer, const Terminal& terminal) {
  const LossAtPeak& loss = *answer.loss;
  Table table({{"segment", Align::left, false},
               {"size", Align::right, false},
               {"stranded", Align::right, false},
               {"in one piece", Align::right, false},
               {"held by", Align::left, true}});
  size_t found = 0;
  for (const pack::StrandedSegment& segment : loss.segments) {
    if (segment.blocks == 0 || found++ >= kMostRows) continue;
    table.row({hex_words(segment.address) + (segment.is_expandable ? " +" : ""),
               format_bytes(segment.size),
               {format_bytes(segment.stranded), Style::bold},
               format_bytes(segment.largest_gap),
               text::printable(holder_words(segment, answer.recording->sites, 2))});
  }
  if (found == 0) return "";
  return "\nThe segments that strand most:\n" + table.render(terminal) + more_words(found);
}

std::string sites_table(const pack::PackAnswer& answer, const Terminal& terminal) {
  const LossAtPeak& loss = *answer.loss;
  if (loss.sites.empty()) return "";
  // Of a site the line and the function tell more than the folders.
  Table table({{"call site", Align::left, true, 0, text::Cut::beginning},
               {"segments", Align::right, false, 1},
               {"blocks", Align::right, false, 2},
               {"of", Align::right, false},
               {"stranded there", Align::right, false},
               {"by it alone", Align::right, false}});
  for (size_t i = 0; i < loss.sites.size() && i < kMostRows; ++i) {
    const pack::PinningSite& site = loss.sites[i];
    table.row({text::printable(answer.recording->sites.site(site.site).words()),
               with_commas(static_cast<int64_t>(site.segments)),
               with_commas(static_cast<int64_t>(site.blocks)),
               format_bytes(site.bytes),
               {format_bytes(site.stranded), Style::bold},
               format_bytes(site.stranded_alone)});
  }
  return "\nWho holds them (a segment with several holders counts for each):\n" +
         table.render(terminal) + more_words(loss.sites.size());
}

}  // namespace

std::string loss_text(const pack::PackAnswer& answer, const Terminal& terminal) {
  if (!answer.loss || !answer.recording) return "";
  return peak_table(answer, terminal) + segments_table(answer, terminal) +
         sites_table(answer, terminal);
}

}  // namespace headroom::report
