#include "fit/search/network.h"

#include <gtest/gtest.h>

namespace headroom::fit {
namespace {

TEST(Network, ANameEndsInItsRate) {
  EXPECT_DOUBLE_EQ(network_rate("ib-400g")->value, 50e9);
  EXPECT_DOUBLE_EQ(network_rate("roce-v2-100G")->value, 12.5e9);
  EXPECT_DOUBLE_EQ(network_rate("25g")->value, 3.125e9);
  EXPECT_DOUBLE_EQ(network_rate("50GB/s")->value, 50e9);
  for (const char* words : {"", "ib", "ib-", "ib-g", "ib-0g", "ib-nang", "ib-1e9g", "fast/s"}) {
    EXPECT_FALSE(network_rate(words)) << words;
  }
}

TEST(Network, GpusAreSpreadEvenly) {
  FitQuestion question;
  EXPECT_EQ(cluster_of(question, 16)->devices_per_node, 16);
  question.nodes = 2;
  EXPECT_NE(cluster_of(question, 16).error().hint.find("--link"), std::string::npos);
  ASSERT_TRUE(question.set("link", "ib-400g"));
  EXPECT_EQ(cluster_of(question, 16)->devices_per_node, 8);
  EXPECT_DOUBLE_EQ(cluster_of(question, 16)->network.value, 50e9);
  EXPECT_FALSE(cluster_of(question, 15));
  EXPECT_FALSE(question.set("link", "carrier pigeon"));
}

TEST(Network, AGlobalBatchBecomesMicroBatches) {
  FitQuestion question;
  question.batch = 2;
  EXPECT_EQ(with_accumulation(question, 8)->grad_accum, 1);
  ASSERT_TRUE(question.set("global-batch", "64"));
  EXPECT_EQ(with_accumulation(question, 8)->grad_accum, 4);
  EXPECT_FALSE(with_accumulation(question, 5));
  EXPECT_FALSE(with_accumulation(question, 64));
  EXPECT_EQ(with_accumulation_of_a_search(question, 8)->grad_accum, 4);
  ASSERT_TRUE(question.set("grad-accum", "4"));
  EXPECT_FALSE(with_accumulation(question, 8));
  EXPECT_FALSE(with_accumulation_of_a_search(question, 8));
}

// Of devices that share sequences each way accumulates for itself.
TEST(Network, ASearchMayHaveFewerSequencesThanDevices) {
  FitQuestion question;
  ASSERT_TRUE(question.set("global-batch", "4"));
  EXPECT_EQ(with_accumulation_of_a_search(question, 8)->grad_accum, 1);
  ASSERT_TRUE(question.set("batch", "3"));
  EXPECT_FALSE(with_accumulation_of_a_search(question, 8));
}

TEST(Network, MachinesOfEightAreAssumedWhereNobodySays) {
  FitQuestion question;
  EXPECT_FALSE(assume_machines(8, question));
  EXPECT_EQ(assume_machines(12, question),
            "12 GPUs are in one machine: nobody says (--nodes, --link)");
  EXPECT_EQ(question.nodes, 1);
  const auto words = assume_machines(32, question);
  ASSERT_TRUE(words);
  EXPECT_EQ(*words, "4 machines of eight, joined by ib-400g a GPU: nobody says (--nodes, --link)");
  EXPECT_EQ(question.nodes, 4);
  EXPECT_TRUE(cluster_of(question, 32));
  FitQuestion said;
  ASSERT_TRUE(said.set("nodes", "1"));
  EXPECT_FALSE(assume_machines(32, said));
}

}  // namespace
}  // namespace headroom::fit
