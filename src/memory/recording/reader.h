// Reads recordings of our own (run_recording.h). Nothing in the file is believed before it is
// checked. Linear; memory about that of the file.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "memory/recording/run_recording.h"
#include "memory/snapshot.h"

namespace headroom::memory {

// Whether a file begins like one.
[[nodiscard]] bool is_recording(std::string_view first_bytes);

// A file that ends early, because the run was killed or the file was cut, gives what it holds up to
// there, is_complete false and a note. A slot that cannot be true is passed over with a note.
// Errors say "FILE: byte N".
Result<RunRecording> parse_recording(std::string_view bytes, const std::string& file);

// Its events as the trace of a device, in order and one for one. What a trace has no word for
// (synchronisation, marks) is `other` there. Stacks keep their numbers. The segments are what was
// held after the last event, as far as the recording says what is held.
[[nodiscard]] Snapshot snapshot_of(const RunRecording& recording);

}  // namespace headroom::memory
