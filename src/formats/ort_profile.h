// Profiles of ONNX Runtime (SessionOptions::EnableProfiling): an array of events in Chrome's form.
//
// Nodes become operators named "onnx::" and their type, with the shapes and types of their inputs;
// each model_run is a step. Node times are the host's: on a GPU's execution provider they would be
// what launching takes, so that a profile of one is refused (unavailable). Streams; an event that
// cannot be read is recorded with its place, and the reading goes on. Layout as recorded with ONNX
// Runtime 1.20 to 1.30. Blocking, any thread.
#pragma once

#include <string_view>

#include "base/result.h"
#include "formats/trace_builder.h"
#include "text/byte_feed.h"

namespace headroom::formats {

// Whether the first bytes of an unpacked file look like one of these.
[[nodiscard]] bool is_ort_profile(std::string_view begin);

Result<Trace> read_ort_profile(text::ByteFeed feed, const TraceLimits& limits = {});

}  // namespace headroom::formats
