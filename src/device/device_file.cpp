#include "device/device_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "device/limits.h"

namespace headroom::device {
namespace {

using text::JsonView;

constexpr size_t kMaxDevices = 10'000;
constexpr size_t kMaxSources = 10'000;
constexpr size_t kMaxText = 1'000;

Result<std::string> get_text(const JsonView& view, std::string_view key, size_t max_size) {
  HEADROOM_ASSIGN(std::string text, view.get_string(key));
  if (text.empty() || text.size() > max_size) {
    return view.error_at(key, "expected 1 to " + std::to_string(max_size) + " bytes of text");
  }
  return text;
}

Result<Provenance> get_provenance(const JsonView& view) {
  static constexpr std::array<Provenance, 3> kAllowed{Provenance::datasheet, Provenance::measured,
                                                      Provenance::extrapolated};
  HEADROOM_ASSIGN(const std::string text, view.get_string("provenance"));
  for (const Provenance provenance : kAllowed) {
    if (text == name_of(provenance)) return provenance;
  }
  return view.error_at("provenance", "expected datasheet, measured or extrapolated");
}

// Names are typed on command lines, with ',' and '=' after them.
bool is_good_name(std::string_view name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= 100 && name != "auto" &&
         std::all_of(name.begin(), name.end(), good);
}

class Reader {
 public:
  Reader(std::vector<FigureSource>& sources, std::vector<Device>& devices)
      : sources_(sources), devices_(devices) {}

  Result<void> read_sources(const JsonView& root) {
    HEADROOM_ASSIGN(const auto table, root.optional_object("sources"));
    if (!table) return {};
    HEADROOM_ASSIGN(const auto members, table->get_members());
    if (members.size() > kMaxSources) return table->error("has too many sources");
    for (const auto& [key, view] : members) {
      HEADROOM_ASSIGN(const Provenance provenance, get_provenance(view));
      HEADROOM_ASSIGN(std::string text, get_text(view, "text", kMaxText));
      sources_.push_back({key, std::move(text), provenance});
    }
    return {};
  }

  Result<void> read_device(const JsonView& view) {
    HEADROOM_ASSIGN(const std::string name, view.get_string("name"));
    if (!is_good_name(name)) {
      return view.error_at("name", "expected lower-case letters, digits, '-', '_' and '.'",
                           "for example a100-sxm-80gb");
    }
    HEADROOM_ASSIGN(Device device, start_from(view, name));
    HEADROOM_TRY(read_identity(view, device));
    HEADROOM_TRY(read_memory(view, device));
    HEADROOM_TRY(read_context(view, device));
    HEADROOM_TRY(read_capability(view, device));
    HEADROOM_TRY(read_rates(view, device));
    HEADROOM_TRY(read_links(view, device));
    HEADROOM_TRY(read_power(view, device));
    if (Device* known = find(name)) {
      *known = std::move(device);
    } else {
      if (devices_.size() >= kMaxDevices) return view.error("is one device too many");
      devices_.push_back(std::move(device));
    }
    return {};
  }

 private:
  Device* find(std::string_view name) {
    const auto found = std::find_if(devices_.begin(), devices_.end(),
                                    [&](const Device& device) { return device.name == name; });
    return found == devices_.end() ? nullptr : &*found;
  }

  Result<Device> start_from(const JsonView& view, const std::string& name) {
    HEADROOM_ASSIGN(const std::optional<std::string> like, view.optional_string("like"));
    Device device;
    if (const Device* known = find(name); known != nullptr && !like) {
      device = *known;
    } else {
      const Device* base = like ? find(*like) : nullptr;
      if (like && base == nullptr) {
        return view.error_at("like", "no device of that name comes before");
      }
      if (base != nullptr) device = *base;
      device.product = name;
      device.aliases.clear();
    }
    device.name = name;
    return device;
  }

