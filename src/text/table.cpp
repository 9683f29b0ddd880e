#include "text/table.h"

#include <algorithm>

#include "base/check.h"
#include "text/utf8.h"

namespace headroom::text {
namespace {

constexpr int kGap = 2;
constexpr int kMinElastic = 6;  // below this a cut cell says nothing

void append_cell(std::string& line, const TableCell& cell, Align align, int width, bool colour) {
  const std::string text = elide(cell.text, width);
  const int fill = std::max(0, width - display_width(text));
  const std::string padding(static_cast<size_t>(fill), ' ');
  if (align == Align::right) line += padding;
  line += paint(text, cell.style, colour);
  if (align == Align::left) line += padding;
}

}  // namespace

void Table::row(std::vector<TableCell> cells) {
  HEADROOM_CHECK(cells.size() <= columns_.size(), "more cells than columns");
  cells.resize(columns_.size());
  for (TableCell& cell : cells) cell.text = printable(cell.text);
  rows_.push_back(std::move(cells));
}

std::vector<int> Table::widths(int available) const {
  std::vector<int> widths;
  int total = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    int width = display_width(columns_[i].heading);
    for (const auto& row : rows_) width = std::max(width, display_width(row[i].text));
    widths.push_back(width);
    total += width + (i > 0 ? kGap : 0);
  }
  while (available > 0 && total > available) {
    size_t widest = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!columns_[i].elastic || widths[i] <= kMinElastic) continue;
      if (widest == columns_.size() || widths[i] > widths[widest]) widest = i;
    }
    if (widest == columns_.size()) break;
    --widths[widest];
    --total;
  }
  return widths;
}

std::string Table::render(const Terminal& terminal) const {
  const std::vector<int> width = widths(terminal.columns);
  const bool headed = std::any_of(columns_.begin(), columns_.end(),
                                  [](const TableColumn& c) { return !c.heading.empty(); });
  std::string out;
  const auto append_row = [&](const std::vector<TableCell>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) line.append(kGap, ' ');
      append_cell(line, cells[i], columns_[i].align, width[i], terminal.colour);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  if (headed) {
    std::vector<TableCell> heading;
    heading.reserve(columns_.size());
    for (const TableColumn& column : columns_) heading.push_back({column.heading, Style::bold});
    append_row(heading);
  }
  for (const auto& row : rows_) append_row(row);
  return out;
}

}  // namespace headroom::text
