#include "cli/batch_flags.h"

#include <algorithm>

#include "batch/target.h"

namespace headroom::cli {
namespace {

// Names with blanks between them: flags, or what several of them come to (Said::has).
struct Rule {
  std::string_view flags;    // each of them
  std::string_view beside;   // where all of these are there
  std::string_view needs;    // without any of these
  std::string_view clashes;  // or with one of these
  std::string_view words;
  std::string_view hint;
};

constexpr std::string_view kUrl = "--url http://localhost:8000";
constexpr std::string_view kOfCurve = "MODEL and --device, --points, or --url without --rate";

constexpr Rule kRules[] = {
    {"url served-model save-points batches prefix-hit window time-limit seed html output rate emit "
     "price "
     "engine colocate most-replicas",
     "watch", "", "watch", "--watch has no use for it",
     "--watch reads the metrics of a server at work, and says what it finds line by line; --url "
     "measures one"},
    {"every for metrics-file on-change", "", "watch", "", "it is for watching a server",
     "--watch http://localhost:8000"},
    {"served-model save-points batches prefix-hit time-limit", "", "url", "",
     "it is for measuring a server", kUrl},
    {"most-batch", "", "url watch", "", "it is for measuring a server", kUrl},
    {"window", "", "url rate", "", "it is for measuring a server", kUrl},
    {"save-points most-batch batches", "url rate", "", "rate", "it is for measuring a closed loop",
     "--rate measures at that rate; without it as many are in flight as a batch has"},
    {"time-limit", "url rate", "search", "", "the rates of a list are measured all",
     "--rate search, which ends in time"},
    {"emit colocate", "url rate", "", "rate", "a server at a rate says nothing of it",
     "it without --rate"},
    {"points", "url", "rate", "url", "--url measures points and --points gives them",
     "one of them; --save-points FILE keeps what --url measures"},
    {"most-batch", "listed-batches", "", "batches", "--batches names them all",
     "one of them; --batches all goes up to --most-batch"},
    {"kv-dtype quantize", "", "prediction", "",
     "it is for what is predicted, not for what was measured", "MODEL and --device"},
    {"input-tokens output-tokens length-variation requests", "", "prediction url open-load", "",
     "points were measured with requests of their own: it is for what is predicted or simulated",
     "MODEL and --device, --rate 4, or --slo with percentiles"},
    {"colocate", "", "prediction", "", "a second model is predicted beside a first",
     "MODEL and --device, too"},
    {"emit price engine", "", "curve", "", "it is of the server at B_opt, which is not asked for",
     kOfCurve},
    {"emit", "", "MODEL url", "", "which model is to be served?", "MODEL beside --points"},
};

bool is_any(std::string_view names, const auto& is) {
  while (!names.empty()) {
    const size_t blank = std::min(names.find(' '), names.size());
    if (is(names.substr(0, blank))) return true;
    names.remove_prefix(std::min(blank + 1, names.size()));
  }
  return false;
}

class Said {
 public:
  explicit Said(const Words& words) : words_(words) {}

  [[nodiscard]] bool has(std::string_view name) const {
    const bool is_measured = words_.has("points") || words_.has("url");
    if (name == "MODEL") return !words_.operands.empty();
    if (name == "prediction") return has("MODEL") && (words_.has("device") || !is_measured);
    if (name == "curve") {
      return has("prediction") || words_.has("points") ||
             (words_.has("url") && !words_.has("rate")) || !is_measured;
    }
    if (name == "open-load") {
      if (words_.has("rate")) return true;
      const auto slo = batch::parse_slo(words_.value("slo"));
      return slo && !slo->latencies.empty();
    }
    if (name == "search") return words_.value("rate") == "search";
    if (name == "listed-batches") return words_.has("batches") && words_.value("batches") != "all";
    return words_.has(name);
  }
  [[nodiscard]] bool has_any(std::string_view names) const {
    return is_any(names, [&](std::string_view name) { return has(name); });
  }
  [[nodiscard]] bool has_all(std::string_view names) const {
    return !is_any(names, [&](std::string_view name) { return !has(name); });
  }
  [[nodiscard]] bool breaks(const Rule& rule) const {
    if (!has_all(rule.beside)) return false;
    if (!rule.needs.empty()) return !has_any(rule.needs);
    return has_any(rule.clashes);
  }

 private:
  const Words& words_;
};

}  // namespace

Result<void> check_batch_flags(const Words& words) {
  const Said said(words);
  for (const Rule& rule : kRules) {
    if (!said.breaks(rule)) continue;
    std::string flag;
    is_any(rule.flags, [&](std::string_view name) {
      if (words.has(name)) flag = "--" + std::string(name);
      return !flag.empty();
    });
    if (flag.empty()) continue;
    return Error{ErrorCode::usage, std::string(rule.words), std::move(flag),
                 std::string(rule.hint)};
  }
  return {};
}

}  // namespace headroom::cli
