// A recorded run, written for other programs: Chrome's trace viewer or Perfetto, and tables.
#pragma once

#include <string>

#include "pack/answer.h"

namespace headroom::pack {

// Chrome's trace event format as JSON, which ui.perfetto.dev opens: a process a stream with a slice
// for each request, from its allocation to its release, in lanes that do not overlap; and counters
// of what lives and, where it is recorded, what is held from the driver. Times are those of the
// recording, or one microsecond an entry where it has none; "otherData" says which.
// O(n log n).
[[nodiscard]] std::string chrome_trace_of(const PackAnswer& answer);

// id,lower,upper,size,stream,address,begin_us,end_us,site: an instance that `headroom pack` reads
// again, with what else is known of each request; empty where it is not.
[[nodiscard]] std::string requests_csv_of(const PackAnswer& answer);

}  // namespace headroom::pack
