#include "report/pack/oom_text.h"

#include <algorithm>

#include "text/number.h"
#include "text/paragraph.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using text::Align;
using text::Style;
using text::Table;
using text::Terminal;

constexpr size_t kMostInFull = 3;  // the rest is one line each; --json has all

std::string place_of(const pack::OomCase& one) {
  std::string words = "line " + std::to_string(one.message.line);
  if (one.message.device) words += ", GPU " + std::to_string(*one.message.device);
  if (one.message.count > 1) words += ", " + std::to_string(one.message.count) + " times";
  return words;
}

std::string request_line(const pack::OomCase& one) {
  const bool is_said = one.message.source == formats::OomSource::host;  // in the first line
  if (!one.message.tried || is_said) return "";
  std::string line = format_bytes(*one.message.tried) + " was asked for";
  if (!one.short_by) return line + ".\n";
  const pack::BytesRange& missing = *one.short_by;
  if (missing.expected.count > 0) {
    line += ", " + format_bytes(missing.expected) + " was missing";
    const std::string low = format_bytes(std::max(missing.low, Bytes(0)));
    const std::string high = format_bytes(missing.high);
    if (low != high) line += " (" + low + " to " + high + ", as the message rounds)";
  }
  return line + ".\n";
}

// Of an Apple GPU a limit runs out, or nobody knows what.
std::string share_of(const pack::OomCase& one) {
  if (one.message.source != formats::OomSource::mps) return "of the device";
  return one.message.allowed ? "of the limit" : "of what is held";
}

std::string holders_table(const pack::OomCase& one, const Terminal& terminal) {
  Table table({{"", Align::left, false},
               {"held", Align::right, false},
               {share_of(one), Align::right, false},
               {"", Align::left, true}});
  for (const pack::OomHolder& holder : one.holders) {
    const bool is_culprit =
        holder.name == pack::name_of(one.culprit) ||
        (one.culprit == pack::OomCulprit::model && holder.name == "tensors") ||
        (one.culprit == pack::OomCulprit::fragmentation && holder.name == "unallocated") ||
        (one.culprit == pack::OomCulprit::other_process && holder.name.starts_with("process "));
    const Style style = is_culprit ? Style::bold : Style::plain;
    table.row({{holder.name, style},
               {format_bytes(holder.bytes), style},
               {text::formatted("%.1f %%", holder.share_pct), style},
               {holder.what, Style::dim}});
  }
  return table.render(terminal);
}

std::string in_full(const pack::OomCase& one, const Terminal& terminal) {
  const int columns = text::paragraph_columns(terminal.columns);
  std::string lines = request_line(one);
  if (!one.holders.empty()) lines += "\n" + holders_table(one, terminal);
  lines += "\n";
  for (const std::string& advice : one.advice) {
    lines += "- " + text::paragraph(text::printable(advice), 2, columns) + "\n";
  }
  for (const std::string& note : one.notes) {
    lines += "note: " + text::paragraph(text::printable(note), 6, columns) + "\n";
  }
  return lines;
}

}  // namespace

std::string oom_text(const pack::OomAnswer& answer, const Terminal& terminal) {
  std::string lines;
  const bool are_several = answer.cases.size() > 1;
  for (size_t i = 0; i < answer.cases.size(); ++i) {
    const pack::OomCase& one = answer.cases[i];
    if (i > 0 && i < kMostInFull) lines += "\n";
    lines += text::paint(text::printable(one.verdict), Style::bad, terminal.colour);
    if (are_several || one.message.count > 1) lines += " (" + place_of(one) + ")";
    lines += "\n";
    if (i < kMostInFull) lines += in_full(one, terminal);
  }
  return lines;
}

}  // namespace headroom::report
