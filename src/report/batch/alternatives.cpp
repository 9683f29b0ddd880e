#include "report/batch/alternatives.h"

#include <cmath>

#include "report/batch/open_load.h"
#include "report/fit/words.h"
#include "text/json_parts.h"
#include "text/number.h"
#include "text/paragraph.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using batch::FreedUses;
using batch::Interval;
using batch::WhatIf;
using text::Align;
using text::formatted;
using text::Json;
using text::or_null;
using text::Table;

std::string whole(double value) { return with_commas(std::llround(value)); }
std::string times(double factor) { return formatted("%.2f x", factor); }
std::string span(const Interval& interval) {
  return formatted("%.2f", interval.low) + "-" + formatted("%.2f", interval.high);
}
std::string ms(double seconds) { return formatted("%.3g", seconds * 1e3); }
std::string gib(double bytes) { return format_bytes(Bytes(std::llround(bytes))); }

std::string opt_words(const batch::Advice& advice) {
  const auto of = [](const std::optional<int64_t>& batch) {
    return batch ? std::to_string(*batch) : std::string("none");
  };
  std::string words = of(advice.batch);
  if (advice.low != advice.batch || advice.high != advice.batch) {
    words += " (" + of(advice.low) + "-" + of(advice.high) + ")";
  }
  return words;
}

using Row = std::vector<std::string>;

std::string rates(const Interval& rate) {
  return per_second(rate.expected) + " requests/s (" + per_second(rate.low) + "-" +
         per_second(rate.high) + ")";
}

// Of a closed loop, or where percentiles are the target, of requests as they come.
struct WhatIfColumn {
  const char* closed;
  const char* load;
  int spare = 0;
};
constexpr WhatIfColumn kWhatIfColumns[] = {
    {"B_opt", "limit"}, {"tokens/s", "requests/s"},    {"gain", "gain"},   {"range", "range"},
    {"ITL ms", "90 %"}, {"KV needed", "KV needed", 1}, {"free", "free", 2}};

Row what_if_row(const WhatIf& what) {
  Row row{what.name + (what.is_other_model ? " *" : "")};
  const auto add = [&](std::string opt, std::string rate, std::string beside) {
    row.insert(row.end(),
               {std::move(opt), std::move(rate), what.speedup ? times(what.speedup->expected) : "",
                what.speedup ? span(*what.speedup) : "", std::move(beside),
                gib(what.kv_needed_bytes), gib(what.kv_freed_bytes)});
  };
  if (what.load && what.load->highest_rate.expected > 0) {
    const Interval& rate = what.load->highest_rate;
    add(std::to_string(what.load->limit), per_second(rate.expected),
        per_second(rate.low) + "-" + per_second(rate.high));
  } else if (what.advice.batch) {
    add(opt_words(what.advice), whole(what.throughput_tokens_per_second.expected),
        ms(what.itl_seconds.expected));
  } else {
    row.emplace_back("none");
  }
  return row;
}

std::vector<Row> what_if_rows(const std::vector<WhatIf>& what_ifs) {
  std::vector<Row> rows;
  for (const WhatIf& what : what_ifs) rows.push_back(what_if_row(what));
  return rows;
}

// What is said of percentiles is of one drawing of requests, and not quite what the tables say.
std::string baseline_words(const batch::BatchAnswer& answer) {
  return std::string("by the highest rate that keeps the targets, ") +
         (answer.question.open_load.limit ? "all at the same limit and"
                                          : "each at its own best limit, all") +
         " with the same requests, fewer than above (this one" +
         (answer.correction ? ", as predicted and scaled by the points: " : ": ") +
         per_second(answer.load_baseline->highest_rate.expected) + " requests/s, limit " +
         std::to_string(answer.load_baseline->limit) + ")";
}

std::string what_if_words(const batch::BatchAnswer& answer) {
  const std::string ends =
      ", its range from the low to the high end of a law that errs alike in both";
  std::string words = "Predicted, ";
  if (answer.load_baseline) {
    words += baseline_words(answer) + "; the gain is of that rate" + ends;
  } else {
    words += "each with the same target; the gain is of throughput at B_opt";
    if (answer.correction) words += " over this one as predicted and scaled by the points";
    words += ends + ", each with its own B_opt, which --min-efficiency may make a smaller one";
  }
  return words +
         ": no 90 % interval. *: another model, which has to be trained. What quantization costs "
         "in quality is not told.";
}

std::string target_words(const std::optional<bool>& meets) {
  return !meets ? "" : *meets ? ", within the target" : ", which misses the target";
}

std::string share_words(double share) {
  return share < 0.1 ? formatted("%.2g %%", 100 * share) : formatted("%.0f %%", 100 * share);
}

