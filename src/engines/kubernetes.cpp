#include "engines/kubernetes.h"

#include "base/check.h"
#include "text/json.h"
#include "text/utf8.h"

namespace headroom::engines {
namespace {

// A name as Kubernetes takes it: small letters, digits and dashes, 63 at most, a letter first.
std::string label_of(const std::string& model) {
  constexpr size_t kMost = 40;
  std::string label;
  for (const char c : model.substr(model.rfind('/') + 1)) {
    const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool is_kept = (small >= 'a' && small <= 'z') || (small >= '0' && small <= '9');
    if (is_kept) {
      label += small;
    } else if (!label.empty() && label.back() != '-') {
      label += '-';
    }
    if (label.size() == kMost) break;
  }
  while (!label.empty() && label.back() == '-') label.pop_back();
  return "serve-" + (label.empty() ? std::string("model") : label);
}

std::string arguments_yaml(const std::vector<std::string>& words) {
  std::string yaml = "          command: [" + text::quote_json(words.front()) + "]\n";
  yaml += "          args:\n";
  for (size_t i = 1; i < words.size(); ++i) {
    yaml += "            - " + text::quote_json(words[i]) + "\n";
  }
  return yaml;
}

// The pod: its GPUs, its probes, and shared memory for the ranks of a server of several GPUs.
std::string pod_yaml(const ServerManifest& manifest) {
  ServerSetting server = manifest.server;
  server.host = "0.0.0.0";  // the probes and the service come from outside of the pod
  const std::string image = image_of(server);
  const std::string port = std::to_string(server.port);
  std::string yaml = "    spec:\n      containers:\n        - name: server\n";
  if (image.empty() || !manifest.other_platform.empty()) {
    yaml += "          image: IMAGE  # of " + title_of(server) +
            (manifest.other_platform.empty() ? "" : " " + manifest.other_platform) +
            ", on your registry\n";
  } else {
    yaml += "          image: " + image + "\n";
  }
  yaml += arguments_yaml(serve_words(server));
  yaml += "          ports:\n            - containerPort: " + port + "\n";
  // Reading the weights takes a while: half an hour at most.
  for (const char* probe : {"startupProbe", "readinessProbe"}) {
    yaml += "          " + std::string(probe) + ":\n            httpGet:\n";
    yaml += "              path: /health\n              port: " + port + "\n";
    yaml += "            periodSeconds: 5\n";
    if (probe[0] == 's') yaml += "            failureThreshold: 360\n";
  }
  if (!manifest.gpu_resource.empty()) {
    const int64_t gpus = server.tensor_parallel * server.pipeline_parallel;
    yaml += "          resources:\n            limits:\n              " + manifest.gpu_resource +
            ": " + std::to_string(gpus) + "\n";
  }
  yaml += "          volumeMounts:\n            - name: shm\n              mountPath: /dev/shm\n";
  yaml += "      volumes:\n        - name: shm\n          emptyDir:\n            medium: Memory\n";
  return yaml;
}

std::string service_yaml(const std::string& name, int port) {
  return "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: " + name +
         "\nspec:\n  selector:\n    app: " + name +
         "\n  ports:\n    - port: " + std::to_string(port) + "\n";
}

// For NVIDIA's device plugin: each GPU of a node as so many, under MPS.
std::string sharing_yaml(const std::string& name, int count) {
  return "---\n# For NVIDIA's device plugin (its Helm chart: --set config.name=" + name +
         "-sharing): every GPU of\n# its nodes is offered so many times, under MPS.\n"
         "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " +
         name +
         "-sharing\ndata:\n  config: |\n    version: v1\n    sharing:\n      mps:\n"
         "        resources:\n          - name: nvidia.com/gpu\n            replicas: " +
         std::to_string(count) + "\n";
}

}  // namespace

std::string kubernetes_yaml(const ServerManifest& manifest) {
  HEADROOM_CHECK(manifest.replicas_on_one_gpu >= 1, "servers");
  const int count = manifest.replicas_on_one_gpu;
  const std::string name = label_of(manifest.server.model);
  std::string yaml;
  for (const std::string& line : manifest.comment) yaml += "# " + text::printable(line) + "\n";
  yaml += "apiVersion: apps/v1\nkind: ";
  yaml += count > 1 ? "StatefulSet" : "Deployment";
  yaml += "\nmetadata:\n  name: " + name + "\nspec:\n  replicas: " + std::to_string(count) + "\n";
  if (count > 1) yaml += "  serviceName: " + name + "\n  podManagementPolicy: OrderedReady\n";
  yaml += "  selector:\n    matchLabels:\n      app: " + name + "\n";
  yaml += "  template:\n    metadata:\n      labels:\n        app: " + name + "\n";
  yaml += pod_yaml(manifest);
  yaml += service_yaml(name, manifest.server.port);
  if (count > 1) yaml += sharing_yaml(name, count);
  return yaml;
}

}  // namespace headroom::engines
