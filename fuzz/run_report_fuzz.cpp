// Reports of processes: any bytes give a report or an Error, and a report is shown and measured.
#include <cstddef>
#include <cstdint>
#include <string>

#include "report/run.h"
#include "run/measured_file.h"
#include "run/process_report.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto report = headroom::run::parse_report(text, "fuzz");
  if (!report) {
    HEADROOM_CHECK(!report.error().message.empty(), "an error without words");
    return 0;
  }
  headroom::run::RunAnswer answer;
  answer.started = true;
  answer.processes.push_back(*report);
  const std::string lines = headroom::report::run_text(answer, {});
  HEADROOM_CHECK(lines.empty() || lines.starts_with("headroom: "), "a line that says who speaks");
  HEADROOM_CHECK(headroom::report::run_json(answer).is_object(), "an object");
  const auto measured = headroom::run::with_rows_of(answer.processes, "");
  HEADROOM_CHECK(!measured.content.empty(), "a header");
  return 0;
}
