// A profiler's file of any kind that Headroom reads, told by its first bytes and not by its name.
//
// Blocking, any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "formats/sqlite_file.h"
#include "formats/trace_builder.h"

namespace headroom::formats {

// Of a database: Nsight Systems' export, or AMD's rocpd.
Result<Trace> read_database_trace(const SqliteFile& file, const TraceLimits& limits = {});

// "-" is standard input: of any kind but a database, which needs a file.
Result<Trace> read_trace(const std::string& path, const TraceLimits& limits = {});

}  // namespace headroom::formats
