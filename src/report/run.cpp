#include "report/run.h"

#include <algorithm>

#include "text/json_parts.h"
#include "text/number.h"
#include "text/paragraph.h"

namespace headroom::report {
namespace {

using run::DeviceFigures;
using run::Outcome;
using run::ProcessReport;
using text::Json;
using text::or_null;
using text::Style;
using text::Terminal;

std::string who(const ProcessReport& process) {
  return process.rank ? "rank " + std::to_string(*process.rank)
                      : "process " + std::to_string(process.pid);
}

std::string percent_of(int64_t part, int64_t whole) {
  return text::formatted("%.1f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

// "61.20 GiB reserved, 52.30 GiB with the plan (-14.5 %)", or what there is of it.
std::string reserved_words(const DeviceFigures& device) {
  if (device.reserved_before && device.reserved_after && device.reserved_before->count > 0) {
    const int64_t before = device.reserved_before->count;
    const int64_t after = device.reserved_after->count;
    const double change = 100.0 * (static_cast<double>(after) / static_cast<double>(before) - 1.0);
    return format_bytes(*device.reserved_before) + " reserved, " +
           format_bytes(*device.reserved_after) + " with the plan (" +
           text::formatted("%+.1f %%", change) + ")";
  }
  std::string words;
  if (device.peak_reserved) words = format_bytes(*device.peak_reserved) + " reserved";
  if (device.peak_allocated) {
    words += (words.empty() ? "" : ", ") + format_bytes(*device.peak_allocated) + " allocated";
  }
  return words.empty() ? "no figures" : words + " at the peak";
}

std::string iterations_words(int64_t count) {
  return std::to_string(count) + (count == 1 ? " iteration" : " iterations");
}

std::string served_words(const DeviceFigures& device) {
  if (device.requests <= 0) {
    return "no plan served (saw " + iterations_words(device.iterations) +
           (device.plan_reason.empty() ? ")" : "; " + device.plan_reason + ")");
  }
  return (device.plan_source == "kept" ? "a kept plan: " : "") +
         percent_of(device.planned, device.requests) + " planned, " +
         percent_of(device.reused, device.requests) + " reused, " +
         percent_of(device.fallen_back, device.requests) + " fallen back";
}

std::string device_line(const ProcessReport& process, const DeviceFigures& device) {
  std::string line =
      who(process) + ", cuda:" + std::to_string(device.device) + ": " + reserved_words(device);
  if (process.outcome == Outcome::served) line += "; " + served_words(device);
  if (process.outcome == Outcome::recorded) {
    line += "; recorded " + iterations_words(device.iterations);
  }
  if (process.outcome == Outcome::off) line += "; PyTorch's own allocator";
  if (device.outside && device.outside->count > 0)
    line += "; " + format_bytes(*device.outside) + " outside our reach";
  if (!process.ended) line += "; killed: this is what it had told";
  return line;
}

// A process that ends with these was killed, aborted, or refused before it could leave a report.
constexpr int kNobodyTells = 125;

std::string headline_of_nothing(const run::RunAnswer& answer) {
  const auto idle = std::ranges::count(answer.processes, Outcome::nothing, &ProcessReport::outcome);
  if (idle == 0 && answer.exit_code >= kNobodyTells) {
    return "no figures: no Python process of this command imported torch, or none came to its end";
  }
  if (idle == 0) return "nothing to do: no Python process of this command imported torch";
  std::string words = "nothing to do: no CUDA was used by ";
  words += idle == 1 ? "the process" : "the " + std::to_string(idle) + " processes";
  const std::string& reason =
      std::ranges::find(answer.processes, Outcome::nothing, &ProcessReport::outcome)->reason;
  return words + " that imported torch" + (reason.empty() ? "" : " (" + reason + ")");
}

constexpr std::string_view kName = "headroom: ";

// In a pipe and a file each is one line.
std::string line(const std::string& words, Style style, const Terminal& terminal) {
  return std::string(kName) + text::wrapped(words, terminal, static_cast<int>(kName.size()), style);
}

std::string process_lines(const ProcessReport& process, const Terminal& terminal) {
  std::string lines;
  if (process.outcome == Outcome::refused) {
    lines += line(who(process) + ": not installed: " + process.reason, Style::warning, terminal);
  }
  if (process.devices.empty() && !process.ended && process.outcome != Outcome::nothing) {
    lines += line(who(process) + ": ended before it had told anything", Style::warning, terminal);
  }
  for (const DeviceFigures& device : process.devices) {
    lines += line(device_line(process, device), Style::bold, terminal);
  }
  for (const std::string& file : process.recordings) {
    lines += line("recording: " + file, Style::dim, terminal);
  }
  for (const std::string& note : process.notes) {
    lines += line(who(process) + ": " + note, Style::dim, terminal);
  }
  return lines;
}

std::string_view outcome_word(Outcome outcome) {
  switch (outcome) {
    case Outcome::served:
      return "served";
    case Outcome::recorded:
      return "recorded";
    case Outcome::off:
      return "off";
    case Outcome::nothing:
      return "nothing";
    case Outcome::refused:
      return "refused";
  }
  return "nothing";
}

Json device_json(const DeviceFigures& device) {
  return Json::object()
      .set("device", device.device)
      .set("name", device.name)
      .set("memory_bytes", or_null(device.memory))
      .set("peak_allocated_bytes", or_null(device.peak_allocated))
      .set("peak_reserved_bytes", or_null(device.peak_reserved))
      .set("reserved_before_bytes", or_null(device.reserved_before))
      .set("reserved_after_bytes", or_null(device.reserved_after))
      .set("outside_bytes", or_null(device.outside))
      .set("requests", device.requests)
      .set("planned", device.planned)
      .set("reused", device.reused)
      .set("fallen_back", device.fallen_back)
      .set("iterations", device.iterations)
      .set("plan_source", device.plan_source)
      .set("plan_reason", device.plan_reason);
}

Json process_json(const ProcessReport& process) {
  Json devices = Json::array();
  for (const DeviceFigures& device : process.devices) devices.push_back(device_json(device));
  Json setting = Json::object();
  for (const auto& [column, words] : process.setting) setting.set(column, words);
  return Json::object()
      .set("outcome", outcome_word(process.outcome))
      .set("reason", process.reason)
      .set("ended", process.ended)
      .set("pid", process.pid)
      .set("host", process.host)
      .set("rank", process.rank ? Json(*process.rank) : Json(nullptr))
      .set("world_size", process.world_size)
      .set("torch", process.torch_version)
      .set("devices", std::move(devices))
      .set("recordings", text::json_array(process.recordings))
      .set("notes", text::json_array(process.notes))
      .set("setting", std::move(setting));
}

}  // namespace

std::string run_text(const run::RunAnswer& answer, const Terminal& terminal) {
  std::string lines;
  const bool is_refused =
      std::ranges::count(answer.processes, Outcome::refused, &ProcessReport::outcome) > 0;
  if (answer.started && !answer.used_a_device() && !is_refused) {
    lines += line(headline_of_nothing(answer), Style::plain, terminal);
  }
  for (const ProcessReport& process : answer.processes) lines += process_lines(process, terminal);
  for (const std::string& note : answer.notes) lines += line(note, Style::dim, terminal);
  if (answer.signal != 0) {
    lines += line("the command was ended by signal " + std::to_string(answer.signal),
                  Style::warning, terminal);
  }
  return lines;
}

Json run_json(const run::RunAnswer& answer) {
  Json processes = Json::array();
  for (const ProcessReport& process : answer.processes) {
    processes.push_back(process_json(process));
  }
  return Json::object()
      .set("schema", "headroom.run/1")
      .set("command", text::json_array(answer.command))
      .set("mode", answer.mode)
      .set("exit_code", answer.exit_code)
      .set("signal", answer.signal)
      .set("processes", std::move(processes))
      .set("notes", text::json_array(answer.notes));
}

}  // namespace headroom::report
