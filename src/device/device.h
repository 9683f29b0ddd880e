// Device: what one piece of hardware can hold and do, each figure with its source.
//
// A plain value, some kilobytes large; copy it or share a const reference between threads. Figures
// come from data/devices.json, from the user's own files, from the command line, or from the
// driver of this machine (catalogue.h); nothing here is computed from another figure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/provenance.h"
#include "base/units.h"

namespace headroom::device {

// A value and where it comes from. Not known: nobody gave it, and it must not be used.
template <typename T>
struct Figure {
  T value{};
  Provenance provenance = Provenance::datasheet;
  std::string source;  // for people: "NVIDIA A100 datasheet, June 2021"

  [[nodiscard]] bool known() const { return !source.empty(); }
};

enum class Vendor : uint8_t { nvidia, amd, cpu };

[[nodiscard]] constexpr std::string_view name_of(Vendor vendor) {
  switch (vendor) {
    case Vendor::nvidia:
      return "nvidia";
    case Vendor::amd:
      return "amd";
    case Vendor::cpu:
      return "cpu";
  }
  return "unknown";
}

// Data types with a rate of their own in the arithmetic units.
enum class Rate : uint8_t { fp32, tf32, fp16, bf16, fp8, int8, fp4 };
inline constexpr std::array<Rate, 7> kRates{Rate::fp32, Rate::tf32, Rate::fp16, Rate::bf16,
                                            Rate::fp8,  Rate::int8, Rate::fp4};

inline constexpr std::array<std::string_view, kRates.size()> kRateNames{
    "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4"};

[[nodiscard]] constexpr std::string_view name_of(Rate rate) {
  return kRateNames[static_cast<size_t>(rate)];
}

struct ComputeCapability {
  int major = 0;
  int minor = 0;
  constexpr auto operator<=>(const ComputeCapability&) const = default;
};

struct BytesInterval {
  Bytes low;
  Bytes expected;
  Bytes high;
};

struct Device {
  std::string name;                  // "a100-sxm-80gb": unique, the word for --device
  std::string product;               // as the driver says it: "NVIDIA A100-SXM4-80GB"
  std::vector<std::string> aliases;  // other exact names
  Vendor vendor = Vendor::nvidia;
  std::string architecture;  // "hopper"

  Figure<ComputeCapability> compute_capability;  // for AMD: gfx major and minor, as HIP says
  Figure<Bytes> memory;                          // the total that nvidia-smi or rocm-smi shows
  Figure<Bytes> usable_memory;                   // the total that cudaMemGetInfo offers to programs
  Figure<BytesPerSecond> bandwidth;              // of the device memory, peak
  Figure<Bytes> l2;                              // of the whole chip; without AMD's Infinity Cache
  Figure<int64_t> sm_count;     // streaming multiprocessors, or AMD's compute units
  Figure<BytesPerSecond> link;  // to other GPUs, one direction, all links; 0 without
  std::string link_kind;        // "NVLink 4", "none"
  Figure<Watts> power;          // that the board may draw, as it is delivered
  Figure<BytesPerSecond> pcie;  // to the host, one direction
  int pcie_generation = 0;
  // Outside PyTorch's allocator in one training process without communication: the context, the
  // kernels that were loaded, library handles.
  Figure<BytesInterval> context;

  // Dense (without sparsity), fp32 accumulation where the maker tells them apart. Not known where
  // the hardware has no units for the type, or the maker gives no figure.
  [[nodiscard]] const Figure<FlopsPerSecond>& rate(Rate type) const {
    return dense_rates[static_cast<size_t>(type)];
  }
  std::array<Figure<FlopsPerSecond>, kRates.size()> dense_rates;
};

}  // namespace headroom::device
