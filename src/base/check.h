// Checks for bugs of ours. A failed check prints the place and the condition and ends the process
// with exit code 70. No input, however hostile, may reach one: bad input is an Error (result.h).
#pragma once

namespace headroom {

// Prints "file:line: check failed: condition (note)" to stderr and exits with code 70.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const char* note) noexcept;

}  // namespace headroom

#define HEADROOM_CHECK(condition, note) \
  (static_cast<bool>(condition)         \
       ? static_cast<void>(0)           \
       : ::headroom::check_failed(__FILE__, __LINE__, #condition, (note)))
