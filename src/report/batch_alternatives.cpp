#include "report/batch_alternatives.h"

#include <cmath>

#include "report/fit_words.h"
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

std::vector<Row> what_if_rows(const std::vector<WhatIf>& what_ifs) {
  std::vector<Row> rows;
  for (const WhatIf& what : what_ifs) {
    const std::string name = what.name + (what.is_other_model ? " *" : "");
    if (!what.advice.batch) {
      rows.push_back({name, "none"});
      continue;
    }
    rows.push_back({name, opt_words(what.advice), whole(what.throughput_tokens_per_second.expected),
                    times(what.speedup.expected), span(what.speedup), ms(what.itl_seconds.expected),
                    gib(what.kv_needed_bytes), gib(what.kv_freed_bytes)});
  }
  return rows;
}

// Percentiles are of requests as they come; what is here is in a closed loop.
std::string target_clause(const batch::BatchAnswer& answer) {
  const bool has_percentiles = !answer.question.open_load.targets.empty();
  return has_percentiles && !answer.itl_target_seconds
             ? "in a closed loop, in which percentiles are no target"
             : "with the same target";
}

std::string what_if_words(const batch::BatchAnswer& answer) {
  return "Predicted, each " + target_clause(answer) +
         "; the gain is of throughput at B_opt, its range from the "
         "low to the high end of a law that errs alike in both, each with its own B_opt: no 90 % "
         "interval. *: another model, which has to be trained. What quantization costs in quality "
         "is "
         "not told.";
}

std::string target_words(const std::optional<bool>& meets) {
  return !meets ? "" : *meets ? ", within the target" : ", which misses the target";
}

// A use and what it gives.
std::vector<Row> use_rows(const FreedUses& uses) {
  std::vector<Row> rows;
  if (const auto& longer = uses.longer_context) {
    rows.push_back({"longer contexts", whole(longer->tokens) + " tokens a sequence, " +
                                           formatted("%.1f", longer->factor) +
                                           " times as long: " + ms(longer->itl_seconds.expected) +
                                           " ms between tokens (" + ms(longer->itl_seconds.low) +
                                           "-" + ms(longer->itl_seconds.high) + ")" +
                                           target_words(longer->meets_target)});
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
    rows.push_back({device.name, "B_opt " + opt_words(device.advice) + ", " + whole(rate.expected) +
                                     " tokens/s (" + whole(rate.low) + "-" + whole(rate.high) +
                                     "), " + formatted("%.0f %%", 100 * device.share) +
                                     " of this card's"});
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
                     ms(both->itl_seconds) + " ms" + target_words(both->first_meets_target)});
    }
  }
  return rows;
}

std::string use_words(const batch::BatchAnswer& answer) {
  return "Predicted; smaller cards " + target_clause(answer) +
         ". Two models at once take the GPU in turns under "
         "MPS, by a closed queueing network; each step is longer than alone.";
}

Json interval_json(const Interval& interval, double scale = 1) {
  return Json::object()
      .set("low", interval.low * scale)
      .set("expected", interval.expected * scale)
      .set("high", interval.high * scale);
}

Json or_null(const std::optional<bool>& value) { return value ? Json(*value) : Json(nullptr); }

Json advice_json(const batch::Advice& advice) {
  const auto of = [](const std::optional<int64_t>& batch) {
    return batch ? Json(*batch) : Json(nullptr);
  };
  return Json::object()
      .set("value", of(advice.batch))
      .set("low", of(advice.low))
      .set("high", of(advice.high))
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
    Table table({{"what if", Align::left, false},
                 {"B_opt", Align::right, false},
                 {"tokens/s", Align::right, false},
                 {"gain", Align::right, false},
                 {"range", Align::right, false},
                 {"ITL ms", Align::right, false},
                 {"KV needed", Align::right, false, 1},
                 {"free", Align::right, false, 2}});
    for (const Row& row : what_if_rows(answer.what_ifs)) table.row({row.begin(), row.end()});
    out +=
        "\n" + table.render(terminal) + text::paragraph(what_if_words(answer), 0, columns) + "\n";
  }
  return out;
}

Json what_ifs_json(const std::vector<WhatIf>& what_ifs) {
  Json list = Json::array();
  for (const WhatIf& what : what_ifs) {
    Json one = Json::object()
                   .set("name", what.name)
                   .set("is_other_model", what.is_other_model)
                   .set("batch_opt", advice_json(what.advice));
    if (what.advice.batch) {
      one.set("throughput_tokens_per_second", interval_json(what.throughput_tokens_per_second))
          .set("speedup", interval_json(what.speedup))
          .set("itl_ms", interval_json(what.itl_seconds, 1e3))
          .set("kv_needed_bytes", std::llround(what.kv_needed_bytes))
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
                 .set("itl_ms", interval_json(uses.longer_context->itl_seconds, 1e3))
                 .set("meets_target", or_null(uses.longer_context->meets_target));
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
    devices.push_back(
        Json::object()
            .set("device", device.name)
            .set("usable_memory_bytes", device.memory.count)
            .set("batch_opt", advice_json(device.advice))
            .set("throughput_tokens_per_second", interval_json(device.throughput_tokens_per_second))
            .set("throughput_pct_of_this", 100 * device.share)
            .set("itl_ms", interval_json(device.itl_seconds, 1e3)));
  }
  Json colocated = nullptr;
  if (const auto& both = uses.colocated) {
    colocated = Json::object().set("model", both->model).set("fits", both->fits);
    colocated.set("weights_bytes", std::llround(both->weights_bytes));
    if (both->fits) {
      colocated.set("batch_opt", advice_json(both->advice))
          .set("kv_needed_bytes", std::llround(both->kv_bytes))
          .set("slowdown", both->slowdown)
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
    constexpr size_t kColumns = 8;
    for (Row& row : rows) row.resize(kColumns);
    Html html;
    html.add(html_table(
        {"change", "#B_opt", "#tokens/s", "#gain", "#range", "#ITL ms", "#KV needed", "#free"},
        rows));
    html.raw("<p>").text(what_if_words(answer)).raw("</p>\n");
    sections.push_back({"what-ifs", "What if", html, ""});
  }
  return sections;
}

}  // namespace headroom::report
