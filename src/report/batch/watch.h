// What `headroom batch --watch` says: lines for people, JSON lines (schema headroom.batch.watch/1),
// and Prometheus' text for a collector of text files.
#pragma once

#include <cstdint>
#include <string>

#include "batch/watch.h"
#include "text/json.h"

namespace headroom::report {

// What a report is of, beside itself.
struct WatchContext {
  std::string url;
  double unix_seconds = 0;  // now
  int64_t changes = 0;      // said so far
};

// The line of a first B_opt or a change.
[[nodiscard]] std::string watch_line(const batch::WatchReport& report);
[[nodiscard]] text::Json watch_json(const batch::WatchReport& report, const WatchContext& context);
[[nodiscard]] std::string watch_prometheus(const batch::WatchReport& report,
                                           const WatchContext& context);

}  // namespace headroom::report
