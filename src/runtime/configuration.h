// What a process asked of the runtime: by headroom_configure(), or in the environment.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "runtime/abi.h"

namespace headroom::runtime {

enum class Mode : uint8_t { run, record, serve, off };

struct Configuration {
  Mode mode = Mode::run;
  std::string plan_path;
  std::string plan_out;
  std::string record_path;
  std::string driver_path;
  int32_t rank = 0;
  int32_t world_size = 1;
  bool without_virtual_memory = false;
  bool always_plans = false;
  bool copies_name_devices = false;  // PyTorch's between two, by the shim
};

// The Error says what is not known or does not go together.
Result<Configuration> configuration_from(const headroom_configuration& given);
// HEADROOM_RUN_MODE and the others that abi.h names. What cannot be read is as if it were not
// there.
Configuration configuration_from_environment();

// `pattern` with %d and %r replaced by device and rank, %% by %.
std::string path_for(const std::string& pattern, int device, int rank);

[[nodiscard]] const char* mode_name(Mode mode);

}  // namespace headroom::runtime
