#include "batch/deploy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>

#include "batch/advisor.h"
#include "batch/checkpoint.h"
#include "batch/open_load.h"
#include "batch/replicas.h"
#include "model/positions.h"
#include "text/number.h"

namespace headroom::batch {
namespace {

using engines::ServerSetting;
using engines::ServingEngine;

// What all servers of the question have alike.
ServerSetting setting_of(const BatchQuestion& question) {
  ServerSetting server;
  server.engine = question.engine;
  server.version = question.engine_version;
  server.model = question.model.empty() ? "MODEL" : question.model;
  server.dtype = question.dtype;
  // llama.cpp's file is no such checkpoint.
  if (question.engine == ServingEngine::llama_cpp) {
    server.weight_type = question.checkpoint_type.value_or(question.weight_type);
  } else if (!question.checkpoint_type) {
    server.weight_type = question.weight_type;
  }
  server.cache_type = question.cache_type;
  server.has_gpu = !question.device || question.device->vendor != device::Vendor::cpu;
  server.tensor_parallel = question.variant.tensor_parallel;
  server.pipeline_parallel = question.variant.pipeline_parallel;
  return server;
}

void add_notes(const ServerSetting& server, BatchAnswer& answer) {
  for (std::string& note : notes_of(server)) {
    if (std::ranges::find(answer.notes, note) == answer.notes.end()) {
      answer.notes.push_back(std::move(note));
    }
  }
}

// What a server takes of a device's memory.
struct Taken {
  Bytes weights;
  Bytes cache;
  int64_t cache_tokens = 0;
};

void set_memory(const Taken& taken, const device::Device& device, ServerSetting& server) {
  server.kv_cache = taken.cache;
  server.kv_tokens = taken.cache_tokens;
  server.needs = taken.weights + taken.cache + device.context.value.expected;
  server.gpu = device.usable_memory.value;
  // TensorRT-LLM's share is of what is free once the weights are there.
  const auto free =
      static_cast<double>(server.gpu->count - server.needs->count + taken.cache.count);
  if (free > 0) {
    server.kv_free_share = std::min(1.0, static_cast<double>(taken.cache.count) / free);
  }
}

// vLLM does not start where its cache holds less than one sequence of the model's whole length:
// then it is told of what the cache holds.
Result<void> set_length(const text::JsonView& config, int64_t cache_tokens, ServerSetting& server,
                        BatchAnswer& answer) {
  if (server.engine != ServingEngine::vllm) return {};
  HEADROOM_ASSIGN(const std::optional<int64_t> whole, model::positions_of(config));
  constexpr auto kBlock = static_cast<int64_t>(kKvBlock);
  const int64_t most = cache_tokens / kBlock * kBlock;
  if (!whole || most >= *whole || most < kBlock) return {};
  server.max_model_len = most;
  answer.notes.push_back("vLLM starts with a cache of " + std::to_string(cache_tokens) +
                         " tokens only if no request may be as long as the model could have it (" +
                         std::to_string(*whole) +
                         "): --max-model-len is what the cache holds, and longer requests are "
                         "refused");
  return {};
}

// Of the second model, where both meet their targets.
Result<void> set_second_server(const Companion& companion, BatchAnswer& answer) {
  const std::optional<Colocated>& both = answer.freed.colocated;
  if (!both || !both->fits || !both->first_meets_target.value_or(true)) return {};
  HEADROOM_ASSIGN(const BatchQuestion own, question_of_second(companion.config, answer.question));
  ServerSetting& server = answer.second_server.emplace(setting_of(own));
  server.model = both->model;
  server.max_num_seqs = *both->advice.batch;
  const auto tokens = static_cast<int64_t>(both->kv_tokens);
  set_memory(
      {Bytes(std::llround(both->weights_bytes)), Bytes(std::llround(both->kv_bytes)), tokens},
      *answer.question.device, server);
  HEADROOM_TRY(set_length(companion.config, tokens, server, answer));
  add_notes(server, answer);
  return {};
}

void add_shared_commands(std::span<const ServerSetting> servers, const std::string& title,
                         BatchAnswer& answer) {
  int step = 1;
  for (const std::string& line : engines::shared_gpu_lines(servers)) {
    answer.commands.push_back({title + " under MPS, step " + std::to_string(step++), line});
  }
}

}  // namespace

Result<void> check_engine(const BatchQuestion& question) {
  const auto& device = question.device;
  const timing::DecodeVariant& variant = question.variant;
  const auto refused = [&](std::string words, std::string hint) {
    return Error{ErrorCode::usage, std::move(words),
                 "--engine " + std::string(names_of(question.engine).word), std::move(hint)};
  };
  if (question.engine == ServingEngine::tensorrt_llm && device &&
      device->vendor != device::Vendor::nvidia) {
    return refused("it runs on NVIDIA's GPUs alone", "vllm, sglang or llama.cpp");
  }
  const auto& most = names_of(question.engine).most_sequences;
  if (most && question.open_load.limit.value_or(1) > *most) {
    return refused("it takes no more than " + std::to_string(*most) + " sequences at once",
                   "--limit " + std::to_string(*most) + " or less");
  }
  if (question.engine != ServingEngine::llama_cpp) return {};
  if (variant.tensor_parallel * variant.pipeline_parallel > 1) {
    return refused("how it divides a model among GPUs is not modelled",
                   "vllm, sglang or tensorrt-llm; or neither --tp nor --pp");
  }
  if (!question.open_load.has_chunked_prefill) {
    return refused("it always reads prompts in pieces", "it without --no-chunked-prefill");
  }
  return {};
}

Result<void> fill_commands(const Predicted* predicted, const text::JsonView* config,
                           const Companion* companion, BatchAnswer& answer) {
  ServerSetting& server = answer.server.emplace(setting_of(answer.question));
  server.max_num_seqs = *answer.advice.batch;
  if (memory_of_server(predicted, answer)) {
    const Bytes cache = *answer.kv.needed;
    const double tokens = static_cast<double>(cache.count) / predicted->bytes_of_token();
    set_memory({predicted->predictor().weights(), cache, static_cast<int64_t>(tokens)},
               *answer.question.device, server);
  }
  if (config != nullptr && server.kv_tokens) {
    HEADROOM_TRY(set_length(*config, *server.kv_tokens, server, answer));
  }
  add_notes(server, answer);
  const std::string title = title_of(server);
  answer.commands.push_back({"one server at B_opt (" + title + ")", engines::serve_line(server)});
  if (const Replicas* best = replicas_to_start(answer)) {
    const std::vector<ServerSetting> alike(static_cast<size_t>(best->count), server);
    add_shared_commands(alike, std::to_string(best->count) + " replicas", answer);
  }
  if (companion == nullptr) return {};
  HEADROOM_TRY(set_second_server(*companion, answer));
  if (!answer.second_server) return {};
  add_shared_commands(std::array{server, *answer.second_server}, "both models", answer);
  return {};
}

void note_engine_law(const Predicted& predicted, BatchAnswer& answer) {
  const timing::Engine& law = predicted.predictor().engine();
  if (answer.question.engine != ServingEngine::llama_cpp || !law.device.empty()) return;
  answer.notes.push_back("speeds are by the law " + law.name +
                         ", which is of other engines: nothing of llama.cpp's server was in it");
}

Result<void> add_open_load_command(const Predicted* predicted, const text::JsonView* config,
                                   BatchAnswer& answer) {
  const OpenLoadAnswer& open = *answer.open_load;
  // None keeps the targets: there is nothing to start.
  if (!open.targets.empty() && !(open.highest_rate.expected > 0)) return {};
  const OpenLoadQuestion& question = answer.question.open_load;
  ServerSetting& server = answer.open_server.emplace(setting_of(answer.question));
  server.max_num_seqs = open.limit;
  server.max_num_batched_tokens = question.max_num_batched_tokens;
  server.has_chunked_prefill = question.has_chunked_prefill;
  // Others take what the weights leave; llama.cpp's is told, or has one model's context for all.
  if (predicted != nullptr && predicted->cache().count > 0) {
    const auto tokens = static_cast<int64_t>(predicted->cache_tokens());
    if (server.engine == ServingEngine::llama_cpp) server.kv_tokens = tokens;
    if (config != nullptr) HEADROOM_TRY(set_length(*config, tokens, server, answer));
  }
  add_notes(server, answer);
  const std::string title = title_of(server);
  answer.commands.insert(
      answer.commands.begin(),
      Command{"one server for requests as they come (" + title + ")", engines::serve_line(server)});
  return {};
}

void fill_prices(BatchAnswer& answer) {
  const PriceQuestion& price = answer.question.price;
  if (!price.is_asked()) return;
  const double gpus = static_cast<double>(answer.question.variant.tensor_parallel *
                                          answer.question.variant.pipeline_parallel);
  PriceTable& table = answer.prices.emplace();
  table.machines = machines_of(price);
  table.busy = price.busy;
  const auto add = [&](std::string setting, const Interval& of_server, std::optional<bool> meets) {
    PriceRow row{std::move(setting), product(of_server, 1 / gpus), {}, meets};
    for (const PricedMachine& machine : table.machines) {
      row.cost_per_million_tokens.push_back(
          cost_of_million(machine.per_hour, price.busy, row.throughput_tokens_per_second));
    }
    table.rows.push_back(std::move(row));
  };
  const auto add_point = [&](std::string name, const BatchPoint& point) {
    add(std::move(name) + std::to_string(point.batch), point.throughput_tokens_per_second,
        meets(point.itl_seconds.expected, answer.itl_target_seconds));
  };
  add_point("B_opt ", answer.curve[*answer.chosen].point);
  if (*answer.chosen != answer.largest) add_point("batch ", answer.curve[answer.largest].point);
  for (const Replicas& replicas : answer.replicas) {
    if (replicas.sharing != Sharing::mps || !replicas.fits.value_or(true)) continue;
    add(std::to_string(replicas.count) + " replicas at B_opt, MPS", throughput_of(replicas, answer),
        replicas.meets_target);
  }
  // At the rates that were asked for: a server that is not full costs as much an hour.
  const bool has_rates = answer.open_load && !answer.question.open_load.rates.empty();
  for (const OpenLoadRow& row : has_rates ? answer.open_load->rows : std::vector<OpenLoadRow>()) {
    if (!(row.throughput_tokens_per_second.low > 0)) continue;
    add(text::formatted("%.4g requests/s", row.requests_per_second),
        row.throughput_tokens_per_second,
        row.at_targets.empty() ? std::nullopt : std::optional(row.kept == Kept::yes));
  }
  if (answer.open_load && answer.open_load->highest_rate.low > 0) {
    add("requests as they come, highest rate",
        product(answer.open_load->highest_rate, answer.workload.output_mean), std::nullopt);
  }
}

}  // namespace headroom::batch
