// A table for people: columns aligned by display width, fitted to the width of the terminal.
//
// Where the terminal is too narrow, the elastic columns that have most to spare give way first and
// their cells are cut with "…", until names could no longer be told from one another; then columns
// that can be spared are left out, and a line says so; then the elastic ones are cut further.
// Columns that are not elastic (numbers) are never cut, as a cut number is a wrong number. Cells
// may hold anything: control characters are made harmless. Not synchronised; linear in the text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/terminal.h"

namespace headroom::text {

enum class Align { left, right };
// Where a cell that is too long is cut: paths at their beginning, titles that differ at their end
// in the middle.
enum class Cut { end, beginning, middle };

struct TableColumn {
  std::string heading;
  Align align = Align::left;
  bool elastic = false;  // may be cut where the terminal is too narrow
  int spare = 0;         // above 0: may be left out there, the highest first
  Cut cut = Cut::end;
  // What cells need to be told from one another, of an elastic one: it is cut below that only where
  // nothing more can be left out.
  int readable = 24;
};

struct TableCell {
  TableCell() = default;
  // Implicit, so that a row of plain cells is a row of strings.
  // NOLINTBEGIN(google-explicit-constructor)
  TableCell(std::string cell_text, Style cell_style = Style::plain)
      : text(std::move(cell_text)), style(cell_style) {}
  TableCell(const char* cell_text, Style cell_style = Style::plain)
      : text(cell_text), style(cell_style) {}
  // NOLINTEND(google-explicit-constructor)

  std::string text;
  Style style = Style::plain;
};

class Table {
 public:
  explicit Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  // Missing cells are empty. REQUIRES: no more cells than columns.
  void row(std::vector<TableCell> cells);
  [[nodiscard]] size_t rows() const { return rows_.size(); }

  // The heading (left out where all headings are empty) and the rows, each line ended by "\n" and
  // without spaces at its end.
  [[nodiscard]] std::string render(const Terminal& terminal) const;

 private:
  [[nodiscard]] std::vector<int> widths() const;
  void leave_out(int available, std::vector<int>& widths) const;
  void narrow(int available, std::vector<int>& widths) const;

  std::vector<TableColumn> columns_;
  std::vector<std::vector<TableCell>> rows_;
};

}  // namespace headroom::text
