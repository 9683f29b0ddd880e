#include "formats/torch_settings.h"

namespace headroom::formats {
namespace {

using memory::AllocatorSettings;

Error bad(const std::string& key, const std::string& message) {
  return Error{ErrorCode::bad_input, "'" + key + "' " + message, "",
               "is it a PyTorch memory snapshot?"};
}

// `fallback` where the key is absent or None.
Result<int64_t> integer(const PickleDocument& document, PickleValue dict, const std::string& key,
                        int64_t fallback) {
  const auto value = document.find(dict, key);
  if (!value || value->kind() == PickleKind::none) return fallback;
  if (value->kind() != PickleKind::integer) return bad(key, "is not a whole number");
  return *document.integer(*value);
}

Result<void> read_divisions(const PickleDocument& document, PickleValue dict,
                            AllocatorSettings& settings) {
  for (size_t i = 0; i < settings.roundup_power2_divisions.size(); ++i) {
    HEADROOM_ASSIGN(const int64_t divisions,
                    integer(document, dict, std::to_string(int64_t{1} << i), 0));
    if (divisions < 0 || (divisions & (divisions - 1)) != 0 || divisions > (1 << 20)) {
      return bad("roundup_power2_divisions", "is not a power of two");
    }
    settings.roundup_power2_divisions[i] = divisions;
  }
  return {};
}

}  // namespace

// The text form knows max_non_split_rounding_mb and large_segment_size_mb, which the dict leaves
// out; the dict has what is in force.
Result<AllocatorSettings> read_torch_settings(const PickleDocument& document, PickleValue dict,
                                              std::vector<std::string>& notes) {
  if (dict.kind() != PickleKind::dict) return bad("allocator_settings", "is not a dict");
  AllocatorSettings settings;
  for (const std::string key : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    const auto text = document.find(dict, key);
    if (!text || text->kind() != PickleKind::text) continue;
    auto parsed = memory::parse_allocator_config(document.text(*text));
    if (parsed) {
      settings = *parsed;
    } else {
      notes.push_back(key + " was passed over: " + parsed.error().to_string());
    }
  }
  HEADROOM_ASSIGN(const int64_t max_split, integer(document, dict, "max_split_size", -1));
  settings.max_split_size_bytes = max_split < 0 ? memory::kUnlimited : max_split;
  if (const auto threshold = document.find(dict, "garbage_collection_threshold")) {
    const double value = document.real(*threshold);
    if (!(value >= 0 && value < 1)) return bad("garbage_collection_threshold", "is not in [0, 1)");
    settings.garbage_collection_threshold = value;
  }
  if (const auto expandable = document.find(dict, "expandable_segments")) {
    settings.expandable_segments = expandable->is_true();
  }
  if (const auto divisions = document.find(dict, "roundup_power2_divisions")) {
    HEADROOM_TRY(read_divisions(document, *divisions, settings));
  }
  return settings;
}

}  // namespace headroom::formats
