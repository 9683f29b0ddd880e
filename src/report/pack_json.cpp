#include "report/pack_json.h"

namespace headroom::report {

using text::Json;

Json pack_json(const pack::PackAnswer& answer) {
  Json allocators = Json::object();
  for (const pack::AllocatorFigures& figures : answer.allocators) {
    allocators.set(figures.name, Json::object()
                                     .set("setting", figures.setting)
                                     .set("peak_allocated_bytes", figures.peak_allocated)
                                     .set("peak_reserved_bytes", figures.peak_reserved)
                                     .set("efficiency", figures.efficiency));
  }
  Json notes = Json::array();
  for (const std::string& note : answer.notes) notes.push_back(note);
  Json recorded = nullptr;
  if (answer.recorded) {
    recorded = Json::object()
                   .set("peak_allocated_bytes", answer.recorded->peak_allocated)
                   .set("peak_reserved_bytes", answer.recorded->peak_reserved)
                   .set("efficiency", answer.recorded->efficiency);
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
      .set("capacity_bytes", answer.capacity ? Json(*answer.capacity) : Json(nullptr))
      .set("fits", answer.fits())
      .set("recorded", std::move(recorded))
      .set("allocators", std::move(allocators))
      .set("notes", std::move(notes));
}

}  // namespace headroom::report
