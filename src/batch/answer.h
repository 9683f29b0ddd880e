// What `headroom batch` answers. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "batch/advisor.h"
#include "batch/freed.h"
#include "batch/live.h"
#include "batch/measured_load.h"
#include "batch/open_load.h"
#include "batch/question.h"
#include "batch/what_if.h"

namespace headroom::batch {

// A limit, with what it gives.
struct CurveRow {
  BatchPoint point;
  Interval efficiency;  // T(B) / (B T(1))
};

// The key-value cache at B_opt. Unknown figures are nothing: a share needs points or a model, bytes
// a model and a device.
struct KvCache {
  std::optional<double> share;  // of the whole cache, in use at B_opt
  std::optional<Bytes> whole;   // beside the weights, in what engines take of the device
  std::optional<Bytes> needed;
  std::optional<Bytes> freed;
  Provenance provenance = Provenance::measured;  // of the share
};

enum class Sharing : uint8_t { mps, time_slicing };
[[nodiscard]] std::string_view name_of(Sharing sharing);

struct Replicas {
  int count = 2;
  Sharing sharing = Sharing::mps;
  Interval speedup_vs_single;  // against one server with this limit
  Interval speedup_vs_max;     // against one server with the largest limit
  // The same with chunked prefill; nothing where it is not predicted.
  std::optional<Interval> speedup_vs_chunked;
  Interval itl_seconds{};            // of each: they wait for each other
  std::optional<bool> fits;          // nothing where the memory is not known
  std::optional<bool> meets_target;  // as expected; nothing where there is no target
};

struct Command {
  std::string title;
  std::string line;
};

// How the points were measured, where a server was driven.
struct LiveRecord {
  std::string url;
  std::string api;           // completions or chat
  std::string served_model;  // as the server names it
  double prefix_hit = 0;     // that was asked for: share of each prompt that begins alike in all
  std::vector<LiveMeasurement> measurements;
  bool is_named = false;  // the batches were, and no other was looked at
  bool is_sure = false;   // among them
  bool is_stopped = false;
  double seconds = 0;
};

struct BatchAnswer {
  BatchQuestion question;
  Workload workload;
  std::optional<double> itl_target_seconds;
  std::vector<CurveRow> curve;  // the candidates, by batch
  Advice advice;
  std::optional<size_t> chosen;  // index into curve
  size_t largest = 0;            // of the curve: the maximum batch that B_opt is held against
  // a / b of the step law, where throughput over latency is largest; 0 or less: it has none.
  double half_point = 0;
  std::optional<double> knee;  // of throughput over the batch, farthest above its chord
  KvCache kv;
  std::optional<Bytes> weights;           // nothing where the model is not known
  std::vector<timing::DecodeStep> steps;  // predicted, by powers of two; empty without a model
  // Whose host and sampling are in predicted steps: the law's name, and where it is from.
  std::string engine_law;
  std::string engine_law_source;
  std::optional<Interval> host_gap;  // of a step at B_opt, the share in which the GPU waits
  std::string host_gap_source;
  std::vector<Replicas> replicas;
  FreedUses freed;               // predicted: with a model on a device
  std::vector<WhatIf> what_ifs;  // the same
  // What both are held against where percentiles are the target: this server as predicted.
  std::optional<LoadBest> load_baseline;
  // Measured over predicted at B_opt, where points and a model are there: what is predicted beside
  // the points is scaled by it.
  std::optional<Correction> correction;
  std::optional<engines::ServerSetting> server;  // at B_opt
  // Of the second model beside it, where both meet their targets.
  std::optional<engines::ServerSetting> second_server;
  std::optional<engines::ServerSetting>
      open_server;  // that was simulated for requests as they come
  std::vector<Command> commands;
  std::optional<PriceTable> prices;
  std::vector<std::string> notes;
  std::optional<LiveRecord> live;
  std::optional<OpenLoadAnswer> open_load;
  std::optional<LoadRecord> measured_load;  // a server's, where one was driven at a rate
};

}  // namespace headroom::batch
