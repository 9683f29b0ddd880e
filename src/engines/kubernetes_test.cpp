// tests/python/test_batch_commands.py reads what the program writes with a YAML library.
#include "engines/kubernetes.h"

#include <gtest/gtest.h>

namespace headroom::engines {
namespace {

ServerManifest sample() {
  ServerManifest manifest;
  manifest.server = {.model = "facebook/OPT_1.3b", .max_num_seqs = 96, .kv_cache = Bytes(9)};
  manifest.comment = {"B_opt 96"};
  return manifest;
}

TEST(Kubernetes, OneServer) {
  const std::string yaml = kubernetes_yaml(sample());
  EXPECT_TRUE(yaml.starts_with("# B_opt 96\napiVersion: apps/v1\nkind: Deployment\n"));
  EXPECT_NE(yaml.find("  name: serve-opt-1-3b\n"), std::string::npos);
  EXPECT_NE(yaml.find("            - \"--max-num-seqs\"\n            - \"96\"\n"),
            std::string::npos);
  EXPECT_NE(yaml.find("nvidia.com/gpu: 1\n"), std::string::npos);
  EXPECT_EQ(yaml.find("sharing"), std::string::npos);
}

// The probes and the service reach a pod by its address, where most engines do not listen.
TEST(Kubernetes, EveryEngineListensOnThePodsAddress) {
  for (const EngineNames& names : kEngines) {
    ServerManifest manifest = sample();
    manifest.server.engine = names.engine;
    const std::string yaml = kubernetes_yaml(manifest);
    EXPECT_NE(yaml.find("            - \"--host\"\n            - \"0.0.0.0\"\n"), std::string::npos)
        << names.word;
  }
}

TEST(Kubernetes, AnotherPlatformHasNeitherItsImageNorItsGpu) {
  ServerManifest manifest = sample();
  manifest.gpu_resource.clear();
  manifest.other_platform = "for processors";
  const std::string yaml = kubernetes_yaml(manifest);
  EXPECT_EQ(yaml.find("limits"), std::string::npos);
  EXPECT_NE(yaml.find("IMAGE  # of vLLM 0.32 for processors, on your registry"), std::string::npos);
}

TEST(Kubernetes, SeveralOnOneGpuStartInOrder) {
  ServerManifest manifest = sample();
  manifest.replicas_on_one_gpu = 2;
  const std::string yaml = kubernetes_yaml(manifest);
  EXPECT_NE(yaml.find("kind: StatefulSet\n"), std::string::npos);
  EXPECT_NE(yaml.find("podManagementPolicy: OrderedReady\n"), std::string::npos);
  EXPECT_NE(yaml.find("            replicas: 2\n"), std::string::npos);
}

TEST(Kubernetes, AHostileNameStaysAWord) {
  ServerManifest manifest = sample();
  manifest.server.model = "x\"]\n---\nkind: Evil/\n\xff";
  manifest.comment = {"of\nkind: Evil"};
  manifest.server.engine = ServingEngine::llama_cpp;
  const std::string yaml = kubernetes_yaml(manifest);
  EXPECT_EQ(yaml.find("\nkind: Evil"), std::string::npos);
  EXPECT_NE(yaml.find("serve-model\n"), std::string::npos);
}

}  // namespace
}  // namespace headroom::engines
