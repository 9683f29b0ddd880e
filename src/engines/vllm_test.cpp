#include "engines/vllm.h"

#include <gtest/gtest.h>

namespace headroom::engines {
namespace {

TEST(Vllm, OneServer) {
  const VllmServer server{
      .model = "facebook/opt-1.3b", .max_num_seqs = 96, .kv_cache = Bytes(9'000'000'000)};
  EXPECT_EQ(serve_line(server),
            "vllm serve facebook/opt-1.3b --max-num-seqs 96 "
            "--kv-cache-memory-bytes 9000000000 --port 8000");
}

TEST(Vllm, ReplicasStartOneAfterAnother) {
  const auto lines = replica_lines({.model = "m", .max_num_seqs = 8}, 2);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines.front(), "nvidia-cuda-mps-control -d");
  EXPECT_NE(lines[1].find("--port 8000 & until curl"), std::string::npos);
  EXPECT_NE(lines[2].find("--port 8001"), std::string::npos);
}

TEST(Vllm, AModelsNameCannotLeaveItsWord) {
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("x; rm -rf '$HOME'"), "'x; rm -rf '\\''$HOME'\\'''");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace headroom::engines
