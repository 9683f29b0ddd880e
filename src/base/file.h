// Reading and writing whole files, with a limit on what a reader is willing to take.
//
// For configurations, tables and reports: inputs that fit in memory. The size that the file system
// claims is not believed, so pipes and growing files work. Blocking; thread-safe; one copy of the
// content. What fails is an Error of kind bad_input that names the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace headroom {

// The content of the file at `path`, or of standard input where `path` is "-". More than `limit`
// bytes, a directory, or a file that cannot be read is an Error.
Result<std::string> read_file(const std::string& path, Bytes limit);

// Replaces the file at `path` by `content` in one step: a reader sees the old content or the new,
// never a part, and a failure leaves the old. The directory must exist. Permissions of a file that
// was there are kept, a new one gets the user's default. A symbolic link is followed; a device or
// a pipe (/dev/stdout, /dev/null) is written in place.
Result<void> write_file_atomic(const std::string& path, std::string_view content);

// Whether this process has begun to write a file here. May be asked in a signal handler.
[[nodiscard]] bool has_written() noexcept;

// Whether write_file_atomic() would find a place to write to, as far as permissions tell: to be
// asked before long work whose answer goes there. Changes nothing.
Result<void> check_writable(const std::string& path);

}  // namespace headroom
