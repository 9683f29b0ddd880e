#include "report/pack/oom_json.h"
#include "text/json_parts.h"

namespace headroom::report {
namespace {

using text::Json;

Json message_json(const formats::OomMessage& message) {
  Json processes = Json::array();
  for (const formats::OomProcess& process : message.processes) {
    processes.push_back(
        Json::object().set("pid", text::or_null(process.pid)).set("used_bytes", process.used));
  }
  return Json::object()
      .set("source", formats::name_of(message.source))
      .set("backend", message.backend)
      .set("line", message.line)
      .set("count", message.count)
      .set("device", text::or_null(message.device))
      .set("tried_bytes", text::or_null(message.tried))
      .set("total_bytes", text::or_null(message.total))
      .set("free_bytes", text::or_null(message.free))
      .set("allocated_bytes", text::or_null(message.allocated))
      .set("unallocated_bytes", text::or_null(message.unallocated))
      .set("private_pools_bytes", text::or_null(message.private_pools))
      .set("allowed_bytes", text::or_null(message.allowed))
      .set("beside_bytes", text::or_null(message.beside))
      .set("processes", std::move(processes));
}

Json case_json(const pack::OomCase& one) {
  Json holders = Json::array();
  for (const pack::OomHolder& holder : one.holders) {
    holders.push_back(Json::object()
                          .set("name", holder.name)
                          .set("bytes", holder.bytes)
                          .set("share_pct", holder.share_pct));
  }
  Json short_by = nullptr;
  if (one.short_by) {
    short_by = Json::object()
                   .set("low", one.short_by->low)
                   .set("expected", one.short_by->expected)
                   .set("high", one.short_by->high);
  }
  return Json::object()
      .set("culprit", pack::name_of(one.culprit))
      .set("culprit_bytes", text::or_null(one.culprit_bytes))
      .set("verdict", one.verdict)
      .set("short_by_bytes", std::move(short_by))
      .set("holders", std::move(holders))
      .set("advice", text::json_array(one.advice))
      .set("is_cut", one.message.is_cut)
      .set("notes", text::json_array(one.notes))
      .set("message", message_json(one.message));
}

}  // namespace

Json oom_json(const pack::OomAnswer& answer) {
  Json cases = Json::array();
  for (const pack::OomCase& one : answer.cases) cases.push_back(case_json(one));
  return Json::object()
      .set("schema", "headroom.oom/1")
      .set("file", answer.file)
      .set("provenance", name_of(Provenance::measured))
      .set("cases", std::move(cases));
}

}  // namespace headroom::report