// A use and what it gives.
std::vector<Row> use_rows(const FreedUses& uses) {
  std::vector<Row> rows;
  if (const auto& longer = uses.longer_context) {
    const std::string then =
        longer->load ? "up to " + rates(longer->load->highest_rate)
                     : ms(longer->itl_seconds.expected) + " ms between tokens (" +
                           ms(longer->itl_seconds.low) + "-" + ms(longer->itl_seconds.high) + ")" +
                           target_words(longer->meets_target);
    rows.push_back({"longer contexts", whole(longer->tokens) + " tokens a sequence, " +
                                           formatted("%.1f", longer->factor) +
                                           " times as long: " + then});
  }
  if (const auto& cache = uses.prefix_cache) {
    rows.push_back(
        {"a cache of prefixes", whole(cache->tokens) + " tokens, " + whole(cache->prompts) +
                                    " prompts: at most " + times(cache->speedup_at_most.expected) +
                                    " of the throughput (" + span(cache->speedup_at_most) +
                                    "), were all of every prompt found"});
  }
  for (const batch::SmallerDevice& device : uses.smaller_devices) {
    const Interval& rate = device.throughput_tokens_per_second;
    const std::string does = device.load ? "limit " + std::to_string(device.load->limit) +
                                               ", up to " + rates(device.load->highest_rate)
                                         : "B_opt " + opt_words(device.advice) + ", " +
                                               whole(rate.expected) + " tokens/s (" +
                                               whole(rate.low) + "-" + whole(rate.high) + ")";
    const std::string share =
        device.share ? ", " + share_words(*device.share) + " of this card's" : "";
    rows.push_back({device.name, does + share});
  }
  if (const auto& both = uses.colocated) {
    const std::string name = "beside it " + text::printable(both->model);
    if (!both->fits) {
      rows.push_back(
          {name, "does not fit, or meets no target: its weights are " + gib(both->weights_bytes)});
    } else {
      rows.push_back(
          {name, "B_opt " + opt_words(both->advice) + ", " +
                     whole(both->throughput_tokens_per_second_second.expected) + " tokens/s (" +
                     whole(both->throughput_tokens_per_second_second.low) + "-" +
                     whole(both->throughput_tokens_per_second_second.high) + ") at " +
                     ms(both->itl_seconds_second) + " ms; this one then " +
                     whole(both->throughput_tokens_per_second.expected) + " tokens/s at " +
                     ms(both->itl_seconds) + " ms" + target_words(both->first_meets_target) +
                     ": the work of " + text::formatted("%.2f", 2 / both->slowdown) + " GPUs"});
    }
  }
  return rows;
}

std::string use_words(const batch::BatchAnswer& answer) {
  std::string words = "Predicted; ";
  words += answer.load_baseline ? "other lengths and smaller cards " + baseline_words(answer)
                                : "smaller cards with the same target";
  if (!answer.freed.colocated) return words + ".";
  return words +
         ". Two models at once take the GPU in turns under MPS, by a closed queueing network" +
         (answer.load_baseline ? ", in which percentiles are no target" : "") +
         "; each step is longer than alone.";
}

Json interval_json(const Interval& interval, double scale = 1) {
  return Json::object()
      .set("low", interval.low * scale)
      .set("expected", interval.expected * scale)
      .set("high", interval.high * scale);
}

Json advice_json(const batch::Advice& advice) {
  return Json::object()
      .set("value", or_null(advice.batch))
      .set("low", or_null(advice.low))
      .set("high", or_null(advice.high))
      .set("level_pct", 90);
}

}  // namespace

std::string alternatives_text(const batch::BatchAnswer& answer, const text::Terminal& terminal) {
  std::string out;
  const int columns = text::paragraph_columns(terminal.columns);
  const auto uses = use_rows(answer.freed);
  if (!uses.empty()) {
    Table table({{"what is set free could be", Align::left, false}, {"", Align::left, true}});
    for (const Row& row : uses) table.row({row.begin(), row.end()});
    out += "\n" + table.render(terminal) + text::paragraph(use_words(answer), 0, columns) + "\n";
  }
  if (!answer.what_ifs.empty()) {
    std::vector<text::TableColumn> headed{{"what if", Align::left}};
    for (const WhatIfColumn& column : kWhatIfColumns) {
      headed.push_back(
          {answer.load_baseline ? column.load : column.closed, Align::right, false, column.spare});
    }
    Table table(std::move(headed));
    for (const Row& row : what_if_rows(answer.what_ifs)) table.row({row.begin(), row.end()});
    out +=
        "\n" + table.render(terminal) + text::paragraph(what_if_words(answer), 0, columns) + "\n";
  }
  return out;
}

Json load_json(const std::optional<batch::LoadBest>& load) {
  if (!load) return nullptr;
  return Json::object()
      .set("limit", load->limit)
      .set("highest_requests_per_second", interval_json(load->highest_rate));
}

