#include "text/table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/utf8.h"

namespace headroom::text {
namespace {

constexpr int kGap = 2;
constexpr int kMinElastic = 6;  // below this a cut cell says nothing
constexpr int kLeftOut = -1;    // a width

int total_of(const std::vector<int>& widths) {
  int total = -kGap;
  for (const int width : widths) total += width == kLeftOut ? 0 : width + kGap;
  return total;
}

std::string cut_to(const std::string& text, int width, Cut cut) {
  switch (cut) {
    case Cut::beginning:
      return elide_front(text, width);
    case Cut::middle:
      return elide_middle(text, width);
    case Cut::end:
      break;
  }
  return elide(text, width);
}

void append_cell(std::string& line, const TableCell& cell, const TableColumn& column, int width,
                 bool colour) {
  const Align align = column.align;
  const std::string text = cut_to(cell.text, width, column.cut);
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

std::vector<int> Table::widths() const {
  std::vector<int> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    int width = display_width(columns_[i].heading);
    for (const auto& row : rows_) width = std::max(width, display_width(row[i].text));
    widths.push_back(width);
  }
  return widths;
}

// Until it fits with elastic columns as wide as can be read.
void Table::leave_out(int available, std::vector<int>& widths) const {
  const auto needed = [&] {
    std::vector<int> least = widths;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].elastic) least[i] = std::min(least[i], columns_[i].readable);
    }
    return total_of(least);
  };
  while (needed() > available) {
    size_t next = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].spare == 0 || widths[i] == kLeftOut) continue;
      if (next == columns_.size() || columns_[i].spare > columns_[next].spare) next = i;
    }
    if (next == columns_.size()) return;
    widths[next] = kLeftOut;
  }
}

void Table::narrow(int available, std::vector<int>& widths) const {
  const auto to_spare = [&](size_t i) { return widths[i] - columns_[i].readable; };
  for (int total = total_of(widths); total > available; --total) {
    size_t widest = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!columns_[i].elastic || widths[i] <= kMinElastic) continue;
      if (widest == columns_.size() || to_spare(i) > to_spare(widest)) widest = i;
    }
    if (widest == columns_.size()) return;
    --widths[widest];
  }
}

std::string Table::render(const Terminal& terminal) const {
  std::vector<int> width = widths();
  if (terminal.columns > 0) {
    leave_out(terminal.columns, width);
    narrow(terminal.columns, width);
  }
  const bool headed = std::any_of(columns_.begin(), columns_.end(),
                                  [](const TableColumn& c) { return !c.heading.empty(); });
  std::string out;
  const auto append_row = [&](const std::vector<TableCell>& cells) {
    std::string line;
    bool is_first = true;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (width[i] == kLeftOut) continue;
      if (!std::exchange(is_first, false)) line.append(kGap, ' ');
      append_cell(line, cells[i], columns_[i], width[i], terminal.colour);
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
  if (const auto left_out = std::ranges::count(width, kLeftOut); left_out > 0) {
    out += paint(std::to_string(left_out) + (left_out == 1 ? " column" : " columns") +
                     " more in a wider terminal",
                 Style::dim, terminal.colour) +
           "\n";
  }
  return out;
}

}  // namespace headroom::text
