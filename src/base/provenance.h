// Provenance: where a reported number comes from. Every figure in an answer carries one.
//
// Plain values, free to copy; thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom {

enum class Provenance : uint8_t {
  counted,       // follows from shapes and rules alone; no law was fitted and nothing was measured
  measured,      // read from a run
  calibrated,    // counted or predicted, then corrected by measurements of this machine or model
  interpolated,  // between measured points
  extrapolated,  // beyond measured points, or by an assumption that the answer states
  datasheet,     // the maker's figure
};

// "counted", "measured", ...: the same word in text, JSON and pages.
[[nodiscard]] constexpr std::string_view name_of(Provenance provenance) {
  switch (provenance) {
    case Provenance::counted:
      return "counted";
    case Provenance::measured:
      return "measured";
    case Provenance::calibrated:
      return "calibrated";
    case Provenance::interpolated:
      return "interpolated";
    case Provenance::extrapolated:
      return "extrapolated";
    case Provenance::datasheet:
      return "datasheet";
  }
  return "unknown";
}

}  // namespace headroom
