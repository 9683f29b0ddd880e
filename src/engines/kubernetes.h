// A Kubernetes manifest that starts a serving engine: one server on its GPUs, or several that share
// one GPU.
//
// Those that share a GPU are a StatefulSet, whose pods start one after another, as
// engines/serving_engine.h starts them; how a node's GPU is offered several times is the device
// plugin's own setting, which stands in a ConfigMap beside it. Words from outside are double-quoted
// as YAML takes them from JSON. The server listens on all of the pod's addresses. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "engines/serving_engine.h"

namespace headroom::engines {

struct ServerManifest {
  ServerSetting server;
  int replicas_on_one_gpu = 1;
  // As the vendor's device plugin names it; empty: no GPU.
  std::string gpu_resource = "nvidia.com/gpu";
  // What the engine's own image, which is for NVIDIA's GPUs, is not for: "for ROCm".
  std::string other_platform = {};
  std::vector<std::string> comment;  // lines at its top
};

// REQUIRES: replicas_on_one_gpu >= 1.
[[nodiscard]] std::string kubernetes_yaml(const ServerManifest& manifest);

}  // namespace headroom::engines
