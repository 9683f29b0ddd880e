#include "formats/oom_message.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <tuple>

#include "text/ascii.h"

namespace headroom::formats {
namespace {

constexpr size_t kMostMessageBytes = 4096;  // the longest real one has about 900
constexpr size_t kMostProcesses = 64;       // NVML lists what runs on one device

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The text on one line, in lower case, with one space for any run of them, without terminal colours
// and without what logs put before a line: "[rank0]:", "0:", "(Worker pid=1)", "> ", "│".
struct Flat {
  std::string text;
  std::vector<int64_t> line_starts;  // positions in `text` where a line of the input began
};

constexpr std::string_view kBar = "\xE2\x94\x82";  // U+2502, both sides of rich's tracebacks

// How much of a line's beginning is a prefix of a log or a quotation.
size_t prefix_of(std::string_view line) {
  size_t at = 0;
  while (at < line.size()) {
    if (line[at] == ' ' || line[at] == '\t' || line[at] == '>' || line[at] == '|') {
      ++at;
    } else if (line.substr(at).starts_with(kBar)) {
      at += kBar.size();
    } else if (line.substr(at).starts_with("[rank") || line.substr(at).starts_with("[default")) {
      const size_t end = line.substr(at, 40).find("]:");
      if (end == std::string_view::npos) break;
      at += end + 2;
    } else {
      break;
    }
  }
  return at;
}

// The right side of a box.
void drop_right_side(std::string_view& line) {
  while (!line.empty() && is_space(line.back())) line.remove_suffix(1);
  if (line.ends_with(kBar)) line.remove_suffix(kBar.size());
  if (line.ends_with(" |")) line.remove_suffix(1);
}

void append_line(std::string_view line, Flat& flat) {
  flat.line_starts.push_back(static_cast<int64_t>(flat.text.size()));
  line.remove_prefix(prefix_of(line));
  drop_right_side(line);
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b' && i + 1 < line.size() && line[i + 1] == '[') {
      while (i + 1 < line.size() && !(line[i] >= '@' && line[i] <= '~' && line[i] != '[')) ++i;
      continue;
    }
    if (!is_space(line[i])) {
      flat.text += lower(line[i]);
    } else if (!flat.text.empty() && flat.text.back() != ' ') {
      flat.text += ' ';
    }
  }
  if (!flat.text.empty() && flat.text.back() != ' ') flat.text += ' ';
}

Flat flatten(std::string_view text) {
  Flat flat;
  flat.text.reserve(text.size());
  while (!text.empty()) {
    const size_t end = text.find('\n');
    append_line(text.substr(0, end), flat);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return flat;
}

struct Unit {
  std::string_view name;
  int64_t bytes;
};
constexpr std::array kUnits{Unit{" bytes", 1}, Unit{" kib", kKiB}, Unit{" mib", kMiB},
                            Unit{" gib", kGiB}, Unit{" tib", kGiB * 1024},
                            // As MPS wrote them, of 1,024 each (format_size() of its time).
                            Unit{" kb", kKiB}, Unit{" mb", kMiB}, Unit{" gb", kGiB}};

bool is_number(char c) { return is_digit(c) || c == '.'; }

std::optional<Bytes> size_of(std::string_view number, int64_t unit) {
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  const double bytes = std::round(value * static_cast<double>(unit));
  if (!(bytes >= 0 && bytes < 2e19)) return std::nullopt;
  // NVML says 2^64 - 1 where it does not know; that is kept as more than any device has.
  constexpr double kMost = 9e18;
  return Bytes(static_cast<int64_t>(std::min(bytes, kMost)));
}

// The size that stands at the beginning of `words`.
std::optional<Bytes> size_at(std::string_view words) {
  size_t digits = 0;
  while (digits < words.size() && digits < 24 && is_number(words[digits])) ++digits;
  if (digits == 0) return std::nullopt;
  for (const Unit& unit : kUnits) {
    if (words.substr(digits).starts_with(unit.name)) {
      return size_of(words.substr(0, digits), unit.bytes);
    }
  }
  return std::nullopt;
}

// The size behind, or right before, the first `anchor`.
std::optional<Bytes> size_after(std::string_view words, std::string_view anchor) {
  const size_t at = words.find(anchor);
  if (at == std::string_view::npos) return std::nullopt;
  return size_at(words.substr(at + anchor.size()));
}

std::optional<Bytes> size_before(std::string_view words, std::string_view anchor) {
  const size_t at = words.find(anchor);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = words.substr(0, at);
  for (const Unit& unit : kUnits) {
    if (!before.ends_with(unit.name)) continue;
    size_t begin = before.size() - unit.name.size();
    while (begin > 0 && before.size() - begin < 40 && is_number(before[begin - 1])) --begin;
    if (begin > 0 && before[begin - 1] == '-') return std::nullopt;
    return size_at(before.substr(begin));
  }
  return std::nullopt;
}

std::optional<int64_t> integer_at(std::string_view words) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  return value;
}

std::optional<int64_t> device_in(std::string_view words) {
  for (const std::string_view anchor : {"(gpu ", ". gpu "}) {
    const size_t at = words.find(anchor);
    if (at == std::string_view::npos) continue;
    const std::string_view number = words.substr(at + anchor.size());
    const size_t end = number.find_first_not_of("0123456789");
    // What follows it says that no digit is missing.
    const bool is_whole = end != std::string_view::npos && (number.substr(end).starts_with(";") ||
                                                            number.substr(end).starts_with(" has"));
    return is_whole ? integer_at(number) : std::nullopt;
  }
  return std::nullopt;
}

std::vector<OomProcess> processes_in(std::string_view words) {
  constexpr std::string_view kUse = " memory in use";
  constexpr std::string_view kThis = "this process has ";
  constexpr std::string_view kOther = "process ";
  std::vector<OomProcess> processes;
  size_t from = 0;
  while (processes.size() < kMostProcesses) {
    const size_t use = words.find(kUse, from);
    if (use == std::string_view::npos) break;
    const std::string_view sentence = words.substr(from, use - from);
    from = use + kUse.size();
    if (const size_t at = sentence.rfind(kThis); at != std::string_view::npos) {
      if (const auto used = size_at(sentence.substr(at + kThis.size()))) {
        processes.push_back({std::nullopt, *used});
      }
      continue;
    }
    const size_t at = sentence.rfind(kOther);
    const size_t has = sentence.rfind(" has ");
    if (at == std::string_view::npos || has == std::string_view::npos || has < at) continue;
    const auto pid = integer_at(sentence.substr(at + kOther.size()));
    const auto used = size_at(sentence.substr(has + 5));
    if (pid && used) processes.push_back({pid, *used});
  }
  return processes;
}

std::optional<Bytes> difference(std::optional<Bytes> a, std::optional<Bytes> b) {
  if (!a || !b || *a < *b) return std::nullopt;
  return *a - *b;
}

// The later wording ends with it.
constexpr std::string_view kLastWords = " is reserved by pytorch but unallocated";

// One message of PyTorch's allocator; `words` begins at "out of memory".
OomMessage parse_torch(std::string_view words) {
  OomMessage message;
  message.tried = size_after(words, "tried to allocate ");
  message.device = device_in(words);
  message.private_pools = size_before(words, " allocated in private pools");
  message.allowed = size_before(words, " allowed; ");
  message.processes = processes_in(words);
  if (words.find(" total capacity; ") != std::string_view::npos) {
    message.total = size_before(words, " total capacity; ");
    message.allocated = size_before(words, " already allocated; ");
    message.free = size_before(words, " free; ");
    message.unallocated = size_before(words, " cached)");
    if (const auto reserved = size_before(words, " reserved in total by pytorch")) {
      message.unallocated = difference(reserved, message.allocated);
    }
    message.is_cut = !message.tried || !message.unallocated;
    return message;
  }
  message.total = size_after(words, " has a total capacity of ");
  if (!message.total) message.total = size_after(words, " has a total capacty of ");
  message.free = size_before(words, " is free");
  message.allocated = size_before(words, " is allocated by pytorch");
  message.unallocated = size_before(words, kLastWords);
  message.is_cut = !message.tried || !message.allocated || !message.unallocated;
  return message;
}

OomMessage parse_mps(std::string_view words) {
  OomMessage message;
  message.allocated = size_after(words, "(mps allocated: ");
  message.beside = size_after(words, "other allocations: ");
  message.allowed = size_after(words, "max allowed: ");
  message.tried = size_after(words, "tried to allocate ");
  message.is_cut = !message.allocated || !message.beside || !message.tried;
  return message;
}

// cudaMallocAsync's: figures by name, a line each.
OomMessage parse_async(std::string_view words) {
  OomMessage message;
  message.allocated = size_after(words, "currently allocated : ");
  message.tried = size_after(words, "requested : ");
  message.total = size_after(words, "device limit : ");
  message.free = size_after(words, "free (according to cuda): ");
  message.allowed = size_after(words, "memory fraction) : ");
  if (message.allowed && message.total && *message.allowed >= *message.total) {
    message.allowed.reset();  // none was set
  }
  message.is_cut = !message.allocated || !message.tried || !message.total;
  return message;
}

struct Bare {
  std::string_view words;
  OomSource source;
};
// In the order in which they are tried at one place.
constexpr std::array kBare{Bare{"mps backend out of memory (mps allocated: ", OomSource::mps},
                           Bare{"cuda driver error: out of memory", OomSource::cuda_driver},
                           Bare{"cuda error: out of memory", OomSource::cuda_runtime},
                           Bare{"hip error: out of memory", OomSource::cuda_runtime},
                           Bare{"cuda runtime error (2) : out of memory", OomSource::cuda_runtime},
                           Bare{"cublas_status_alloc_failed", OomSource::cublas},
                           Bare{"cudnn_status_alloc_failed", OomSource::cudnn},
                           Bare{"cuda failure 2 'out of memory'", OomSource::nccl},
                           Bare{"cuda failure 'out of memory'", OomSource::nccl},
                           Bare{"defaultcpuallocator: ", OomSource::host}};

constexpr std::string_view kTorch = "out of memory. tried to allocate ";
constexpr std::string_view kAsync = "would exceed allowed memory. (out of memory)";
constexpr std::string_view kBuffer = "invalid buffer size: ";  // MPS: one beyond what Metal allows

// The word before `at`, in capitals as it is a name.
std::string word_before(std::string_view flat, size_t at) {
  const size_t end = at > 0 && flat[at - 1] == ' ' ? at - 1 : at;
  size_t begin = end;
  while (begin > 0 && end - begin < 16 && flat[begin - 1] >= 'a' && flat[begin - 1] <= 'z') --begin;
  const std::string word = text::upper(flat.substr(begin, end - begin));
  return word.empty() ? "CUDA" : word;
}

struct Found {
  size_t at = 0;
  size_t length = 0;
  OomSource source = OomSource::torch;
};

std::vector<Found> find_all(std::string_view text) {
  std::vector<Found> found;
  const auto collect = [&](std::string_view words, OomSource source) {
    size_t count = 0;
    for (size_t at = text.find(words); at != std::string_view::npos && count < kMostOomMessages;
         at = text.find(words, at + words.size()), ++count) {
      found.push_back({at, words.size(), source});
    }
  };
  collect(kTorch, OomSource::torch);
  collect(kAsync, OomSource::torch);
  collect(kBuffer, OomSource::mps);
  for (const Bare& bare : kBare) collect(bare.words, bare.source);
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.at < b.at; });
  return found;
}

