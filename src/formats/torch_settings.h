// The allocator settings that a PyTorch snapshot carries.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "formats/pickle.h"
#include "memory/allocator_settings.h"

namespace headroom::formats {

// Reads the dict under `allocator_settings`. A configuration text that cannot be parsed is passed
// over with a note: the dict's other keys say what was in force.
Result<memory::AllocatorSettings> read_torch_settings(const PickleDocument& document,
                                                      PickleValue dict,
                                                      std::vector<std::string>& notes);

}  // namespace headroom::formats
