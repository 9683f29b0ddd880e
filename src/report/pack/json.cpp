#include "report/pack/json.h"
#include "text/json_parts.h"

namespace headroom::report {

using text::Json;

namespace {

constexpr size_t kMostItems = 1000;  // of segments, and of call sites

Json site_json(const pack::CallSite& site) {
  return Json::object()
      .set("words", site.words())
      .set("function", site.function)
      .set("file", site.file)
      .set("line", site.line);
}

Json segments_json(const pack::LossAtPeak& loss, const pack::SiteNames& sites) {
  Json segments = Json::array();
  for (const pack::StrandedSegment& segment : loss.segments) {
    if (segments.size() == kMostItems) break;
    Json holders = Json::array();
    for (const pack::Holder& holder : segment.holders) {
      holders.push_back(Json::object()
                            .set("site", sites.site(holder.site).words())
                            .set("blocks", holder.blocks)
                            .set("bytes", holder.bytes));
    }
    segments.push_back(Json::object()
                           .set("address", segment.address)
                           .set("stream", segment.stream)
                           .set("is_expandable", segment.is_expandable)
                           .set("size_bytes", segment.size)
                           .set("stranded_bytes", segment.stranded)
                           .set("largest_gap_bytes", segment.largest_gap)
                           .set("blocks", segment.blocks)
                           .set("holders", std::move(holders)));
  }
  return segments;
}

Json loss_json(const pack::PackAnswer& answer) {
  if (!answer.loss || !answer.recording) return nullptr;
  const pack::LossAtPeak& loss = *answer.loss;
  const pack::SiteNames& names = answer.recording->sites;
  Json sites = Json::array();
  for (const pack::PinningSite& site : loss.sites) {
    if (sites.size() == kMostItems) break;
    Json one = site_json(names.site(site.site));
    one.set("segments", site.segments)
        .set("blocks", site.blocks)
        .set("bytes", site.bytes)
        .set("stranded_bytes", site.stranded)
        .set("stranded_alone_bytes", site.stranded_alone);
    sites.push_back(std::move(one));
  }
  Json failure = nullptr;
  if (loss.failure) {
    failure = Json::object()
                  .set("tried_bytes", loss.failure->tried)
                  .set("device_free_bytes", loss.failure->device_free);
  }
  const double share = loss.reserved.count > 0 ? static_cast<double>(loss.lost().count) /
                                                     static_cast<double>(loss.reserved.count)
                                               : 0;
  return Json::object()
      .set("moment", loss.moment)
      .set("moments", answer.recording->end)
      .set("is_end_state", loss.is_end_state)
      .set("seconds", loss.seconds ? Json(*loss.seconds) : Json(nullptr))
      .set("at", site_json(names.site(loss.site)))
      .set("out_of_memory", std::move(failure))
      .set("reserved_bytes", loss.reserved)
      .set("allocated_bytes", loss.allocated)
      .set("requested_bytes", loss.requested)
      .set("stranded_bytes", loss.stranded)
      .set("cached_bytes", loss.cached)
      .set("lost_pct", 100 * share)
      .set("segments", segments_json(loss, names))
      .set("sites", std::move(sites))
      .set("homeless_blocks", loss.homeless_blocks);
}

// How often each class occurs: {"static": {"persistent": 3, ...}, ...}.
Json classes_json(const pack::Understanding& understanding) {
  Json classes = Json::object();
  for (size_t r = 0; r < understanding.counts.size(); ++r) {
    Json lifespans = Json::object();
    for (size_t l = 0; l < understanding.counts[r].size(); ++l) {
      lifespans.set(memory::lifespan_name(static_cast<memory::Lifespan>(l)),
                    understanding.counts[r][l]);
    }
    classes.set(memory::recurrence_name(static_cast<memory::Recurrence>(r)), std::move(lifespans));
  }
  return classes;
}

Json held_out_json(const memory::PlanScore& score) {
  return Json::object()
      .set("iterations", score.iterations)
      .set("requests", score.requests)
      .set("planned_pct", 100 * score.share(score.planned))
      .set("reused_pct", 100 * score.share(score.reused))
      .set("fallen_back_pct", 100 * score.share(score.fallen_back))
      .set("peak_allocated_bytes", score.peak_allocated_bytes)
      .set("plan_bytes", score.plan_bytes)
      .set("fallback_bytes", score.fallback_bytes)
      .set("efficiency", score.efficiency());
}

Json iterations_json(const pack::PackAnswer& answer) {
  if (!answer.understanding) return nullptr;
  const pack::Understanding& found = *answer.understanding;
  constexpr std::string_view kSources[] = {"none", "sequence", "marks"};
  Json plan = nullptr;
  if (found.plan) {
    size_t spaces = 0;
    size_t slots = 0;
    for (const memory::SignaturePlan& signature : found.plan->signatures) {
      spaces += signature.spaces.size();
      slots += signature.slots.size();
    }
    plan = Json::object()
               .set("bytes", found.plan->bytes)
               .set("streams_apart_bytes", found.apart_bytes)
               .set("signatures", found.plan->signatures.size())
               .set("slots", slots)
               .set("dynamic_reusable_spaces", spaces);
  }
  return Json::object()
      .set("found", found.iterations.whole.size())
      .set("kinds", static_cast<int64_t>(found.iterations.kinds))
      .set("boundaries_from", kSources[static_cast<size_t>(found.iterations.source)])
      .set("classes", classes_json(found))
      .set("plan", std::move(plan))
      .set("held_out", found.held_out ? held_out_json(*found.held_out) : Json(nullptr));
}

}  // namespace

Json pack_json(const pack::PackAnswer& answer) {
  Json allocators = Json::object();
  for (const pack::AllocatorFigures& figures : answer.allocators) {
    allocators.set(figures.name, Json::object()
                                     .set("setting", figures.setting)
                                     .set("peak_allocated_bytes", figures.peak_allocated)
                                     .set("peak_reserved_bytes", figures.peak_reserved)
                                     .set("limit_bytes", text::or_null(figures.limit))
                                     .set("efficiency", figures.efficiency));
  }
  Json recorded = nullptr;
  if (answer.recorded) {
    recorded = Json::object()
                   .set("peak_allocated_bytes", answer.recorded->peak_allocated)
                   .set("peak_reserved_bytes", answer.recorded->peak_reserved)
                   .set("efficiency", answer.recorded->efficiency)
                   .set("max_memory_allocated_bytes", answer.recorded->max_memory_allocated);
  }
  return Json::object()
      .set("schema", "headroom.pack/1")
      .set("file", answer.file)
      .set("kind", answer.kind)
      .set("device", answer.device)
      .set("requests", answer.requests.size())
      .set("streams", answer.streams)
      .set("alignment_bytes", answer.alignment)
      .set("lower_bound_bytes", answer.lower_bound)
      .set("plan", Json::object()
                       .set("bytes", answer.plan.size)
                       .set("gap_pct", answer.plan.gap_pct)
                       .set("seconds", answer.plan.seconds)
                       .set("cpu_seconds", answer.plan.cpu_seconds)
                       .set("method", answer.plan.method)
                       .set("is_optimal", answer.plan.is_optimal)
                       .set("proven_bound_bytes", answer.plan.proven_bound))
      .set("capacity_bytes", text::or_null(answer.capacity))
      .set("fits", answer.fits())
      .set("recorded", std::move(recorded))
      .set("loss", loss_json(answer))
      .set("allocators", std::move(allocators))
      .set("iterations", iterations_json(answer))
      .set("is_partial", answer.is_partial)
      .set("notes", text::json_array(answer.notes));
}

}  // namespace headroom::report