OomMessage parse_one(std::string_view text, const Found& found, size_t end) {
  const std::string_view words = text.substr(found.at, std::min(end - found.at, kMostMessageBytes));
  OomMessage message;
  if (words.starts_with(kAsync)) {
    message = parse_async(words);
    message.backend = "CUDA";
  } else if (found.source == OomSource::torch) {
    message = parse_torch(words);
    message.backend = word_before(text, found.at);
  } else if (words.starts_with(kBuffer)) {
    message.tried = size_after(words, kBuffer);
    message.is_cut = !message.tried;
    message.backend = "MPS";
  } else if (found.source == OomSource::mps) {
    message = parse_mps(words);
    message.backend = "MPS";
  } else if (found.source == OomSource::host) {
    message.tried = size_after(words, "you tried to allocate ");
    message.is_cut = !message.tried;
    message.backend = "CPU";
  } else {
    message.backend = words.starts_with("hip ") ? "HIP" : "CUDA";
  }
  message.source = found.source;
  return message;
}

}  // namespace

std::optional<Bytes> OomMessage::reserved() const {
  if (!allocated || !unallocated) return std::nullopt;
  const auto sum = checked_add(allocated->count, unallocated->count);
  return sum ? std::optional(Bytes(*sum)) : std::nullopt;
}