  Result<void> read_identity(const JsonView& view, Device& device) {
    static constexpr std::array<Vendor, 3> kVendors{Vendor::nvidia, Vendor::amd, Vendor::cpu};
    if (view.has("product")) {
      HEADROOM_ASSIGN(device.product, get_text(view, "product", 200));
    }
    if (view.has("architecture")) {
      HEADROOM_ASSIGN(device.architecture, get_text(view, "architecture", 100));
    }
    HEADROOM_ASSIGN(const std::optional<std::string> vendor, view.optional_string("vendor"));
    if (vendor) {
      const auto* found = std::find_if(kVendors.begin(), kVendors.end(),
                                       [&](Vendor v) { return name_of(v) == *vendor; });
      if (found == kVendors.end()) return view.error_at("vendor", "expected nvidia, amd or cpu");
      device.vendor = *found;
    }
    HEADROOM_ASSIGN(const auto aliases, view.optional_array("aliases", 20));
    if (!aliases) return {};
    device.aliases.clear();
    for (const JsonView& alias : *aliases) {
      HEADROOM_ASSIGN(std::string text, alias.to_string());
      if (text.empty() || text.size() > 200) return alias.error("expected 1 to 200 bytes of text");
      device.aliases.push_back(std::move(text));
    }
    return {};
  }

  Result<void> read_memory(const JsonView& view, Device& device) {
    HEADROOM_TRY(read_bytes(view, "memory_bytes", device.memory));
    HEADROOM_TRY(read_bytes(view, "usable_memory_bytes", device.usable_memory));
    HEADROOM_TRY(read_bytes(view, "l2_bytes", device.l2));
    if (device.vendor != Vendor::cpu && !device.memory.known()) {
      return view.error_at("memory_bytes", "is missing");
    }
    if (!device.usable_memory.known()) device.usable_memory = device.memory;
    if (device.usable_memory.value > device.memory.value) {
      return view.error("usable_memory_bytes is larger than memory_bytes");
    }
    return {};
  }

  Result<void> read_context(const JsonView& view, Device& device) {
    HEADROOM_ASSIGN(const auto context, view.optional_object("context_bytes"));
    if (!context) return {};
    HEADROOM_ASSIGN(const int64_t low, context->get_int("low", 0, kMaxMemory));
    HEADROOM_ASSIGN(const int64_t expected, context->get_int("expected", low, kMaxMemory));
    HEADROOM_ASSIGN(const int64_t high, context->get_int("high", expected, kMaxMemory));
    device.context.value = {Bytes(low), Bytes(expected), Bytes(high)};
    return attach_source(*context, device.context);
  }

  Result<void> read_capability(const JsonView& view, Device& device) {
    HEADROOM_ASSIGN(const auto object, view.optional_object("compute_capability"));
    if (!object) return {};
    HEADROOM_ASSIGN(const std::string text, object->get_string("value"));
    ComputeCapability& value = device.compute_capability.value;
    const char* end = text.data() + text.size();
    const auto major = std::from_chars(text.data(), end, value.major);
    const bool dot = major.ec == std::errc() && major.ptr != end && *major.ptr == '.';
    const auto minor = dot ? std::from_chars(major.ptr + 1, end, value.minor) : major;
    const bool whole = dot && minor.ec == std::errc() && minor.ptr == end;
    if (!whole || std::min(value.major, value.minor) < 0 ||
        std::max(value.major, value.minor) > 99) {
      return object->error_at("value", "expected text such as \"9.0\"");
    }
    return attach_source(*object, device.compute_capability);
  }

  Result<void> read_rates(const JsonView& view, Device& device) {
    HEADROOM_TRY(
        read_bandwidth(view, "bandwidth_bytes_per_second", kMinBandwidth, device.bandwidth));
    HEADROOM_ASSIGN(const auto sms, view.optional_object("sm_count"));
    if (sms) {
      HEADROOM_ASSIGN(device.sm_count.value, sms->get_int("value", 1, kMaxSmCount));
      HEADROOM_TRY(attach_source(*sms, device.sm_count));
    }
    HEADROOM_ASSIGN(const auto rates, view.optional_object("dense_flops_per_second"));
    if (!rates) return {};
    for (const Rate type : kRates) {
      HEADROOM_ASSIGN(const auto rate, rates->optional_object(name_of(type)));
      if (!rate) continue;
      Figure<FlopsPerSecond>& figure = device.dense_rates[static_cast<size_t>(type)];
      HEADROOM_ASSIGN(figure.value.value, rate->get_double("value", kMinFlops, kMaxFlops));
      HEADROOM_TRY(attach_source(*rate, figure));
    }
    return {};
  }

