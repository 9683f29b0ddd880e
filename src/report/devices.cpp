#include "report/devices.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "text/json_parts.h"
#include "text/paragraph.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using device::Device;
using device::Figure;
using text::Align;
using text::Json;
using text::Style;
using text::Table;

// Three significant figures with a decimal prefix: "2.04 TB/s", "312 TFLOPS".
std::string decimal(double value, const char* unit) {
  static constexpr std::array<const char*, 6> kPrefixes{"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (std::abs(value) >= 1000.0 && prefix + 1 < kPrefixes.size()) {
    value /= 1000.0;
    ++prefix;
  }
  std::array<char, 64> words{};
  std::snprintf(words.data(), words.size(), "%.3g %s%s", value, kPrefixes[prefix], unit);
  return words.data();
}

std::string words_of(Bytes value) { return format_bytes(value); }
std::string words_of(BytesPerSecond value) { return decimal(value.value, "B/s"); }
std::string words_of(FlopsPerSecond value) { return decimal(value.value, "FLOPS"); }
std::string words_of(Watts value) { return decimal(value.value, "W"); }
std::string words_of(int64_t value) { return std::to_string(value); }
std::string words_of(device::ComputeCapability value) {
  return std::to_string(value.major) + "." + std::to_string(value.minor);
}
std::string words_of(const device::BytesInterval& value) {
  return format_bytes(value.low) + " to " + format_bytes(value.high);
}

template <typename T>
std::string short_words(const Figure<T>& figure) {
  return figure.known() ? words_of(figure.value) : "-";
}

Json json_of(Bytes value) { return value; }
Json json_of(BytesPerSecond value) { return value.value; }
Json json_of(FlopsPerSecond value) { return value.value; }
Json json_of(Watts value) { return value.value; }
Json json_of(int64_t value) { return value; }
Json json_of(device::ComputeCapability value) { return words_of(value); }

template <typename T>
Json figure_json(const Figure<T>& figure) {
  if (!figure.known()) return nullptr;
  return Json::object()
      .set("value", json_of(figure.value))
      .set("provenance", name_of(figure.provenance))
      .set("source", figure.source);
}

// A figure that is not known is left out: a file may not say "nothing" for most of them.
template <typename T>
void set_figure(Json& json, std::string_view key, const Figure<T>& figure) {
  if (figure.known()) json.set(key, figure_json(figure));
}

Json device_json(const Device& device) {
  Json json = Json::object()
                  .set("name", device.name)
                  .set("vendor", name_of(device.vendor))
                  .set("product", device.product)
                  .set("aliases", text::json_array(device.aliases))
                  .set("architecture", device.architecture);
  set_figure(json, "compute_capability", device.compute_capability);
  set_figure(json, "memory_bytes", device.memory);
  set_figure(json, "usable_memory_bytes", device.usable_memory);
  set_figure(json, "bandwidth_bytes_per_second", device.bandwidth);
  Json rates = Json::object();
  for (const device::Rate rate : device::kRates) {
    rates.set(name_of(rate), figure_json(device.rate(rate)));
  }
  json.set("dense_flops_per_second", std::move(rates));
  set_figure(json, "l2_bytes", device.l2);
  set_figure(json, "sm_count", device.sm_count);
  set_figure(json, "board_power_watts", device.power);
  if (device.link.known()) {
    json.set("link_bytes_per_second", figure_json(device.link).set("kind", device.link_kind));
  }
  if (device.pcie.known()) {
    json.set("pcie_bytes_per_second",
             figure_json(device.pcie).set("generation", device.pcie_generation));
  }
  if (device.context.known()) {
    json.set("context_bytes", Json::object()
                                  .set("low", device.context.value.low)
                                  .set("expected", device.context.value.expected)
                                  .set("high", device.context.value.high)
                                  .set("provenance", name_of(device.context.provenance))
                                  .set("source", device.context.source));
  }
  return json;
}

// The figures of one device with numbered notes: many figures share one source.
class FigureTable {
 public:
  template <typename T>
  void row(std::string name, const Figure<T>& figure) {
    if (!figure.known()) return;
    table_.row({std::move(name),
                words_of(figure.value),
                std::string(name_of(figure.provenance)),
                {"[" + std::to_string(note(figure.source)) + "]", Style::dim}});
  }

  [[nodiscard]] std::string render(const text::Terminal& terminal) const {
    constexpr int kIndent = 5;
    const int columns = text::paragraph_columns(terminal.columns);
    std::string lines = table_.render(terminal) + "\n";
    for (size_t i = 0; i < sources_.size(); ++i) {
      std::string number = "[" + std::to_string(i + 1) + "]";
      number.resize(kIndent, ' ');
      lines += number + text::paragraph(text::printable(sources_[i]), kIndent, columns) + "\n";
    }
    return lines;
  }

 private:
  size_t note(const std::string& source) {
    const auto at = std::find(sources_.begin(), sources_.end(), source);
    if (at != sources_.end()) return static_cast<size_t>(at - sources_.begin()) + 1;
    sources_.push_back(source);
    return sources_.size();
  }

  Table table_{{{"", Align::left, false},
                {"", Align::right, false},
                {"", Align::left, false},
                {"", Align::left, false}}};
  std::vector<std::string> sources_;
};

}  // namespace

std::string devices_text(std::span<const Device> devices, const text::Terminal& terminal) {
  Table table({{"device", Align::left, false},
               {"memory", Align::right, false},
               {"bandwidth", Align::right, false},
               {"bf16", Align::right, false},
               {"product", Align::left, true}});
  for (const Device& device : devices) {
    table.row({device.name,
               short_words(device.memory),
               short_words(device.bandwidth),
               short_words(device.rate(device::Rate::bf16)),
               {device.product, Style::dim}});
  }
  return table.render(terminal);
}

std::string device_text(const Device& device, const text::Terminal& terminal) {
  std::string lines =
      text::printable(device.name + ": " + device.product + ", " + device.architecture) + "\n\n";
  FigureTable table;
  table.row("memory", device.memory);
  table.row("usable memory", device.usable_memory);
  table.row("context", device.context);
  table.row("bandwidth", device.bandwidth);
  table.row("l2", device.l2);
  for (const device::Rate rate : device::kRates) {
    table.row(std::string(name_of(rate)), device.rate(rate));
  }
  table.row("sm count", device.sm_count);
  table.row("board power", device.power);
  table.row("compute capability", device.compute_capability);
  const std::string link = device.link_kind.empty() ? "" : " (" + device.link_kind + ")";
  table.row("link" + link, device.link);
  table.row("pcie", device.pcie);
  return lines + table.render(terminal);
}

Json devices_json(std::span<const Device> devices) {
  Json list = Json::array();
  for (const Device& device : devices) list.push_back(device_json(device));
  return Json::object().set("schema", "headroom.devices/1").set("devices", std::move(list));
}

}  // namespace headroom::report