Json what_ifs_json(const std::vector<WhatIf>& what_ifs) {
  Json list = Json::array();
  for (const WhatIf& what : what_ifs) {
    Json one = Json::object()
                   .set("name", what.name)
                   .set("is_other_model", what.is_other_model)
                   .set("batch_opt", advice_json(what.advice))
                   .set("open_load", load_json(what.load))
                   .set("speedup", what.speedup ? interval_json(*what.speedup) : Json(nullptr));
    if (what.advice.batch) {
      one.set("throughput_tokens_per_second", interval_json(what.throughput_tokens_per_second))
          .set("itl_ms", interval_json(what.itl_seconds, 1e3));
    }
    if (what.advice.batch || what.load) {
      one.set("kv_needed_bytes", std::llround(what.kv_needed_bytes))
          .set("kv_freed_bytes", std::llround(what.kv_freed_bytes));
    }
    list.push_back(std::move(one).set("provenance", name_of(Provenance::extrapolated)));
  }
  return list;
}

Json freed_json(const FreedUses& uses) {
  Json json = Json::object();
  Json longer = nullptr;
  if (uses.longer_context) {
    longer = Json::object()
                 .set("context_tokens_mean", uses.longer_context->tokens)
                 .set("factor", uses.longer_context->factor)
                 .set("itl_ms", uses.longer_context->load
                                    ? Json(nullptr)
                                    : interval_json(uses.longer_context->itl_seconds, 1e3))
                 .set("meets_target", or_null(uses.longer_context->meets_target))
                 .set("open_load", load_json(uses.longer_context->load));
  }
  Json prefix = nullptr;
  if (uses.prefix_cache) {
    prefix = Json::object()
                 .set("tokens", uses.prefix_cache->tokens)
                 .set("prompts", uses.prefix_cache->prompts)
                 .set("speedup_at_most", interval_json(uses.prefix_cache->speedup_at_most));
  }
  Json devices = Json::array();
  for (const batch::SmallerDevice& device : uses.smaller_devices) {
    Json one = Json::object()
                   .set("device", device.name)
                   .set("usable_memory_bytes", device.memory.count)
                   .set("batch_opt", advice_json(device.advice))
                   .set("open_load", load_json(device.load))
                   .set("pct_of_this", or_null(device.share, 100));
    if (!device.load) {
      one.set("throughput_tokens_per_second", interval_json(device.throughput_tokens_per_second))
          .set("itl_ms", interval_json(device.itl_seconds, 1e3));
    }
    devices.push_back(std::move(one));
  }
  Json colocated = nullptr;
  if (const auto& both = uses.colocated) {
    colocated = Json::object().set("model", both->model).set("fits", both->fits);
    colocated.set("weights_bytes", std::llround(both->weights_bytes));
    if (both->fits) {
      colocated.set("batch_opt", advice_json(both->advice))
          .set("kv_needed_bytes", std::llround(both->kv_bytes))
          .set("slowdown", both->slowdown)
          .set("work_of_gpus", 2 / both->slowdown)
          .set("throughput_tokens_per_second",
               interval_json(both->throughput_tokens_per_second_second))
          .set("itl_ms", both->itl_seconds_second * 1e3)
          .set("first_throughput_tokens_per_second",
               interval_json(both->throughput_tokens_per_second))
          .set("first_itl_ms", both->itl_seconds * 1e3)
          .set("first_meets_target", or_null(both->first_meets_target));
    }
  }
  return json.set("longer_context", std::move(longer))
      .set("prefix_cache", std::move(prefix))
      .set("smaller_devices", std::move(devices))
      .set("colocated", std::move(colocated))
      .set("provenance", name_of(Provenance::extrapolated));
}

std::vector<Section> alternatives_sections(const batch::BatchAnswer& answer) {
  std::vector<Section> sections;
  if (const auto uses = use_rows(answer.freed); !uses.empty()) {
    Html html;
    html.add(html_table({"use", "what it gives"}, uses));
    html.raw("<p>").text(use_words(answer)).raw("</p>\n");
    sections.push_back({"freed", "What the memory could be instead", html, ""});
  }
  if (!answer.what_ifs.empty()) {
    auto rows = what_if_rows(answer.what_ifs);
    std::vector<std::string> headed{"change"};
    for (const WhatIfColumn& column : kWhatIfColumns) {
      headed.push_back(std::string("#") + (answer.load_baseline ? column.load : column.closed));
    }
    for (Row& row : rows) row.resize(headed.size());
    Html html;
    html.add(html_table(headed, rows));
    html.raw("<p>").text(what_if_words(answer)).raw("</p>\n");
    sections.push_back({"what-ifs", "What if", html, ""});
  }
  return sections;
}

}  // namespace headroom::report
