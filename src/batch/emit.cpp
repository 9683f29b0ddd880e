#include "batch/emit.h"

#include <algorithm>

#include "batch/replicas.h"
#include "engines/kubernetes.h"
#include "text/number.h"
#include "text/utf8.h"

namespace headroom::batch {
namespace {

using engines::ServerSetting;

// What the first line names: requests as they come where they were asked for, else B_opt, beside a
// second model where one was asked for and has its place, or replicas of it where they are worth
// it.
struct Started {
  std::vector<ServerSetting> servers;  // on one GPU, where there is more than one
  std::string why;
};

std::string figures(const Interval& rate, const Interval& itl, Provenance provenance) {
  return text::formatted(": %.0f tokens/s, ", rate.expected) +
         text::formatted("%.3g ms between tokens, ", itl.expected * 1e3) +
         std::string(name_of(provenance));
}

Started started(const BatchAnswer& answer) {
  if (answer.open_server) {
    std::string why = "Requests as they come, limit " + std::to_string(answer.open_load->limit);
    const Interval& rate = answer.open_load->highest_rate;
    if (rate.expected > 0) {
      why += text::formatted(": up to %.3g requests/s keep the targets", rate.expected);
    }
    if (answer.question.open_load.speculation.is_used()) {
      why += " with speculation, which this does not turn on";
    }
    return {{*answer.open_server}, why + ", simulated"};
  }
  const BatchPoint& point = answer.curve[*answer.chosen].point;
  const std::string opt = "B_opt " + std::to_string(point.batch);
  if (answer.second_server) {
    const Colocated& both = *answer.freed.colocated;
    const double itl = both.itl_seconds;
    return {{*answer.server, *answer.second_server},
            opt + " beside " + text::printable(both.model) + " at " +
                std::to_string(*both.advice.batch) + " under MPS" +
                figures(both.throughput_tokens_per_second, Interval{itl, itl, itl},
                        Provenance::extrapolated)};
  }
  const Replicas* replicas = replicas_to_start(answer);
  if (replicas == nullptr) {
    return {{*answer.server},
            opt + figures(point.throughput_tokens_per_second, point.itl_seconds, point.provenance)};
  }
  return {std::vector(static_cast<size_t>(replicas->count), *answer.server),
          std::to_string(replicas->count) + " replicas under MPS, each at " + opt + ", together" +
              figures(throughput_of(*replicas, answer), replicas->itl_seconds,
                      Provenance::extrapolated)};
}

Result<std::string> manifest_of(const Started& start, const BatchAnswer& answer) {
  const ServerSetting& server = start.servers.front();
  const size_t count = start.servers.size();
  if (answer.second_server && count > 1) {
    return Error{ErrorCode::usage,
                 "two models on one GPU start one after another, and the pods of a StatefulSet are "
                 "alike",
                 "--emit", "shell=FILE.sh; or no --colocate"};
  }
  if (count > 1 && server.engine == engines::ServingEngine::tensorrt_llm) {
    return Error{
        ErrorCode::usage,
        "servers of TensorRT-LLM on one GPU each take another share of what is left of it, "
        "and the pods of a StatefulSet are alike",
        "--emit", "shell=FILE.sh; or --most-replicas 1"};
  }
  engines::ServerManifest manifest;
  manifest.server = count > 1 ? engines::on_shared_gpu(start.servers, 0) : server;
  manifest.replicas_on_one_gpu = static_cast<int>(count);
  const auto& device = answer.question.device;
  if (device && device->vendor == device::Vendor::amd) {
    manifest.gpu_resource = "amd.com/gpu";
    manifest.other_platform = "for ROCm";
  }
  if (device && device->vendor == device::Vendor::cpu) {
    manifest.gpu_resource.clear();
    manifest.other_platform = "for processors";
  }
  manifest.comment = {"Written by headroom batch.", start.why};
  return engines::kubernetes_yaml(manifest);
}

// Ends the script where another version is installed: its flags, and its speed, would be others.
std::string version_check(const ServerSetting& server) {
  if (server.version.empty()) return {};
  return "python3 -c 'import importlib.metadata as m, sys; "
         "sys.exit(m.version(\"vllm\").split(\"+\")[0] "
         "!= \"" +
         server.version + "\")' || {\n  echo '" + title_of(server) +
         " is needed: pip install vllm==" + server.version + "' >&2\n  exit 1\n}\n";
}

// A server that dies ends the script, and with it the others and the daemon; so does a signal.
std::string script_of(const Started& start) {
  std::string script = "#!/bin/sh\n# Written by headroom batch. " + start.why + "\n";
  script += version_check(start.servers.front());
  if (start.servers.size() < 2) {
    return script + "exec " + engines::serve_line(start.servers.front()) + "\n";
  }
  auto lines = engines::shared_gpu_lines(start.servers);
  lines.pop_back();
  script +=
      "set -e\n"
      "pids= daemon=\n"
      "trap 'kill $pids $! 2>/dev/null || :; "
      "if [ -n \"$daemon\" ]; then echo quit | nvidia-cuda-mps-control; fi' EXIT\n"
      "trap 'exit 130' INT\n"
      "trap 'exit 143' TERM\n"
      "# A daemon that runs already is used, and left running.\n"
      "if " +
      lines.front() +
      "; then daemon=ours; else echo get_server_list | nvidia-cuda-mps-control; fi\n";
  for (size_t i = 1; i < lines.size(); ++i) {
    script += lines[i] + "\npids=\"$pids $!\"\nkill -0 $!\n";
  }
  return script + "wait\n";
}

}  // namespace

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
  HEADROOM_CHECK(answer.open_server || answer.server, "a target that is met has a server");
  const Started start = started(answer);
  if (request.kind == "kubernetes") return manifest_of(start, answer);
  return script_of(start);
}

}  // namespace headroom::batch
