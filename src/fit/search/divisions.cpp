#include "fit/search/divisions.h"

#include <algorithm>

namespace headroom::fit {

std::vector<std::string> divisions_among(int64_t gpus) {
  const std::string all = ":" + std::to_string(gpus);
  std::vector<std::string> words;
  for (const char* const word : {"ddp", "zero1", "zero2", "zero3"}) words.push_back(word + all);
  for (const std::string version : {"fsdp2:", "fsdp1:"}) {
    words.push_back(version + std::to_string(gpus));
    for (int64_t group = gpus / 2; group >= 2; --group) {
      if (gpus % group != 0) continue;
      words.push_back(version + std::to_string(group) +
                      ",replicate:" + std::to_string(gpus / group));
    }
  }
  return words;
}

std::vector<std::string> expert_divisions_among(int64_t gpus) {
  std::vector<std::string> words;
  for (int64_t ranks = gpus; ranks >= 2; --ranks) {
    if (gpus % ranks != 0) continue;
    const std::string experts = ",ep:" + std::to_string(ranks);
    words.push_back("fsdp2:" + std::to_string(gpus) + experts);
    if (ranks == gpus) continue;
    words.push_back("fsdp2:" + std::to_string(ranks) +
                    ",replicate:" + std::to_string(gpus / ranks) + experts);
  }
  return words;
}

std::vector<std::string> context_divisions_among(int64_t gpus) {
  std::vector<std::string> words;
  for (int64_t ranks = gpus; ranks >= 2; --ranks) {
    if (gpus % ranks != 0) continue;
    words.push_back("fsdp2:" + std::to_string(gpus / ranks) + ",cp:" + std::to_string(ranks));
  }
  return words;
}

std::vector<std::string> pipelines_among(int64_t gpus) {
  std::vector<std::string> words{"pp:" + std::to_string(gpus)};
  for (int64_t stages = gpus / 2; stages >= 2; --stages) {
    if (gpus % stages != 0) continue;
    words.push_back("fsdp2:" + std::to_string(gpus / stages) + ",pp:" + std::to_string(stages));
  }
  return words;
}

std::vector<std::string> tensor_divisions_among(int64_t gpus, int64_t most) {
  std::vector<std::string> words;
  for (int64_t group = std::min(gpus, most); group >= 2; --group) {
    if (gpus % group != 0) continue;
    const std::string tensor = "tp:" + std::to_string(group);
    if (group == gpus) {
      words.push_back(tensor);
      continue;
    }
    for (const char* const around : {"fsdp2:", "ddp:"}) {
      words.push_back(around + std::to_string(gpus / group) + "," + tensor);
    }
  }
  return words;
}

std::vector<std::string> sequence_divisions_among(int64_t gpus, int64_t most) {
  std::vector<std::string> words;
  for (int64_t group = std::min(gpus, most); group >= 2; --group) {
    if (gpus % group != 0) continue;
    const int64_t groups = gpus / group;
    const std::string tensor = "tp:" + std::to_string(group);
    if (groups == 1) {
      words.push_back(tensor);
      continue;
    }
    words.push_back("ddp:" + std::to_string(groups) + "," + tensor);
    // Of one share each, stages alone: torchtitan's fully_shard is there, too.
    for (int64_t stages = 1; stages <= groups; ++stages) {
      if (groups % stages != 0) continue;
      words.push_back("fsdp2:" + std::to_string(groups / stages) + "," + tensor +
                      (stages > 1 ? ",pp:" + std::to_string(stages) : ""));
    }
  }
  return words;
}

namespace {

std::vector<int64_t> divisors_of(int64_t count) {
  std::vector<int64_t> divisors;
  for (int64_t one = 1; one <= count; ++one) {
    if (count % one == 0) divisors.push_back(one);
  }
  return divisors;
}

// ",tp:4"; of one nothing is said.
std::string word(const char* name, int64_t count) {
  return count > 1 ? "," + std::string(name) + ":" + std::to_string(count) : "";
}

}  // namespace

std::vector<WayToDivide> shared_divisions_among(int64_t gpus, int64_t most) {
  std::vector<WayToDivide> ways;
  for (const int64_t context : divisors_of(gpus)) {
    if (context == 1) continue;
    const int64_t rest = gpus / context;
    const auto add = [&](int64_t replicas, int64_t tensor, int64_t stages) {
      const int64_t ranks = rest / replicas / tensor / stages;
      ways.push_back({"fsdp2:" + std::to_string(ranks) + word("replicate", replicas) +
                          word("cp", context) + word("tp", tensor) + word("pp", stages),
                      tensor > 1});
    };
    for (const int64_t replicas : divisors_of(rest)) {
      if (replicas > 1) add(replicas, 1, 1);
    }
    for (const int64_t tensor : divisors_of(rest)) {
      for (const int64_t stages : divisors_of(rest / tensor)) {
        if (tensor <= most && tensor * stages > 1) add(1, tensor, stages);
      }
    }
  }
  return ways;
}

}  // namespace headroom::fit
