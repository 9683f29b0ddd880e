// What load generators write, as serving points: files that people already have.
//
//  - vLLM, `vllm bench serve --save-result`: one JSON object a run, or one a line
//  (--append-result);
//  - SGLang, `python -m sglang.bench_serving --output-file`: one object a line;
//  - GuideLLM, benchmarks.json: one object, its runs under "benchmarks" (0.3 says args.strategy and
//    streams, 0.4 config.strategy and max_concurrency);
//  - AIPerf, profile_export_aiperf.json: one object a run.
// Told apart by the members that are there, never by a file's name.
//
// A point's batch is the concurrency that the run was held to; a run without one (an open arrival
// rate), or whose arrival rate kept less than half of it in flight, is none, and is named. What was
// in flight is what the file says, or follows by Little's law from the rate of requests and their
// latency. The time between tokens is the mean gap, but the mean time per token where a gap holds
// several tokens (speculative decoding): more than a fifth apart. Pure but for the files; not
// synchronised.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/serving_points.h"

namespace headroom::formats {

struct ServingResults {
  std::vector<ServingPoint> points;
  std::vector<std::string> left_out;  // a sentence for each run, or file, that made no point
  bool is_partial = false;            // something among them was damaged
};

// One file's text. An Error where it is no such file, or none of its runs makes a point.
Result<ServingResults> parse_serving_results(std::string_view text, const std::string& file);

// A file of either kind, these or CSV (serving_points.h), or a folder, of which every .json, .jsonl
// and .csv file is read, also in the folders within ("-" is standard input). Other JSON among them
// is left out. At most 64 MiB a file, 4,096 files, 65,536 entries, four folders deep.
Result<ServingResults> read_serving_results(const std::string& path);

}  // namespace headroom::formats
