// rocpd, the database that AMD's rocprofv3 writes by default (`rocprofv3 --output-format rocpd`).
//
// Dispatches, copies and regions: a region of the HIP API is a call, one of another category an
// annotation; a call and what it put on the device share a stack of their events. Tables carry the
// run's identifier behind their name, and several runs may be merged into a file: all are read.
// Schema 3 of rocprofiler-sdk (share/rocprofiler-sdk-rocpd/rocpd_tables.sql); the fourth, which
// keeps times in a table of their own, is refused with a hint. No recorded file was at hand: the
// test's is made from that schema (tests/data/make_databases.py). Blocking, any thread.
#pragma once

#include "base/result.h"
#include "formats/sqlite_file.h"
#include "formats/trace_builder.h"

namespace headroom::formats {

[[nodiscard]] bool is_rocpd(const SqliteFile& file);

Result<Trace> read_rocpd(const SqliteFile& file, const TraceLimits& limits = {});

}  // namespace headroom::formats
