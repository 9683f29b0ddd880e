// Words that readers of several profilers bring to one form, so that the same rules sort them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::formats {

// ROCm's MEMORY_COPY_HOST_TO_DEVICE as PyTorch's profiler calls it: "Memcpy HtoD".
std::string rocm_copy_name(std::string_view operation);
// CUPTI's CUpti_ActivityMemcpyKind, the same.
std::string cuda_copy_name(int64_t kind);
// "cudaLaunchKernel_v7000" without the version that CUPTI adds.
std::string_view plain_call_name(std::string_view name);
// Whether a range of that name is one iteration: "ProfilerStep#3", "step 12", "Iteration: 4".
bool is_step_name(std::string_view name);

}  // namespace headroom::formats
