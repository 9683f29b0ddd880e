#include "pack/site_names.h"

#include <map>

namespace headroom::pack {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// What comes between `prefix` and `suffix` in a function's name: "torch::autograd::generated::
// MulBackward0::apply(...)" has "generated::MulBackward0" between "torch::autograd::" and
// "::apply(".
std::string_view between(std::string_view function, std::string_view prefix,
                         std::string_view suffix) {
  if (!function.starts_with(prefix)) return {};
  function.remove_prefix(prefix.size());
  const size_t end = function.find(suffix);
  if (end == std::string_view::npos ||
      function.substr(0, end).find('(') != std::string_view::npos) {
    return {};
  }
  return function.substr(0, end);
}

// The node of the backward graph that a frame runs, and the operator that it calls; or nothing.
std::string backward_node(std::string_view function) {
  std::string_view name = between(function, "torch::autograd::", "::apply(");
  if (const size_t colon = name.rfind("::"); colon != std::string_view::npos) {
    name.remove_prefix(colon + 2);
  }
  return name.empty() ? "" : "backward: " + std::string(name);
}
std::string called_operator(std::string_view function) {
  const std::string_view name = between(function, "at::_ops::", "::call(");
  return name.empty() || contains(name, "empty") ? "" : "aten::" + std::string(name);
}

// What only says that memory was asked for.
bool is_allocator_frame(std::string_view function) {
  for (const std::string_view part :
       {"torch::unwind", "CapturedTraceback", "gather_with_cpp", "CachingAllocator",
        "empty_generic", "empty_strided_generic", "empty_cuda", "empty_strided_cuda",
        "CUDAPluggableAllocator"}) {
    if (contains(function, part)) return true;
  }
  return function.empty();
}

std::string_view without_arguments(std::string_view function) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)";
  const size_t from = function.rfind(kUnnamed);
  const size_t after = from == std::string_view::npos ? 0 : from + kUnnamed.size();
  return function.substr(0, function.find('(', after));
}

}  // namespace

bool is_python_file(std::string_view file) {
  return file.ends_with(".py") || file.starts_with("<ipython");
}

bool is_internal_file(std::string_view file) {
  if (contains(file, "-packages/torch/") || contains(file, "/pytorch/torch/")) return true;
  if (contains(file, "/torchinductor_") || file.starts_with("<frozen")) return true;
  // Libraries that only pass a call on: the one that asked stands right behind them.
  for (const std::string_view library : {"einops", "opt_einsum", "triton", "accelerate"}) {
    const std::string folder = "-packages/" + std::string(library) + "/";
    if (contains(file, folder)) return true;
  }
  return contains(file, "/lib/python3") && !contains(file, "-packages/");
}

std::string CallSite::words() const {
  if (file.empty()) return function;
  size_t cut = file.rfind('/');
  if (cut != std::string::npos && cut > 0) cut = file.rfind('/', cut - 1);
  return (cut == std::string::npos ? file : file.substr(cut + 1)) + ":" + std::to_string(line) +
         " " + function;
}

SiteNames::SiteNames(const memory::CallSites& recorded) {
  frames_.reserve(recorded.frame_count());
  for (uint32_t i = 0; i < recorded.frame_count(); ++i) {
    const memory::CallFrame frame = recorded.frame(i);
    frames_.push_back({std::string(recorded.text(frame.function)),
                       std::string(recorded.text(frame.file)), frame.line});
  }
  std::map<std::string, uint32_t> known;
  known.emplace(sites_[0].words(), 0);
  for (uint32_t i = 0; i < recorded.stack_count(); ++i) {
    const auto stack = recorded.stack(i);
    stacks_.emplace_back(stack.begin(), stack.end());
    CallSite site = choose(stacks_.back());
    const auto [at, is_new] = known.try_emplace(site.words(), static_cast<uint32_t>(sites_.size()));
    if (is_new) sites_.push_back(std::move(site));
    site_of_stack_.push_back(at->second);
  }
}

CallSite SiteNames::choose(const std::vector<uint32_t>& stack) const {
  const CallSite* python = nullptr;
  for (const uint32_t index : stack) {
    const CallSite& each = frames_[index];
    if (!is_python_file(each.file)) continue;
    if (!is_internal_file(each.file)) return each;
    if (python == nullptr) python = &each;
  }
  if (python != nullptr) return *python;
  for (const auto& name_of : {backward_node, called_operator}) {
    for (const uint32_t index : stack) {
      std::string name = name_of(frames_[index].function);
      if (!name.empty()) return {std::move(name), "", 0};
    }
  }
  for (const uint32_t index : stack) {
    const CallSite& each = frames_[index];
    if (is_allocator_frame(each.function)) continue;
    return {std::string(without_arguments(each.function)), "", 0};
  }
  return sites_[0];
}

std::vector<CallSite> SiteNames::python_frames(uint32_t stack, size_t most) const {
  std::vector<CallSite> chosen;
  if (stack >= stacks_.size()) return chosen;
  for (const uint32_t index : stacks_[stack]) {
    if (chosen.size() == most) break;
    if (is_python_file(frames_[index].file)) chosen.push_back(frames_[index]);
  }
  return chosen;
}

}  // namespace headroom::pack
