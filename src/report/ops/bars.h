// Bars of pages about time: a step as a stack of what it goes to, and rows of bars beside one
// another.
//
// Pure, thread-safe; linear in what is shown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/page/html.h"

namespace headroom::report {

struct StackPart {
  std::string_view group;  // whose colour it has; "idle" is hatched
  std::string title;
  double ms = 0;
  std::string remark = {};  // behind its time, where a pointer rests on it
};

// As wide as its parts are of `whole_ms`.
void add_stack(Html& html, const std::vector<StackPart>& parts, double whole_ms);
// Each part of these that is there, once.
void add_legend(Html& html, const std::vector<StackPart>& parts);

// A row of <div class="bars">: a name, something to see, a figure with a remark below it.
struct BarRow {
  std::string name;
  std::string remark;  // below the name; or ""
  Html lane;
  std::string figure;
  std::string note;        // below the figure; or ""
  std::string whole = {};  // where `name` is shortened: shown where a pointer rests on it
};
void add_row(Html& html, const BarRow& row);

// A bar from 0, in percent of the lane, with its interval where it has one.
enum class BarTone { good, bad };
[[nodiscard]] Html bar_lane(BarTone tone, double pct, double low_pct = 0, double high_pct = 0);

// What was taken for granted, as a list; nothing of none.
void add_notes(Html& html, const std::vector<std::string>& notes);

}  // namespace headroom::report