  Result<void> read_power(const JsonView& view, Device& device) {
    HEADROOM_ASSIGN(const auto power, view.optional_object("board_power_watts"));
    if (!power) return {};
    HEADROOM_ASSIGN(device.power.value.value, power->get_double("value", kMinWatts, kMaxWatts));
    return attach_source(*power, device.power);
  }

  Result<void> read_links(const JsonView& view, Device& device) {
    HEADROOM_TRY(read_bandwidth(view, "link_bytes_per_second", 0, device.link));
    HEADROOM_TRY(read_bandwidth(view, "pcie_bytes_per_second", kMinBandwidth, device.pcie));
    HEADROOM_ASSIGN(const auto link, view.optional_object("link_bytes_per_second"));
    if (link) {
      HEADROOM_ASSIGN(device.link_kind, get_text(*link, "kind", 100));
    }
    HEADROOM_ASSIGN(const auto pcie, view.optional_object("pcie_bytes_per_second"));
    if (pcie) {
      HEADROOM_ASSIGN(const int64_t generation, pcie->get_int("generation", 1, 99));
      device.pcie_generation = static_cast<int>(generation);
    }
    return {};
  }

  Result<void> read_bytes(const JsonView& view, std::string_view key, Figure<Bytes>& figure) {
    HEADROOM_ASSIGN(const auto object, view.optional_object(key));
    if (!object) return {};
    HEADROOM_ASSIGN(figure.value.count, object->get_int("value", kMinMemory, kMaxMemory));
    return attach_source(*object, figure);
  }

  Result<void> read_bandwidth(const JsonView& view, std::string_view key, double min,
                              Figure<BytesPerSecond>& figure) {
    HEADROOM_ASSIGN(const auto object, view.optional_object(key));
    if (!object) return {};
    HEADROOM_ASSIGN(figure.value.value, object->get_double("value", min, kMaxBandwidth));
    return attach_source(*object, figure);
  }

  template <typename T>
  Result<void> attach_source(const JsonView& view, Figure<T>& figure) {
    HEADROOM_ASSIGN(const std::string key, get_text(view, "source", kMaxText));
    // The latest file first: a user's source may bear a name of ours.
    const auto found = std::find_if(sources_.rbegin(), sources_.rend(),
                                    [&](const FigureSource& source) { return source.key == key; });
    if (found != sources_.rend()) {
      figure.source = found->text;
      figure.provenance = found->provenance;
      return {};
    }
    if (!view.has("provenance")) {
      return view.error_at("source", "is no key of \"sources\"",
                           "add it there, or add \"provenance\" beside it");
    }
    HEADROOM_ASSIGN(figure.provenance, get_provenance(view));
    figure.source = key;
    return {};
  }

  std::vector<FigureSource>& sources_;
  std::vector<Device>& devices_;
};

}  // namespace

Result<void> read_device_file(const JsonView& root, std::vector<FigureSource>& sources,
                              std::vector<Device>& devices) {
  HEADROOM_ASSIGN(const std::string schema, root.get_string("schema"));
  if (schema != "headroom.devices/1") {
    return root.error_at("schema", "expected \"headroom.devices/1\"");
  }
  Reader reader(sources, devices);
  HEADROOM_TRY(reader.read_sources(root));
  HEADROOM_ASSIGN(const auto list, root.get_array("devices", kMaxDevices));
  for (const JsonView& view : list) HEADROOM_TRY(reader.read_device(view));
  return {};
}

}  // namespace headroom::device
