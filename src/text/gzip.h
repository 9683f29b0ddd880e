// Reading files that may be gzip-compressed, as if they were not.
//
// For inputs that fit in memory. What counts against the limit is the unpacked size, and unpacking
// stops there, so a small file that claims to be petabytes costs no more than the limit. Blocking,
// any thread; about 1 GB/s unpacked.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace headroom::text {

// The content of the file at `path` ("-" is standard input), unpacked where it is gzip (by its
// first bytes, whatever its name is), at most `limit` bytes of it.
Result<std::string> read_input(const std::string& path, Bytes limit);

// Whether `data` begins like a gzip file.
[[nodiscard]] bool is_gzip(std::string_view data);

// Unpacks one or more gzip members to at most `limit` bytes. `file` is only used in errors, whose
// place is "file: byte N". A truncated or corrupt file is an Error, not a part of the content.
Result<std::string> gunzip(std::string_view data, const std::string& file, Bytes limit);

// `data` as one gzip member without name or time, so that equal data gives equal bytes.
[[nodiscard]] std::string gzip(std::string_view data);

}  // namespace headroom::text
