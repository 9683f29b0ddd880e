#include "batch/deploy.h"

#include <algorithm>

#include "batch/replication.h"
#include "engines/kubernetes.h"
#include "text/number.h"

namespace headroom::batch {
namespace {

using engines::ServerSetting;

Interval scaled(const Interval& factors, double gain, double base) {
  // One server's worth is never lost by the model: below 1 only what was measured goes.
  return {factors.low * gain * base, factors.expected * gain * base, factors.high * gain * base};
}

bool shares_one_gpu(const BatchAnswer& answer) {
  const timing::DecodeVariant& variant = answer.question.variant;
  return variant.tensor_parallel * variant.pipeline_parallel == 1;
}

// The most replicas that fit under MPS; null where none do or nothing is known.
const Replicas* best_replicas(const BatchAnswer& answer) {
  const Replicas* best = nullptr;
  double most = 1;
  for (const Replicas& replicas : answer.replicas) {
    if (replicas.sharing != Sharing::mps || !replicas.fits.value_or(false)) continue;
    if (replicas.speedup_vs_max.expected > most * 1.01) {
      most = replicas.speedup_vs_max.expected;
      best = &replicas;
    }
  }
  return best;
}

Interval product(const Interval& a, double b) { return {a.low * b, a.expected * b, a.high * b}; }

}  // namespace

Result<void> fill_replicas(const Predicted* predicted, BatchAnswer& answer) {
  const auto& own = answer.question.device;
  if (!shares_one_gpu(answer) || (own && own->vendor == device::Vendor::cpu)) return {};
  if (!answer.host_gap) {
    answer.notes.emplace_back(
        "what replicas would gain depends on how long the GPU waits for the host in each step: "
        "give "
        "--host-gap SHARE (1 - kernel time / wall time of a decode step in a profile), or a MODEL "
        "and "
        "a --device to have it predicted");
    return {};
  }
  const double chosen = answer.curve[*answer.chosen].point.throughput_tokens_per_second.expected;
  const double most = answer.curve[answer.largest].point.throughput_tokens_per_second.expected;
  // What chunked prefill alone gains at the largest limit, as predicted. Errors of the law are
  // alike in both.
  std::optional<double> chunked;
  if (predicted != nullptr) {
    const int64_t largest = answer.curve[answer.largest].point.batch;
    HEADROOM_ASSIGN(const Interval with, predicted->curve().chunked_throughput(largest));
    HEADROOM_ASSIGN(const BatchPoint without, predicted->curve().at(largest));
    chunked = with.expected / without.throughput_tokens_per_second.expected;
  }
  for (int count = 2; count <= answer.question.most_replicas; ++count) {
    const double gain = replication_speedup(count, *answer.host_gap);
    std::optional<bool> fits;
    if (predicted != nullptr && answer.kv.needed && answer.question.device) {
      const device::Device& device = *answer.question.device;
      const int64_t one = predicted->predictor().weights().count + answer.kv.needed->count +
                          device.context.value.expected.count;
      fits = static_cast<double>(one) * count <=
             timing::kMemoryShare * static_cast<double>(device.usable_memory.value.count);
    }
    for (const Sharing sharing : {Sharing::mps, Sharing::time_slicing}) {
      // NVIDIA's alone.
      if (sharing == Sharing::mps && own && own->vendor != device::Vendor::nvidia) continue;
      const Interval& kept = sharing == Sharing::mps ? kMpsKeeps : kTimeSlicingKeeps;
      answer.replicas.push_back({.count = count,
                                 .sharing = sharing,
                                 .speedup_vs_single = scaled(kept, gain, 1),
                                 .speedup_vs_max = scaled(kept, gain, chosen / most),
                                 .speedup_vs_chunked = {},
                                 .fits = fits});
      if (chunked) {
        Replicas& made = answer.replicas.back();
        made.speedup_vs_chunked = product(made.speedup_vs_max, 1 / *chunked);
      }
    }
  }
  return {};
}

void fill_commands(const Predicted* predicted, BatchAnswer& answer) {
  const BatchQuestion& question = answer.question;
  ServerSetting& server = answer.server.emplace();
  server.engine = question.engine;
  server.model = question.model.empty() ? "MODEL" : question.model;
  server.max_num_seqs = *answer.advice.batch;
  server.tensor_parallel = question.variant.tensor_parallel;
  server.pipeline_parallel = question.variant.pipeline_parallel;
  server.kv_cache = answer.kv.needed;
  if (answer.kv.share && answer.kv.whole) server.kv_free_share = std::min(1.0, *answer.kv.share);
  if (predicted != nullptr && answer.kv.needed) {
    server.kv_tokens = static_cast<int64_t>(static_cast<double>(answer.kv.needed->count) /
                                            predicted->bytes_of_token());
  }
  const std::string title(names_of(question.engine).title);
  answer.commands.push_back({"one server at B_opt (" + title + ")", engines::serve_line(server)});
  const Replicas* best = best_replicas(answer);
  if (best == nullptr) return;
  answer.replicas_to_start = best->count;
  int step = 1;
  for (const std::string& line : engines::replica_lines(server, best->count)) {
    answer.commands.push_back(
        {std::to_string(best->count) + " replicas under MPS, step " + std::to_string(step++),
         line});
  }
}

void add_open_load_command(BatchAnswer& answer) {
  const OpenLoadQuestion& question = answer.question.open_load;
  ServerSetting server;
  server.engine = answer.question.engine;
  server.model = answer.question.model.empty() ? "MODEL" : answer.question.model;
  server.max_num_seqs = answer.open_load->limit;
  server.max_num_batched_tokens = question.max_num_batched_tokens;
  server.has_chunked_prefill = question.has_chunked_prefill;
  server.tensor_parallel = answer.question.variant.tensor_parallel;
  server.pipeline_parallel = answer.question.variant.pipeline_parallel;
  const std::string title(names_of(server.engine).title);
  answer.commands.insert(
      answer.commands.begin(),
      Command{"one server for requests as they come (" + title + ")", engines::serve_line(server)});
}

void fill_prices(BatchAnswer& answer) {
  const PriceQuestion& price = answer.question.price;
  if (!price.is_asked()) return;
  const double gpus = static_cast<double>(answer.question.variant.tensor_parallel *
                                          answer.question.variant.pipeline_parallel);
  PriceTable& table = answer.prices.emplace();
  table.machines = machines_of(price);
  table.busy = price.busy;
  const auto add = [&](std::string setting, const Interval& of_server) {
    PriceRow row{std::move(setting), product(of_server, 1 / gpus), {}};
    for (const PricedMachine& machine : table.machines) {
      row.cost_per_million_tokens.push_back(
          cost_of_million(machine.per_hour, price.busy, row.throughput_tokens_per_second));
    }
    table.rows.push_back(std::move(row));
  };
  const BatchPoint& chosen = answer.curve[*answer.chosen].point;
  add("B_opt " + std::to_string(chosen.batch), chosen.throughput_tokens_per_second);
  if (*answer.chosen != answer.largest) {
    const BatchPoint& most = answer.curve[answer.largest].point;
    add("batch " + std::to_string(most.batch), most.throughput_tokens_per_second);
  }
  for (const Replicas& replicas : answer.replicas) {
    if (replicas.sharing != Sharing::mps || !replicas.fits.value_or(true)) continue;
    const Interval& rate = chosen.throughput_tokens_per_second;
    const Interval& gain = replicas.speedup_vs_single;
    add(std::to_string(replicas.count) + " replicas at B_opt, MPS",
        {rate.low * gain.low, rate.expected * gain.expected, rate.high * gain.high});
  }
  if (answer.open_load && answer.open_load->highest_rate.low > 0) {
    add("requests as they come, highest rate",
        product(answer.open_load->highest_rate, answer.workload.output_mean));
  }
}

Result<EmitRequest> parse_emit(std::string_view words) {
  const size_t equals = std::min(words.find('='), words.size());
  EmitRequest request{std::string(words.substr(0, equals)), {}};
  if (equals < words.size()) request.file = std::string(words.substr(equals + 1));
  const bool is_known = request.kind == "kubernetes" || request.kind == "shell";
  if (is_known && !request.file.empty()) return request;
  return Error{ErrorCode::usage, "'" + std::string(words.substr(0, 80)) + "' is nothing to write",
               "--emit", "kubernetes=serve.yaml, or shell=serve.sh"};
}

Result<std::string> emitted(const BatchAnswer& answer, const EmitRequest& request) {
  if (!answer.server) {
    return Error{ErrorCode::usage, "no batch meets the target: there is nothing to start", "--emit",
                 "another --slo"};
  }
  const int count = answer.replicas_to_start;
  const BatchPoint& point = answer.curve[*answer.chosen].point;
  std::string why = "B_opt " + std::to_string(point.batch);
  why += text::formatted(": %.0f tokens/s, ", point.throughput_tokens_per_second.expected);
  why += text::formatted("%.3g ms between tokens, ", point.itl_seconds.expected * 1e3);
  why += name_of(point.provenance);
  if (request.kind == "kubernetes") {
    engines::ServerManifest manifest;
    manifest.server = *answer.server;
    manifest.replicas_on_one_gpu = count;
    const auto& device = answer.question.device;
    if (device && device->vendor == device::Vendor::amd) manifest.gpu_resource = "amd.com/gpu";
    manifest.comment = {"Written by headroom batch.", why};
    return engines::kubernetes_yaml(manifest);
  }
  std::string script = "#!/bin/sh\n# Written by headroom batch. " + why + "\n";
  if (count < 2) return script + "exec " + engines::serve_line(*answer.server) + "\n";
  auto lines = engines::replica_lines(*answer.server, count);
  lines.pop_back();
  script += "set -e\ntrap 'kill $(jobs -p); echo quit | nvidia-cuda-mps-control' EXIT INT TERM\n";
  for (const std::string& line : lines) script += line + "\n";
  return script + "wait\n";
}

}  // namespace headroom::batch