bool OomMessage::says_the_same(const OomMessage& other) const {
  const auto key = [](const OomMessage& message) {
    return std::tie(message.source, message.backend, message.device, message.tried, message.total,
                    message.free, message.allocated, message.unallocated, message.private_pools,
                    message.allowed, message.beside, message.processes);
  };
  return key(*this) == key(other);
}

Result<std::vector<OomMessage>> parse_oom_messages(std::string_view text, const std::string& file) {
  const Flat flat = flatten(text);
  const std::vector<Found> found = find_all(flat.text);
  if (found.empty()) {
    return Error{ErrorCode::bad_input, "this holds no out-of-memory message of PyTorch", file,
                 "paste it whole, from 'CUDA out of memory. Tried to allocate' on"};
  }
  std::vector<OomMessage> messages;
  for (size_t i = 0; i < found.size(); ++i) {
    const size_t end = i + 1 < found.size() ? found[i + 1].at : flat.text.size();
    OomMessage message = parse_one(flat.text, found[i], end);
    const auto same = std::find_if(messages.begin(), messages.end(), [&](const OomMessage& other) {
      return other.says_the_same(message);
    });
    if (same != messages.end()) {
      ++same->count;
      continue;
    }
    if (messages.size() == kMostOomMessages) break;
    const auto line = std::upper_bound(flat.line_starts.begin(), flat.line_starts.end(),
                                       static_cast<int64_t>(found[i].at));
    message.line = line - flat.line_starts.begin();
    messages.push_back(std::move(message));
  }
  return messages;
}

std::string_view name_of(OomSource source) {
  switch (source) {
    case OomSource::torch:
      return "torch";
    case OomSource::mps:
      return "mps";
    case OomSource::cuda_runtime:
      return "cuda_runtime";
    case OomSource::cuda_driver:
      return "cuda_driver";
    case OomSource::cublas:
      return "cublas";
    case OomSource::cudnn:
      return "cudnn";
    case OomSource::nccl:
      return "nccl";
    case OomSource::host:
      return "host";
  }
  return "";
}

}  // namespace headroom::formats
