#include "device/blas_workspace.h"

#include <charconv>

namespace headroom::device {
namespace {

// Releases are inferred from when the changes were merged.
constexpr TorchRelease kFromAllocator{1, 13};     // pytorch/pytorch pull request 85447
constexpr TorchRelease kCountsPools{2, 0};        // pull request 91564, January 2023
constexpr TorchRelease kPersistentLt{2, 9};       // pull request 156495, June 2025
constexpr TorchRelease kSharedLt{2, 11};          // pull request 168175, January 2026
constexpr TorchRelease kLargeOnBlackwell{2, 12};  // pull request 175344, February 2026

constexpr Bytes kFirstDefault{4 * kMiB};
constexpr Bytes kDefault{2 * 4096 * kKiB + 8 * 16 * kKiB};  // ":4096:2:16:8" = 8,519,680 bytes
constexpr Bytes kLarge{32 * kMiB};
constexpr Bytes kLtDefault{kMiB};
constexpr Bytes kRocmMi300{128 * kMiB};
constexpr Bytes kRocmLt{76 * kMiB};

Bytes cublas_bytes(ComputeCapability capability, TorchRelease torch) {
  if (torch < kFromAllocator) return Bytes(0);
  if (torch < kCountsPools) return kFirstDefault;
  const bool hopper = capability.major == 9;
  const bool blackwell = capability.major == 10 || capability.major == 12;
  if (hopper || (blackwell && torch >= kLargeOnBlackwell)) return kLarge;
  return kDefault;
}

}  // namespace

BlasWorkspace blas_workspace(const Device& device, TorchRelease torch) {
  BlasWorkspace workspace;
  workspace.source = "PyTorch, aten/src/ATen/cuda/CublasHandlePool.cpp";
  if (device.vendor == Vendor::cpu) return workspace;
  HEADROOM_CHECK(device.compute_capability.known(), "workspace of an unknown GPU generation");
  const ComputeCapability capability = device.compute_capability.value;
  const bool persistent = torch >= kPersistentLt;
  workspace.lt_kind = persistent ? BlasWorkspace::Lt::persistent : BlasWorkspace::Lt::temporary;
  if (device.vendor == Vendor::amd) {
    workspace.main = capability >= ComputeCapability{9, 4} ? kRocmMi300 : kLarge;
    workspace.lt = kRocmLt;
    return workspace;
  }
  workspace.main = cublas_bytes(capability, torch);
  workspace.lt = kLtDefault;
  if (torch >= kSharedLt) {
    workspace.lt = Bytes(0);
    workspace.lt_kind = BlasWorkspace::Lt::shared;
  }
  return workspace;
}

Result<Bytes> parse_cublas_workspace_config(std::string_view text) {
  const auto bad = [&] {
    return Error{ErrorCode::bad_input,
                 "CUBLAS_WORKSPACE_CONFIG: expected pairs :KIBIBYTES:COUNT",
                 {},
                 "for example :4096:8 or :4096:2:16:8"};
  };
  const auto next_number = [&]() -> std::optional<int64_t> {
    int64_t value = 0;
    if (!text.starts_with(':')) return std::nullopt;
    text.remove_prefix(1);
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || value < 0) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return value;
  };
  int64_t total = 0;
  do {
    const std::optional<int64_t> size = next_number();
    const std::optional<int64_t> count = size ? next_number() : std::nullopt;
    if (!count || *size > (kGiB >> 10) || *count > 1024) return bad();
    total += *size * kKiB * *count;
    if (total > kGiB * 64) return bad();
  } while (!text.empty());
  return Bytes(total);
}

}  // namespace headroom::device
