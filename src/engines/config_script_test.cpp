#include "engines/config_script.h"

#include <gtest/gtest.h>

namespace headroom::engines {
namespace {

Result<text::Json> read(const std::string& script, const std::string& wanted = "a.yaml") {
  EXPECT_TRUE(is_config_script(script)) << script;
  return arguments_of_config_script(script, "run.sh", [&](const std::string& name) {
    EXPECT_EQ(name, wanted);
    return text::parse_json(R"({"stage": "sft"})", name);
  });
}

TEST(ConfigScript, TheFileAndItsLauncher) {
  EXPECT_EQ(read("accelerate launch \\\n  --config_file f.yaml --num_processes 4 \\\n"
                 "  src/train.py a.yaml\n")
                ->dump(),
            R"({"stage":"sft","config_file":"f.yaml","num_processes":"4"})");
  EXPECT_EQ(read("export NPROC_PER_NODE=8\nFORCE_TORCHRUN=1 NNODES=2 llamafactory-cli train a.yaml")
                ->dump(),
            R"({"stage":"sft","nproc_per_node":"8","nnodes":"2"})");
  EXPECT_EQ(read("CUDA_VISIBLE_DEVICES=0,1,3 llamafactory-cli train a.yaml\n")->dump(),
            R"({"stage":"sft","nproc_per_node":3})");
  EXPECT_EQ(read("axolotl train a.yaml\n")->dump(), R"({"stage":"sft"})");
  EXPECT_EQ(read("F=a.yaml\nllamafactory-cli train $F\n")->dump(), R"({"stage":"sft"})");
  EXPECT_EQ(read("torchrun --nproc-per-node=2 -m axolotl.cli.train x/a.yml\n", "x/a.yml")->dump(),
            R"({"stage":"sft","nproc_per_node":"2"})");
}

TEST(ConfigScript, WhatChangesTheFileIsTakenOrRefused) {
  EXPECT_EQ(read("llamafactory-cli train a.yaml cutoff_len=4096 stage=pt\n")->dump(),
            R"({"stage":"pt","cutoff_len":"4096"})");
  for (const char* refused : {"axolotl train a.yaml --micro-batch-size 4\n",
                              "llamafactory-cli train a.yaml stage=pt fsdp_config.version=1\n"}) {
    EXPECT_FALSE(read(refused)) << refused;
  }
  EXPECT_EQ(read("llamafactory-cli train a.yaml output_dir=out/v1.5\n")->dump(),
            R"({"stage":"sft","output_dir":"out/v1.5"})");
}

TEST(ConfigScript, OthersAreNone) {
  for (const char* script :
       {"llamafactory-cli export a.yaml", "llamafactory-cli train --stage sft", "cat a.yaml",
        "base_model: a/b\n# axolotl train this.yaml\n", "python train.py --config a.yaml"}) {
    EXPECT_FALSE(is_config_script(script)) << script;
  }
}

}  // namespace
}  // namespace headroom::engines
