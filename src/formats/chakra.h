// Execution traces of MLCommons' Chakra (chakra_nodes.h) as a trace: what an operator took on the
// host, what its kernels took on the device, and which operator launched which kernel.
//
// The converter keeps durations and leaves out when anything began. Such a trace has durations and
// links alone (Trace::has_starts is false): its events are laid one after the other, callers around
// what they called, so that what goes by links and durations holds, and nothing else does. Should a
// file have starts they are passed over: its durations leave out what was called, and span nothing.
// Durations are whole microseconds, cut.
//
// What is read of it: chakra_nodes.h. Old converters split an operator around its launches into
// pieces of one rf_id, "aten::mm(0)", "aten::mm(1)", and left ids of another numbering in
// ctrl_deps: pieces become one operator, callers are not known, and a kernel belongs to the piece
// that it waits for first. Blocking, any thread; some 250 bytes a node are kept.
#pragma once

#include "base/result.h"
#include "formats/chakra_nodes.h"
#include "formats/trace_builder.h"
#include "text/byte_feed.h"

namespace headroom::formats {

Result<Trace> read_chakra(text::ByteFeed feed, const TraceLimits& limits = {});

// The name without the number of a piece, "aten::mm" of "aten::mm(0)"; where the operator's schema
// does not begin so the name is as it stands.
[[nodiscard]] std::string_view whole_name(const ChakraNode& node);

}  // namespace headroom::formats
