#include "fit/search/network.h"

#include <algorithm>
#include <string>

#include "text/parse_number.h"
#include "text/quantity.h"

namespace headroom::fit {

namespace {

constexpr double kMostGigabits = 1e6;
constexpr const char* kLink = "ib-400g";

std::string counted(int64_t count, const char* what) {
  std::string words = std::to_string(count);
  words += what;
  return words;
}

}  // namespace

Result<BytesPerSecond> network_rate(std::string_view link) {
  if (link.ends_with("/s")) return text::parse_bytes_per_second(link, "--link");
  const size_t dash = link.rfind('-');
  std::string_view rate = dash == std::string_view::npos ? link : link.substr(dash + 1);
  if (rate.ends_with('g') || rate.ends_with('G')) {
    rate.remove_suffix(1);
    const auto gigabits = text::parse_number<double>(rate);
    if (gigabits && *gigabits > 0 && *gigabits <= kMostGigabits) {
      return BytesPerSecond{*gigabits * 1e9 / 8};
    }
  }
  return Error{ErrorCode::usage, "'" + std::string(link.substr(0, 80)) + "' says no rate", "--link",
               "ib-400g, roce-100g (Gbit/s of one GPU), or a bandwidth such as 50GB/s"};
}

Result<timing::Cluster> cluster_of(const FitQuestion& question, int64_t devices) {
  timing::Cluster cluster;
  cluster.devices_per_node = devices;
  if (question.nodes == 1) return cluster;
  if (devices % question.nodes != 0) {
    return Error{ErrorCode::usage,
                 counted(devices, " GPUs are not spread evenly over ") +
                     counted(question.nodes, " machines"),
                 "--nodes", "a divisor of the GPUs"};
  }
  if (question.link.empty()) {
    return Error{ErrorCode::usage, "nothing says how fast one machine sends to another", "--nodes",
                 "add --link ib-400g, say"};
  }
  cluster.devices_per_node = devices / question.nodes;
  HEADROOM_ASSIGN(cluster.network, network_rate(question.link));
  return cluster;
}

timing::Division division_of(const FitQuestion& question) {
  if (!question.megatron) {
    // Ranks that share a stage are neighbours. Where a stage sends to another machine, it sets the
    // pace: all are taken to.
    const int64_t in_a_stage = devices_of(question) / question.stages;
    const int64_t in_a_machine = devices_of(question) / question.nodes;
    return {.ranks = question.ranks * question.context_ranks,
            .replicas = question.replicas,
            .tensor_ranks = question.tensor_ranks,
            .context_ranks = question.context_ranks,
            .stages_apart = question.nodes > 1 ? std::max(in_a_stage, in_a_machine) : in_a_stage,
            .expert_ranks = question.expert_ranks};
  }
  // Megatron-LM's order of ranks: tensor, context, data, and stages apart the furthest.
  const MegatronSetting& setting = *question.megatron;
  return {.tensor_ranks = setting.stage.rank.tensor,
          .context_ranks = setting.stage.rank.context,
          .stages_apart = question.ranks / setting.stage.rank.pipeline};
}

Result<FitQuestion> with_accumulation(FitQuestion question, int64_t devices) {
  if (!question.global_batch) return question;
  if (question.given.contains("grad-accum")) {
    return Error{ErrorCode::usage, "says what --grad-accum says", "--global-batch",
                 "leave one of them out"};
  }
  const auto at_once = checked_multiply(question.batch, devices);
  if (!at_once || *question.global_batch % *at_once != 0) {
    return Error{ErrorCode::usage,
                 counted(*question.global_batch, " sequences are no multiple of ") +
                     counted(devices, " GPUs x --batch ") + counted(question.batch, ""),
                 "--global-batch", "a multiple of both"};
  }
  question.grad_accum = *question.global_batch / *at_once;
  return question;
}

Result<FitQuestion> with_accumulation_of_a_search(const FitQuestion& question, int64_t devices) {
  auto of_each = with_accumulation(question, devices);
  if (of_each) return of_each;
  HEADROOM_ASSIGN(FitQuestion together, with_accumulation(question, 1));
  together.grad_accum = 1;
  return together;
}

std::optional<std::string> assume_machines(int64_t devices, FitQuestion& question) {
  const bool is_said = question.nodes > 1 || question.given.contains("nodes");
  if (devices <= kMachine || is_said) return std::nullopt;
  constexpr const char* kNobodySays = ": nobody says (--nodes, --link)";
  if (devices % kMachine != 0) {
    return counted(devices, " GPUs are in one machine") + kNobodySays;
  }
  question.nodes = devices / kMachine;
  std::string words = counted(question.nodes, " machines of eight");
  if (question.link.empty()) {
    question.link = kLink;
    words += ", joined by " + question.link + " a GPU";
  }
  return words + kNobodySays;
}

}  // namespace headroom::fit
