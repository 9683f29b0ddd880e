// Reading what the processes of a run left: one JSON file each, schema "headroom.run.process/1".
//
// A report is written by a process that may have been killed, lost its disk or been replaced by
// another program's file of that name, so nothing in it is believed before it was checked. Pure;
// linear.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "run/answer.h"

namespace headroom::run {

// One report from its text; `file` is used in errors.
[[nodiscard]] Result<ProcessReport> parse_report(const std::string& text, const std::string& file);

// All reports in a folder, by rank and process; what could not be read becomes a note.
[[nodiscard]] std::vector<ProcessReport> read_reports(const std::string& folder,
                                                      std::vector<std::string>& notes);

}  // namespace headroom::run
