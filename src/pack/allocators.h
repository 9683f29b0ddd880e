// The same requests under PyTorch's allocator and its settings, by the simulator.
#pragma once

#include <vector>

#include "pack/answer.h"

namespace headroom::pack {

// One for each setting that is worth a try, "torch" (the defaults) first. The requests are replayed
// from an empty allocator on a device that never fills up: what was there at the start of the
// recording is allocated first. Garbage collection needs a limit (set_per_process_memory_fraction):
// it is given what "torch" reserved, so what it collects is what "torch" wasted. Last comes a
// best-fit arena. Settings under which sizes leave the address space, or the limit does not do, are
// left out. About 200 ns a request and setting; all cores.
[[nodiscard]] std::vector<AllocatorFigures> replay_under_settings(
    const std::vector<PlannedRequest>& requests);

}  // namespace headroom::pack
