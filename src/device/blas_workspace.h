// The workspaces that PyTorch allocates for its matrix products, by version and device.
//
// Since PyTorch 1.13 they come from the caching allocator, one for each pair of library handle and
// stream: a training step has two, as forward and backward run on threads with handles of their
// own. Pure functions, any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/device.h"

namespace headroom::device {

struct TorchRelease {
  int major = 2;
  int minor = 0;
  constexpr auto operator<=>(const TorchRelease&) const = default;
};

struct BlasWorkspace {
  // What calls through the "Lt" library (linear layers with a bias, scaled products) use.
  enum class Lt {
    temporary,   // allocated for each call and freed after it
    persistent,  // kept, one for each handle and stream, beside the other
    shared,      // the workspace of the main library
  };
  Bytes main;  // cuBLAS or rocBLAS; 0 where it is not the allocator's
  Bytes lt;    // cuBLASLt or hipBLASLt; 0 where shared
  Lt lt_kind = Lt::temporary;
  Provenance provenance = Provenance::counted;
  std::string source;
};

// REQUIRES: device.compute_capability.known(), or a device that is a CPU.
[[nodiscard]] BlasWorkspace blas_workspace(const Device& device, TorchRelease torch);

// Bytes of CUBLAS_WORKSPACE_CONFIG=`text` (":4096:2:16:8" is 2 x 4096 KiB and 8 x 16 KiB).
Result<Bytes> parse_cublas_workspace_config(std::string_view text);

}  // namespace headroom::device
