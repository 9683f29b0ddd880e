#include "pack/oom.h"

#include <algorithm>
#include <numeric>

#include "base/file.h"
#include "pack/oom_figures.h"
#include "pack/oom_mps.h"
#include "text/number.h"

namespace headroom::pack {
namespace {

using formats::OomMessage;
using formats::OomProcess;
using formats::OomSource;

constexpr Bytes kMostText{64 * kMiB};
// A waste below this share of what is reserved is not called the culprit: planned allocators leave
// as much (STAlloc, arXiv 2507.16274, section 9: 95 to 100 % used on dense models).
constexpr double kNoticeablePct = 5;

// What a process takes of a device of this size before its first tensor: of the devices that we
// know, those within 2 % of the total, or all of the maker's where none is.
struct Context {
  device::BytesInterval bytes;
  bool is_of_this_size = false;
};

Context context_of(Bytes total, const device::DeviceCatalogue& catalogue) {
  Context of_size;
  Context of_all;
  const auto widen = [](Context& context, const device::BytesInterval& bytes) {
    const bool is_first = context.bytes.high.count == 0;
    context.bytes.low = is_first ? bytes.low : std::min(context.bytes.low, bytes.low);
    context.bytes.expected = std::max(context.bytes.expected, bytes.expected);
    context.bytes.high = std::max(context.bytes.high, bytes.high);
  };
  for (const device::Device& device : catalogue.devices()) {
    if (device.vendor != device::Vendor::nvidia || !device.context.known()) continue;
    widen(of_all, device.context.value);
    const int64_t distance = std::abs(device.usable_memory.value.count - total.count);
    if (device.usable_memory.known() && distance <= total.count / 50) {
      widen(of_size, device.context.value);
      of_size.is_of_this_size = true;
    }
  }
  return of_size.is_of_this_size ? of_size : of_all;
}

// The figures of one message, sorted out: nothing of them is negative or larger than the device
// unless the message says so.
struct Account {
  Bytes total;
  Bytes free;
  Bytes tensors;
  Bytes private_pools;
  Bytes unallocated;
  // The message ends before it says what is unallocated: then what this process has beside its
  // tensors cannot be told apart.
  bool lacks_unallocated = false;
  std::optional<Bytes> outside;  // nothing: the message does not list this process, or lacks that
  std::vector<OomProcess> others;
  Bytes others_sum;
  Bytes not_listed;  // of the device, held by nobody who is named
  Context context;
};

Bytes at_least_zero(Bytes bytes) { return std::max(bytes, Bytes(0)); }

// In a container the process has a number of its own and is listed under that of the host: then the
// process that holds what PyTorch reserved is this one.
void find_this_process(const OomMessage& message, Bytes reserved, Account& account,
                       std::vector<std::string>& notes) {
  size_t unknown = 0;
  for (const OomProcess& process : message.processes) {
    if (process.used > account.total) {
      ++unknown;
    } else if (!process.pid) {
      if (!account.lacks_unallocated) account.outside = at_least_zero(process.used - reserved);
    } else {
      account.others.push_back(process);
    }
  }
  if (unknown > 0) {
    notes.push_back(std::to_string(unknown) +
                    " of the processes are listed with more memory than the device has, which is "
                    "how the driver says that it does not know; they are left out");
  }
  if (!account.outside && !account.lacks_unallocated) {
    const Bytes tolerance = rounding_of(reserved) + rounding_of(reserved);
    auto best = account.others.end();
    for (auto at = account.others.begin(); at != account.others.end(); ++at) {
      if (at->used + tolerance < reserved) continue;
      if (best == account.others.end() || at->used < best->used) best = at;
    }
    if (best != account.others.end() && reserved.count > 0) {
      account.outside = at_least_zero(best->used - reserved);
      notes.push_back("process " + std::to_string(*best->pid) +
                      " is taken to be this one, as inside a container: it holds what PyTorch "
                      "reserved");
      account.others.erase(best);
    }
  }
  for (const OomProcess& process : account.others) account.others_sum += process.used;
}

std::optional<Account> account_of(const OomMessage& message,
                                  const device::DeviceCatalogue& catalogue,
                                  std::vector<std::string>& notes) {
  if (!message.total || !message.allocated || message.total->count == 0) return std::nullopt;
  constexpr Bytes kMost{int64_t{1} << 56};  // no machine has it; sums of such figures still fit
  for (const auto& figure :
       {message.total, message.allocated, message.unallocated, message.free, message.tried}) {
    if (figure && *figure > kMost) return std::nullopt;
  }
  Account account;
  account.total = *message.total;
  account.private_pools = std::min(message.private_pools.value_or(Bytes(0)), *message.allocated);
  account.tensors = *message.allocated - account.private_pools;
  account.unallocated = message.unallocated.value_or(Bytes(0));
  account.lacks_unallocated = message.is_cut && !message.unallocated;
  const Bytes reserved = *message.allocated + account.unallocated;
  find_this_process(message, reserved, account, notes);
  const Bytes named = reserved + account.outside.value_or(Bytes(0)) + account.others_sum;
  account.free = message.free.value_or(at_least_zero(account.total - named));
  account.not_listed = at_least_zero(account.total - account.free - named);
  account.context = context_of(account.total, catalogue);
  if (!message.free)
    notes.emplace_back("the message does not say what is free; what nobody holds is taken");
  if (reserved > account.total + rounding_of(account.total)) {
    notes.emplace_back(
        "PyTorch reserved more than the device has: the driver pages into the host's memory, as "
        "on Windows and WSL, and everything is slow from there on");
  }
  return account;
}

std::vector<OomHolder> holders_of(const Account& account) {
  std::vector<OomHolder> holders;
  const auto add = [&](std::string name, std::string what, Bytes bytes) {
    if (bytes.count <= 0) return;
    holders.push_back({std::move(name), std::move(what), bytes, pct_of(bytes, account.total)});
  };
  add("tensors", "tensors of this process", account.tensors);
  add("unallocated", "reserved by PyTorch, no tensor in it", account.unallocated);
  add("private_pools", "free inside private pools (CUDA graphs)", account.private_pools);
  add("outside", "this process beside PyTorch: context, NCCL, libraries",
      account.outside.value_or(Bytes(0)));
  for (const OomProcess& other : account.others) {
    const std::string name = "process " + std::to_string(*other.pid);
    add(name, "another process", other.used);
  }
  const char* const rest =
      account.lacks_unallocated ? "PyTorch's free memory, context, libraries: not told apart"
      : account.outside         ? "held by nobody whom the message names"
                                : "context, libraries and other processes: not told apart";
  add("not_listed", rest, account.not_listed);
  std::stable_sort(holders.begin(), holders.end(),
                   [](const OomHolder& a, const OomHolder& b) { return a.bytes > b.bytes; });
  add("free", "free", account.free);
  return holders;
}

// Something that holds memory and need not, and how much.
struct Waste {
  OomCulprit culprit = OomCulprit::model;
  Bytes bytes;
};

std::vector<Waste> wastes_of(const Account& account) {
  std::vector<Waste> wastes{
      {OomCulprit::fragmentation, account.unallocated},
      {OomCulprit::private_pools, account.private_pools},
      {OomCulprit::other_process, account.others_sum},
  };
  if (account.outside) {
    wastes.push_back(
        {OomCulprit::outside, at_least_zero(*account.outside - account.context.bytes.high)});
  }
  wastes.push_back(
      {OomCulprit::not_listed, at_least_zero(account.not_listed - account.context.bytes.high)});
  std::stable_sort(wastes.begin(), wastes.end(),
                   [](const Waste& a, const Waste& b) { return a.bytes > b.bytes; });
  return wastes;
}

std::string words(Bytes bytes) { return format_bytes(bytes); }

std::string percent_words(Bytes part, Bytes whole) {
  return text::formatted("%.1f %%", pct_of(part, whole));
}

// What people of a maker's devices have in place of NVIDIA's.
struct BackendWords {
  const char* monitor;
  const char* collectives;
};
BackendWords words_of(const std::string& backend) {
  if (backend == "CUDA") return {"nvidia-smi", "NCCL"};
  if (backend == "HIP") return {"rocm-smi", "RCCL"};
  if (backend == "XPU") return {"xpu-smi", "oneCCL"};
  return {"the device's monitor", "the communication library"};
}

std::vector<std::string> fragmentation_advice(const std::string& backend, const std::string& held) {
  const std::string gain = ": up to " + held + " can come back";
  const std::string fewer_sizes = "fewer different sizes (padded batches and lengths)";
  if (backend != "CUDA" && backend != "HIP") return {fewer_sizes + gain};
  std::vector<std::string> advice{"set PYTORCH_" + backend +
                                  "_ALLOC_CONF=expandable_segments:True" + gain};
  if (backend == "HIP") {
    advice.front() += "; where this build cannot, it warns, and what helps is " + fewer_sizes;
  }
  advice.emplace_back(
      "record a snapshot (torch.cuda.memory._record_memory_history) and run headroom pack "
      "snapshot.pickle: it says which call sites pin the segments, compares the settings on your "
      "own run, and makes a plan");
  return advice;
}

constexpr const char* kPasteWhole =
    "paste the message whole, up to 'reserved by PyTorch but unallocated'";

// What each culprit is answered with. `missing` is what the request lacked, at least.
std::vector<std::string> advice_for(const OomCase& one, const Account& account, Bytes missing) {
  const std::string held = words(one.culprit_bytes.value_or(Bytes(0)));
  const bool is_cuda = one.message.backend == "CUDA";
  const BackendWords tools = words_of(one.message.backend);
  const std::string monitor = tools.monitor;
  switch (one.culprit) {
    case OomCulprit::request:
      return {
          "make that one tensor smaller: a smaller batch or sequence, logits in chunks, "
          "attention that does not hold its scores (SDPA, FlashAttention)",
          "its size is " + words(*one.message.tried) + ", the device has " + words(account.total) +
              ", and the other tensors hold " + words(account.tensors) +
              ": no setting of the allocator is enough"};
    case OomCulprit::memory_fraction:
      return {
          "raise the limit: torch.cuda.set_per_process_memory_fraction, or "
          "per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF; " +
          words(account.free) + " of the device is free"};
    case OomCulprit::fragmentation:
      return fragmentation_advice(one.message.backend, held);
    case OomCulprit::private_pools:
      return {
          "let captures share a pool (torch.cuda.graph_pool_handle), capture fewer shapes, or "
          "switch CUDA graphs off (torch.compile without mode=\"reduce-overhead\"; "
          "--enforce-eager in vLLM): up to " +
          held + " comes back"};
    case OomCulprit::other_process: {
      std::string list;
      for (size_t i = 0; i < account.others.size() && i < 4; ++i) {
        list += (i > 0 ? ", " : "") + std::to_string(*account.others[i].pid) + " (" +
                words(account.others[i].used) + ")";
      }
      return {
          "end the other processes on this device or move to another: " + list,
          monitor + " shows who they are; a run of yours that was killed may still hold memory"};
    }
    case OomCulprit::outside:
      if (!is_cuda) {
        return {std::string("communication libraries (") + tools.collectives +
                ") take most of such memory: fewer process groups and communicators"};
      }
      return {
          "communication libraries take most of such memory: fewer process groups and "
          "communicators, a smaller NCCL_BUFFSIZE or NCCL_MAX_NCHANNELS",
          "CUDA_MODULE_LOADING=LAZY keeps unused kernels out of the context; other "
          "frameworks in the same process (JAX, TensorFlow, RAPIDS) hold pools of their own"};
    case OomCulprit::not_listed:
      return {
          monitor + " tells whether other processes hold it; end them or move to another device",
          std::string("if none does, it is outside of PyTorch in this process: ") +
              tools.collectives + " (fewer communicators" +
              (is_cuda ? ", a smaller NCCL_BUFFSIZE" : "") + ") or another framework's pool"};
    case OomCulprit::was_free:
      return {
          "run it again and watch " + monitor +
              ": another process or thread may have held the memory for that moment",
          std::string("if it fails each time, something limits this process that the message does "
                      "not know: a partition of the device, Windows or WSL, or free memory in "
                      "pieces that are too small") +
              (is_cuda ? ", which PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True can do with"
                       : "")};
    case OomCulprit::not_told:
      return {kPasteWhole};
    default:
      break;
  }
  std::vector<std::string> advice{
      "the tensors must give up at least " + words(missing) + " of " + words(account.tensors) +
          " (" + percent_words(missing, account.tensors) +
          "): a smaller batch or sequence, gradient checkpointing, a smaller optimizer state",
      "headroom fit MODEL --device NAME says what each of these would save, before you run"};
  if (is_cuda && account.unallocated >= missing && account.unallocated.count > 0) {
    advice.push_back("expandable_segments:True may let this one request through (" +
                     words(account.unallocated) + " is unallocated), and the next may fail");
  }
  return advice;
}

std::string verdict_of(const OomCase& one, const Account& account, bool is_alone) {
  const std::string held = words(one.culprit_bytes.value_or(Bytes(0)));
  const std::string of_device = " of " + words(account.total);
  std::string verdict;
  switch (one.culprit) {
    case OomCulprit::request:
      return "the request itself: " + words(*one.message.tried) + " in one piece, on a device of " +
             words(account.total) + " where the other tensors hold " + words(account.tensors);
    case OomCulprit::memory_fraction:
      return "a limit that was set for this process: " + words(*one.message.allowed) +
             " allowed, while " + words(account.free) + " of the device is free";
    case OomCulprit::fragmentation:
      verdict = "fragmentation: PyTorch holds " + held + " without a tensor in it";
      break;
    case OomCulprit::private_pools:
      verdict = "CUDA graphs: their private pools hold " + held + " without a tensor in it";
      break;
    case OomCulprit::other_process:
      verdict = std::string(account.others.size() == 1 ? "another process holds "
                                                       : "other processes hold ") +
                held + of_device;
      break;
    case OomCulprit::outside:
      verdict = "memory beside PyTorch in this process: " + words(*account.outside) +
                ", of which a context explains " + words(account.context.bytes.high) + " at most";
      break;
    case OomCulprit::not_listed:
      verdict = words(account.not_listed) + of_device +
                " is held by somebody whom the message does not name";
      break;
    case OomCulprit::was_free:
      return "none of these figures: " + words(account.free) + of_device +
             " was free when the message was written, and " + words(*one.message.tried) +
             " was asked for";
    case OomCulprit::not_told:
      return "the message ends before the figure that decides, what PyTorch reserved and has no "
             "tensor in: " +
             words(account.not_listed) + of_device + " is that, a context, or somebody else's";
    default:
      return "the model itself: its tensors hold " + words(account.tensors) + of_device + " (" +
             percent_words(account.tensors, account.total) + ")";
  }
  if (!is_alone) verdict += "; alone it does not make up for what was missing";
  return verdict;
}

BytesRange shortfall_of(const OomMessage& message, const Account& account) {
  const Bytes tried = message.tried.value_or(Bytes(0));
  Bytes room = account.free;
  Bytes slack = rounding_of(tried) + rounding_of(room);
  if (message.allowed) {
    const Bytes reserved = account.tensors + account.private_pools + account.unallocated;
    const Bytes below_limit = at_least_zero(*message.allowed - reserved);
    if (below_limit < room) {
      room = below_limit;
      slack = rounding_of(tried) + rounding_of(*message.allowed) + rounding_of(account.tensors) +
              rounding_of(account.unallocated);
    }
  }
  return {tried - room - slack, tried - room, tried - room + slack};
}

// One request that the device cannot hold; a limit, or nobody, where enough was free; the largest
// of what need not be there, where it is enough by itself or with the others; one request that is
// larger than all that the tensors hold; else the tensors.
void judge(OomCase& one, const Account& account) {
  const OomMessage& message = one.message;
  one.short_by = shortfall_of(message, account);
  const Bytes missing = std::max(one.short_by->expected, Bytes(1));
  const Bytes tried = message.tried.value_or(Bytes(0));
  bool is_alone = true;
  if (tried > account.total - std::min(account.total, account.context.bytes.low)) {
    one.culprit = OomCulprit::request;
    one.culprit_bytes = tried;
  } else if (message.allowed && one.short_by->high.count > 0 && account.free >= tried) {
    one.culprit = OomCulprit::memory_fraction;
    one.culprit_bytes = account.free;
  } else if (one.short_by->high.count <= 0) {
    one.culprit = OomCulprit::was_free;
    one.culprit_bytes = account.free;
  } else if (account.lacks_unallocated) {
    one.culprit = OomCulprit::not_told;
    one.culprit_bytes = account.not_listed;
  } else {
    const std::vector<Waste> wastes = wastes_of(account);
    const Bytes all = std::accumulate(wastes.begin(), wastes.end(), Bytes(0),
                                      [](Bytes sum, const Waste& w) { return sum + w.bytes; });
    const Waste& largest = wastes.front();
    const Bytes reserved = account.tensors + account.private_pools + account.unallocated;
    const bool is_noticeable = pct_of(largest.bytes, reserved) >= kNoticeablePct;
    if (all < missing && tried > account.tensors) {
      one.culprit = OomCulprit::request;
      one.culprit_bytes = tried;
    } else if (is_noticeable && all >= missing) {
      one.culprit = largest.culprit;
      one.culprit_bytes = largest.bytes;
      is_alone = largest.bytes >= missing;
    } else {
      one.culprit = OomCulprit::model;
      one.culprit_bytes = account.tensors;
    }
  }
  one.verdict = verdict_of(one, account, is_alone);
  one.advice = advice_for(one, account, missing);
}

void judge_without_figures(OomCase& one) {
  switch (one.message.source) {
    case OomSource::host:
      one.culprit = OomCulprit::host;
      one.culprit_bytes = one.message.tried;
      one.verdict = "the host's memory ran out, not the device's";
      if (one.message.tried) one.verdict += ": " + words(*one.message.tried) + " was asked for";
      one.advice = {
          "fewer or smaller data loader workers, load checkpoints with mmap=True or "
          "onto the meta device, offload less to the host"};
      return;
    case OomSource::nccl:
      one.culprit = OomCulprit::outside;
      one.verdict = "NCCL found no memory for its buffers, outside of PyTorch's allocator";
      one.advice = {
          "leave it room: torch.cuda.set_per_process_memory_fraction(0.95) before the "
          "first tensor, or a smaller batch",
          "make it need less: NCCL_BUFFSIZE (4 MiB a channel and peer by default), "
          "NCCL_MAX_NCHANNELS, fewer process groups"};
      return;
    case OomSource::cublas:
    case OomSource::cudnn:
      one.culprit = OomCulprit::outside;
      one.verdict =
          "a library found no memory for its handle or workspace, which is mostly the "
          "first thing to fail on a device that PyTorch has filled";
      one.advice = {
          "leave it room: torch.cuda.set_per_process_memory_fraction(0.95), or call the "
          "library once before the model is loaded",
          "the next tensor would have failed as well: headroom fit MODEL says how much "
          "too much it is"};
      return;
    case OomSource::cuda_runtime:
    case OomSource::cuda_driver:
      one.culprit = OomCulprit::not_told;
      one.verdict =
          "the driver had no memory, and was not asked by PyTorch's allocator, so the "
          "message has no figures";
      one.advice = {
          "nvidia-smi shows who holds the device: mostly another process, and the "
          "context of this one found no room"};
      return;
    case OomSource::torch:
    case OomSource::mps:
      break;
  }
  one.culprit = OomCulprit::not_told;
  one.verdict = one.holders.empty() ? "an out-of-memory message without its figures"
                                    : "how much was asked for cannot be read";
  const bool is_mps = one.message.source == OomSource::mps;
  one.advice = {is_mps ? "paste the message whole, up to 'on private pool'" : kPasteWhole};
}

}  // namespace

Result<OomAnswer> explain_oom(std::string_view text, const std::string& file,
                              const device::DeviceCatalogue& catalogue) {
  HEADROOM_ASSIGN(std::vector<OomMessage> messages, formats::parse_oom_messages(text, file));
  OomAnswer answer;
  answer.file = file;
  for (OomMessage& message : messages) {
    OomCase one;
    const auto account = message.source == OomSource::torch
                             ? account_of(message, catalogue, one.notes)
                             : std::optional<Account>();
    one.message = std::move(message);
    if (account) {
      one.holders = holders_of(*account);
    }
    if (one.message.source == OomSource::mps && !one.message.is_cut) {
      judge_mps(one);
    } else if (account && one.message.tried) {
      judge(one, *account);
      if (one.message.is_cut) {
        one.notes.emplace_back(
            "the message is cut off, or has figures that cannot be read: this is about the rest of "
            "it");
      }
    } else {
      judge_without_figures(one);
    }
    answer.cases.push_back(std::move(one));
  }
  return answer;
}

bool OomAnswer::is_partial() const {
  return std::any_of(cases.begin(), cases.end(),
                     [](const OomCase& one) { return one.message.is_cut; });
}

Result<OomAnswer> explain_oom_file(const std::string& file) {
  HEADROOM_ASSIGN(const std::string text, read_file(file, kMostText));
  HEADROOM_ASSIGN(const device::DeviceCatalogue catalogue, device::DeviceCatalogue::load());
  return explain_oom(text, file, catalogue);
}

std::string_view name_of(OomCulprit culprit) {
  switch (culprit) {
    case OomCulprit::request:
      return "request";
    case OomCulprit::memory_fraction:
      return "memory_fraction";
    case OomCulprit::fragmentation:
      return "fragmentation";
    case OomCulprit::private_pools:
      return "private_pools";
    case OomCulprit::other_process:
      return "other_process";
    case OomCulprit::outside:
      return "outside";
    case OomCulprit::not_listed:
      return "not_listed";
    case OomCulprit::was_free:
      return "was_free";
    case OomCulprit::model:
      return "model";
    case OomCulprit::host:
      return "host";
    case OomCulprit::not_told:
      return "not_told";
  }
  return "";
}

}  // namespace headroom::pack
