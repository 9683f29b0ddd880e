// The shim as PyTorch sees it: through c10::cuda::CUDACachingAllocator::get(), over the real
// libheadroom_torch.so on the fake CUDA driver, with stand_in.cpp in libc10_cuda.so's place.
//
//   shim_test CASE LIBRARY SHIM STAMP DRIVER
//
// One case a process, as an exchange is final. tests/python/test_run_shim.py compiles and calls it.
#include <c10/cuda/CUDACachingAllocator.h>
#include <dlfcn.h>

#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/abi.h"
#include "runtime/fake/fake_cuda.h"
#include "runtime/fake/in_child.h"
#include "stand_in.h"

namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatType;
using stand_in::native;
namespace torch_cuda = c10::cuda::CUDACachingAllocator;

constexpr size_t kMiB = size_t{1} << 20;
constexpr auto kAll = static_cast<size_t>(StatType::AGGREGATE);
constexpr auto kSmall = static_cast<size_t>(StatType::SMALL_POOL);
constexpr auto kLarge = static_cast<size_t>(StatType::LARGE_POOL);

#define CHECK(condition) IN_CHILD(condition)

struct Words {
  const char* library;
  const char* shim;
  std::string stamp;
  const char* driver;
};

template <typename Function>
Function* symbol(void* from, const char* name) {
  auto* const found = reinterpret_cast<Function*>(dlsym(from, name));
  CHECK(found != nullptr);
  return found;
}

// Devices of 64 MiB; what is queued takes up to `delay` ticks.
void* load(const Words& words, int64_t delay = 0) {
  const headroom_fake_setting setting{2, 64 << 20, 2 << 20, delay, 1, 1, 1, 1};
  headroom_fake_set_up(&setting);
  void* const library = dlopen(words.library, RTLD_NOW);
  CHECK(library != nullptr);
  headroom_configuration configuration{};
  configuration.struct_bytes = sizeof configuration;
  configuration.driver_path = words.driver;
  CHECK(symbol<decltype(headroom_configure)>(library, "headroom_configure")(&configuration) == 0);
  void* const shim = dlopen(words.shim, RTLD_NOW);
  if (shim == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  CHECK(shim != nullptr);
  return shim;
}

int install(void* shim, const Words& words, const std::string& stamp) {
  return symbol<int(const char*, const char*)>(shim, "headroom_shim_install")(words.library,
                                                                              stamp.c_str());
}

torch_cuda::CUDAAllocator& installed(const Words& words, int64_t delay = 0) {
  void* const shim = load(words, delay);
  CHECK(install(shim, words, words.stamp) == 0);
  torch_cuda::init(2);
  return *torch_cuda::get();
}

c10::cuda::CUDAStream stream_of(intptr_t id) {
  const c10::Stream stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, 0), id);
  return c10::cuda::CUDAStream(c10::cuda::CUDAStream::UNCHECKED, stream);
}
cudaStream_t raw(intptr_t id) { return reinterpret_cast<cudaStream_t>(id); }

const stand_in::Filter kEvery = [](cudaStream_t) { return true; };
const c10::MempoolId_t kPool{0, 3};

// What the profiler would have been told.
struct Told {
  int64_t bytes;
  size_t allocated;
  size_t reserved;
  int device;
};
struct Profiler final : c10::MemoryReportingInfoBase {
  std::vector<Told> told;
  std::vector<Told> out_of_memory;
  void reportMemoryUsage(void*, int64_t bytes, size_t allocated, size_t reserved,
                         c10::Device device) override {
    told.push_back({bytes, allocated, reserved, device.index()});
  }
  void reportOutOfMemory(int64_t bytes, size_t allocated, size_t reserved,
                         c10::Device device) override {
    out_of_memory.push_back({bytes, allocated, reserved, device.index()});
  }
  bool memoryProfilingEnabled() const override { return true; }
};

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::OutOfMemoryError& error) {
    return std::string("out of memory: ") + error.what_without_backtrace();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

bool begins(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }

void requests_come_from_ours_and_go_back_to_it(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words);
  CHECK(c10::GetAllocator(c10::kCUDA) == &one);
  CHECK(dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(c10::kCUDA)) == &one);
  CHECK(one.name() == "headroom" && one.initialized() && native().called("init") == 1);
  CHECK(one.raw_alloc(0) == nullptr && one.allocate(0).get() == nullptr);
  stand_in::set_device(1);
  void* const second = one.raw_alloc(3 * kMiB);
  stand_in::set_device(0);
  {
    const c10::DataPtr block = one.allocate(1000);
    CHECK(block.get() != nullptr && block.get() == block.get_context());
    CHECK(block.get_deleter() == one.raw_deleter() && block.device().is_cuda());
    CHECK(one.getDeviceStats(0).allocated_bytes[kAll].current == 1024);
    CHECK(one.getDeviceStats(1).allocated_bytes[kAll].current == 3 << 20);
  }
  std::thread([&] { one.raw_delete(second); }).join();  // on another device, and not known to it
  for (const c10::DeviceIndex device : {0, 1}) {
    CHECK(one.getDeviceStats(device).allocation[kAll].current == 0);
  }
  CHECK(!native().owns(second));
  int local = 0;
  CHECK(begins(refusal([&] { one.raw_delete(&local); }), "invalid device pointer"));
  CHECK(refusal([&] { one.getDeviceStats(5); }) != "");
  one.enable(false);  // no caching at all: the native one asks the driver
  CHECK(one.allocate(64).get_deleter() == native().raw_deleter());
}

void statistics_are_as_torchs_own_type_counts(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words);
  Stat blocks;
  Stat allocated;
  Stat requested;
  std::map<void*, size_t> live;
  std::mt19937 random(7);
  const auto same = [](const Stat& a, const Stat& b) {
    return a.current == b.current && a.peak == b.peak && a.allocated == b.allocated &&
           a.freed == b.freed;
  };
  for (int i = 0; i < 20000; ++i) {
    if (live.empty() || (live.size() < 40 && random() % 2 == 0)) {
      const size_t bytes = 1 + random() % (random() % 4 == 0 ? kMiB : 2000);
      live[one.raw_alloc_with_stream(bytes, raw(random() % 3))] = bytes;
      blocks.increase(1);
      allocated.increase((bytes + 511) / 512 * 512);
      requested.increase(bytes);
    } else {
      const auto block = std::next(live.begin(), random() % live.size());
      one.raw_delete(block->first);
      blocks.decrease(1);
      allocated.decrease((block->second + 511) / 512 * 512);
      requested.decrease(block->second);
      live.erase(block);
    }
    if (i % 3000 == 2999) {
      one.resetPeakStats(0);
      for (Stat* const figure : {&blocks, &allocated, &requested}) figure->reset_peak();
    }
    if (i % 4500 == 4499) {
      one.resetAccumulatedStats(0);
      for (Stat* const figure : {&blocks, &allocated, &requested}) figure->reset_accumulated();
    }
    const auto s = one.getDeviceStats(0);
    CHECK(same(s.allocation[kAll], blocks) && same(s.allocation[kLarge], blocks));
    CHECK(same(s.allocated_bytes[kAll], allocated) && same(s.requested_bytes[kAll], requested));
    CHECK(same(s.allocated_bytes[kSmall], Stat{}));
    CHECK(s.reserved_bytes[kAll].current >= s.active_bytes[kAll].current);
    CHECK(s.active_bytes[kAll].current >= s.allocated_bytes[kAll].current);
  }
}

void what_a_pool_claims_is_the_native_ones(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words);
  void* const before = one.raw_alloc(5000);
  one.beginAllocateToPool(0, kPool, [](cudaStream_t stream) { return stream == raw(9); });
  c10::DataPtr other = one.allocate(100);
  stand_in::set_stream(raw(9));
  c10::DataPtr claimed = one.allocate(100);
  void* const by_stream = one.raw_alloc_with_stream(100, raw(9));
  stand_in::set_device(1);
  void* const elsewhere = one.raw_alloc(100);  // the pool is of device 0
  stand_in::set_device(0);
  CHECK(!native().owns(other.get()) && native().owns(claimed.get()) && native().owns(by_stream));
  CHECK(!native().owns(elsewhere));
  CHECK(claimed.get_deleter() == one.raw_deleter());  // graph trees compare them
  CHECK(one.getDeviceStats(0).allocation[kAll].current == 4);
  one.raw_delete(before);  // ours, though the pool is begun
  one.endAllocateToPool(0, kPool);
  c10::DataPtr after = one.allocate(100);
  CHECK(!native().owns(after.get()));
  one.raw_delete(by_stream);
  CHECK(!native().owns(by_stream) && native().owns(claimed.get()));
  one.recordStream(claimed, stream_of(4));  // with the deleter that the native one looks for
  CHECK(native().streams[claimed.get()] == std::vector<cudaStream_t>{raw(4)});
  one.recordStream(other, stream_of(4));
  const c10::DataPtr foreign(
      &one, &one, [](void*) {}, other.device());
  one.recordStream(foreign, stream_of(4));
  CHECK(native().streams.size() == 1);
  claimed.clear();
  other.clear();
  after.clear();
  one.raw_delete(elsewhere);
  const auto s = one.getDeviceStats(0);
  CHECK(s.allocation[kAll].current == 0 && s.allocated_bytes[kAll].current == 0);
  CHECK(one.getPoolUseCount(0, kPool) == 7);
  one.releasePool(0, kPool);
  CHECK(native().called("releasePool") == 1);
}

void a_pools_state_is_saved_and_restored(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words);
  one.beginAllocateToPool(0, kPool, kEvery);
  c10::DataPtr kept = one.allocate(100);
  c10::DataPtr gone = one.allocate(100);
  const auto state = one.getCheckpointState(0, kPool);
  void* const address = gone.get();
  gone.clear();
  CHECK(one.checkPoolLiveAllocations(0, kPool, {kept.get()}));
  auto delta = one.setCheckpointPoolState(0, state);
  CHECK(delta.ptrs_freed == std::vector<void*>{kept.get()});
  CHECK(delta.dataptrs_allocd.size() == 2);
  for (at::DataPtr& block : delta.dataptrs_allocd) {
    // PyTorch gives these to storages, and takes the deleter from them again by this comparison.
    CHECK(block.compare_exchange_deleter(one.raw_deleter(), &c10::detail::deleteNothing));
    CHECK(block.compare_exchange_deleter(&c10::detail::deleteNothing, one.raw_deleter()));
    if (block.get() == address) gone = std::move(block);
    block.release_context();
  }
  CHECK(one.checkPoolLiveAllocations(0, kPool, {kept.get(), address}));
  gone.clear();
  kept.clear();
  CHECK(one.checkPoolLiveAllocations(0, kPool, {}));
  one.endAllocateToPool(0, kPool);
}

void nothing_that_a_capture_forbids_happens_during_one(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words, 50);
  std::vector<c10::DataPtr> used;
  for (int i = 0; i < 20; ++i) used.push_back(one.allocate(kMiB));
  one.beginAllocateToPool(0, kPool, [](cudaStream_t stream) { return stream == raw(9); });
  headroom_fake_capture(1);  // cudaStreamBeginCapture; nobody has said so to the allocator yet
  for (c10::DataPtr& block : used) {
    headroom_fake_work(raw(5), reinterpret_cast<uint64_t>(block.get()), 512);
    one.recordStream(block, stream_of(5));
    block.clear();
    const c10::DataPtr next = one.allocate(kMiB);  // would look at events, or unmap
  }
  one.markCaptureBegin(0);
  stand_in::set_stream(raw(9));
  CHECK(begins(refusal([&] { one.raw_alloc(63 * kMiB); }), "out of memory: "));
  stand_in::set_stream(nullptr);
  one.emptyCache();
  CHECK(headroom_fake_violations() == 0);
  headroom_fake_capture(-1);
  one.markCaptureEnd(0);
  one.endAllocateToPool(0, kPool);
  one.emptyCache();
  const auto s = one.getDeviceStats(0);
  CHECK(s.active_bytes[kAll].current == 0 && s.reserved_bytes[kAll].current == 0);
}

void each_gives_back_its_cache_for_the_other(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words);
  int observed = 0;
  one.attachOutOfMemoryObserver([&](int64_t device, size_t bytes, size_t total, size_t free) {
    ++observed;
    CHECK(device == 0 && bytes >= 60 * kMiB && total == 64 * kMiB && free <= total);
  });
  one.createOrIncrefPool(0, kPool);
  one.beginAllocateToPool(0, kPool, kEvery);
  void* pooled = one.raw_alloc(40 * kMiB);
  one.endAllocateToPool(0, kPool);
  one.raw_delete(pooled);  // cached: 40 of 64 MiB
  void* const mine = one.raw_alloc(60 * kMiB);
  CHECK(mine != nullptr && !native().owns(mine) && native().called("emptyCache") == 1);
  one.raw_delete(mine);  // and now 60 of 64 are cached here
  one.beginAllocateToPool(0, kPool, kEvery);
  pooled = one.raw_alloc(40 * kMiB);
  CHECK(native().owns(pooled));
  auto s = one.getDeviceStats(0);
  CHECK(s.num_ooms == 0 && observed == 0);  // nobody was refused
  CHECK(s.reserved_bytes[kAll].current == 40 << 20);
  CHECK(begins(refusal([&] { one.raw_alloc(60 * kMiB); }), "out of memory: CUDA out of memory."));
  CHECK(observed == 1 && one.getDeviceStats(0).num_ooms == 1);
  one.endAllocateToPool(0, kPool);
  CHECK(begins(refusal([&] { one.raw_alloc(60 * kMiB); }),
               "out of memory: CUDA out of memory. Tried to allocate 60.00 MiB. GPU 0"));
  s = one.getDeviceStats(0);
  CHECK(observed == 2 && s.num_ooms == 2 && s.num_alloc_retries >= 1);
  CHECK(begins(refusal([&] { one.raw_alloc(~size_t{0} - 5); }), "out of memory: "));
  CHECK(observed == 3);
}

void a_pool_that_is_begun_keeps_nobody_from_memory(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words);
  one.raw_delete(one.raw_alloc_with_stream(40 * kMiB, raw(1)));  // cached, on a stream of its own
  one.beginAllocateToPool(0, kPool, [](cudaStream_t stream) { return stream == raw(9); });
  void* const block = one.raw_alloc_with_stream(50 * kMiB, raw(2));
  CHECK(block != nullptr && !native().owns(block) && one.getDeviceStats(0).num_ooms == 0);
  one.raw_delete(block);
  one.markCaptureBegin(0);  // but a capture does
  CHECK(begins(refusal([&] { one.raw_alloc_with_stream(40 * kMiB, raw(3)); }), "out of memory"));
  one.markCaptureEnd(0);
  one.endAllocateToPool(0, kPool);
}

void a_pool_for_hard_times_is_used_in_them(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words);
  one.createOrIncrefPool(0, kPool);
  one.beginAllocateToPool(0, kPool, kEvery);
  void* const first = one.raw_alloc(30 * kMiB);
  void* const second = one.raw_alloc(2 * kMiB);
  one.endAllocateToPool(0, kPool);
  one.setUseOnOOM(0, kPool, true);
  void* const mine = one.raw_alloc(32 * kMiB);
  one.raw_delete(second);
  one.beginAllocateToPool(1, {0, 8}, kEvery);  // somebody is in a pool: nothing is given back
  void* const last = one.raw_alloc(kMiB);
  one.endAllocateToPool(1, {0, 8});
  CHECK(!native().owns(mine) && last == second && native().owns(last));
  CHECK(one.getDeviceStats(0).num_ooms == 0);
  one.raw_delete(last);
  one.raw_delete(first);
  one.raw_delete(mine);
  CHECK(one.getDeviceStats(0).allocated_bytes[kAll].current == 0);
}

void the_profiler_is_told_the_sums(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words);
  const auto profiler = std::make_shared<Profiler>();
  void* const unseen = one.raw_alloc(kMiB);
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, profiler);
    c10::DataPtr mine = one.allocate(1000);
    one.beginAllocateToPool(0, kPool, kEvery);
    c10::DataPtr pooled = one.allocate(2 * kMiB);
    one.endAllocateToPool(0, kPool);
    mine.clear();
    pooled.clear();
    CHECK(refusal([&] { one.raw_alloc(65 * kMiB); }) != "");
    one.createOrIncrefPool(0, kPool);
    one.beginAllocateToPool(0, kPool, kEvery);
    CHECK(refusal([&] { one.raw_alloc(65 * kMiB); }) != "");
    one.endAllocateToPool(0, kPool);
  }
  const std::vector<Told>& told = profiler->told;
  CHECK(told.size() == 4 && profiler->out_of_memory.size() == 2);
  const std::vector<int64_t> bytes{1024, 2 << 20, -1024, -(2 << 20)};
  size_t allocated = kMiB;
  for (size_t i = 0; i < told.size(); ++i) {
    allocated += static_cast<size_t>(bytes[i]);
    CHECK(told[i].bytes == bytes[i] && told[i].allocated == allocated && told[i].device == 0);
    CHECK(told[i].reserved >= told[i].allocated && told[i].reserved <= 64 * kMiB);
  }
  one.raw_delete(unseen);
  CHECK(told.size() == 4);  // the profiler has gone
}

void trackers_see_blocks_come_and_go(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words);
  std::vector<stand_in::TraceEntry> seen;
  one.attachAllocatorTraceTracker(
      [&](const stand_in::TraceEntry& entry) { seen.push_back(entry); });
  CHECK(native().called("attachAllocatorTraceTracker") == 1);
  void* const block = one.raw_alloc_with_stream(700, raw(3));
  one.raw_delete(block);
  CHECK(refusal([&] { one.raw_alloc(65 * kMiB); }) != "");
  CHECK(seen.size() == 3);
  CHECK(seen[0].action_ == stand_in::TraceEntry::ALLOC && seen[0].size_ == 1024);
  CHECK(seen[0].addr_ == reinterpret_cast<size_t>(block) && seen[0].stream_ == raw(3));
  CHECK(seen[1].action_ == stand_in::TraceEntry::FREE_REQUESTED && seen[1].size_ == 1024);
  CHECK(seen[2].action_ == stand_in::TraceEntry::OOM && seen[2].size_ == 65 * kMiB);
}

void the_limit_is_of_both_together(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words);
  CHECK(one.getMemoryFraction(0) == 1);
  one.setMemoryFraction(0.5, 0);
  CHECK(one.getMemoryFraction(0) == 0.5 && refusal([&] { one.setMemoryFraction(2, 0); }) != "");
  one.createOrIncrefPool(0, kPool);
  one.beginAllocateToPool(0, kPool, kEvery);
  void* const pooled = one.raw_alloc(20 * kMiB);
  one.endAllocateToPool(0, kPool);
  CHECK(begins(refusal([&] { one.raw_alloc(14 * kMiB); }), "out of memory"));  // 34 of 32
  void* const mine = one.raw_alloc(12 * kMiB);
  one.beginAllocateToPool(0, kPool, kEvery);
  CHECK(begins(refusal([&] { one.raw_alloc(2 * kMiB); }), "out of memory"));
  one.raw_delete(mine);
  void* const next = one.raw_alloc(2 * kMiB);  // ours gave its cache back
  CHECK(native().owns(next));
  CHECK(one.getMemoryFraction(0) == 0.5);
  one.raw_delete(pooled);
  one.raw_delete(next);
  one.endAllocateToPool(0, kPool);
  // What the native one has given back is ours to take, whoever had it do so.
  one.emptyCache();
  void* const all = one.raw_alloc(32 * kMiB);
  CHECK(!native().owns(all));
  one.raw_delete(all);
  one.beginAllocateToPool(0, kPool, kEvery);
  one.raw_delete(one.raw_alloc(20 * kMiB));
  one.endAllocateToPool(0, kPool);
  native().emptyCache({0, 0});
  CHECK(!native().owns(one.raw_alloc(30 * kMiB)));
}

void what_it_holds_can_be_seen(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words);
  c10::DataPtr kept = one.allocate(3 * kMiB);
  one.raw_delete(one.raw_alloc(8 * kMiB));
  one.beginAllocateToPool(0, kPool, kEvery);
  c10::DataPtr pooled = one.allocate(2 * kMiB);
  one.endAllocateToPool(0, kPool);
  const auto s = one.getDeviceStats(0);
  const auto all = one.snapshot();
  CHECK(all.config_metadata.last_allocator_settings == "native");
  int64_t total = 0;
  size_t live = 0;
  for (const auto& segment : all.segments) {
    total += static_cast<int64_t>(segment.total_size);
    size_t tiled = 0;
    for (const auto& block : segment.blocks) {
      tiled += block.size;
      if (block.allocated) live += block.requested_size;
    }
    CHECK(tiled == segment.total_size || segment.owner_private_pool_id == kPool);
  }
  CHECK(total == s.reserved_bytes[kAll].current && live == 3 * kMiB);
  CHECK(one.snapshot(kPool, false).segments.size() == 1);
  size_t largest = 0;
  one.cacheInfo(0, &largest);
  CHECK(largest == one.getMemoryInfo(0).first && largest >= 40 * kMiB);
  largest = 1;
  one.cacheInfo(0, &largest);  // what is cached: all that lies free in one piece
  CHECK(largest >= 5 * kMiB && largest <= 11 * kMiB && native().called("cacheInfo") == 0);
  CHECK(one.getMemoryInfo(0).second == 64 * kMiB);
  size_t bytes = 0;
  auto* const base = static_cast<char*>(one.getBaseAllocation(kept.get(), &bytes));
  CHECK(base <= kept.get() && static_cast<char*>(kept.get()) < base + bytes);
  CHECK(one.getBaseAllocation(pooled.get(), &bytes) == pooled.get() && bytes == 2 * kMiB);
}

void between_processes_and_devices(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words);
  const c10::DataPtr mine = one.allocate(100);
  one.beginAllocateToPool(0, kPool, kEvery);
  const c10::DataPtr pooled = one.allocate(100);
  one.endAllocateToPool(0, kPool);
  CHECK(
      begins(refusal([&] { one.shareIpcHandle(mine.get()); }), "not available under headroom run"));
  CHECK(one.shareIpcHandle(pooled.get()).handle == "handle");
  CHECK(one.getIpcDevPtr("somebody's") != nullptr);
  const auto copy = [&](const c10::DataPtr& from, ptrdiff_t into, int to, bool has_access) {
    one.memcpyAsync(nullptr, to, static_cast<char*>(from.get()) + into, 0, 1, nullptr, has_access);
    return stand_in::peer_copies();
  };
  CHECK(copy(mine, 0, 0, false) == 0 && copy(mine, 0, 1, true) == 0);
  CHECK(copy(pooled, 8, 0, false) == 0 && copy(pooled, 8, 1, true) == 0);
  CHECK(native().called("memcpyAsync") == 4);
  // Anywhere in a block, whose it may be: a[1:].copy_(b[1:]).
  CHECK(copy(mine, 0, 1, false) == 1 && copy(mine, 8, 1, false) == 2);
  CHECK(copy(pooled, 0, 1, false) == 3 && copy(pooled, 8, 1, false) == 4);
  CHECK(native().called("memcpyAsync") == 4);
}

void another_pytorch_is_refused(const Words& words) {
  void* const shim = load(words);
  torch_cuda::CUDAAllocator* const before = torch_cuda::get();
  auto* const why = symbol<const char*()>(shim, "headroom_shim_error");
  auto* const stamp = symbol<const char*()>(shim, "headroom_shim_stamp");
  CHECK(stamp() == words.stamp);
  CHECK(install(shim, words, words.stamp + ".1") == -1);
  CHECK(std::string(why()).find("it was compiled for " + words.stamp) == 0);
  Words elsewhere = words;
  elsewhere.library = "/nonexistent/libheadroom_torch.so";
  CHECK(install(shim, elsewhere, words.stamp) == -1);
  CHECK(std::string(why()).find("is not loaded") != std::string::npos);
  torch_cuda::init(2);
  CHECK(install(shim, words, words.stamp) == -1);
  CHECK(std::string(why()) == "CUDA was used before");
  CHECK(torch_cuda::get() == before && before == &native());
}

void a_forked_child_leaves_its_parents_blocks_alone(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words);
  c10::DataPtr kept = one.allocate(100);
  const int status = headroom::runtime::fake::status_of_child([&] {
    kept.clear();
    CHECK(refusal([&] { one.raw_alloc(100); }) != "");
  });
  CHECK(status == 0 && one.getDeviceStats(0).allocation[kAll].current == 1);
}

c10::DataPtr late;  // let go by a destructor, when the process ends
void an_end_with_everything_alive(const Words& words) { late = installed(words).allocate(100); }

void many_threads(const Words& words) {
  torch_cuda::CUDAAllocator& one = installed(words, 5);
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 8; ++number) {
    threads.emplace_back([&one, number] {
      std::mt19937 random(number);
      const c10::MempoolId_t pool{0, 100 + number};
      const auto self = std::this_thread::get_id();
      std::vector<c10::DataPtr> live;
      one.createOrIncrefPool(0, pool);
      for (int i = 0; i < 3000; ++i) {
        const bool is_pooled = i % 50 > 40 && number % 2 == 0;
        if (is_pooled) {
          one.beginAllocateToPool(
              0, pool, [self](cudaStream_t) { return std::this_thread::get_id() == self; });
        }
        c10::DataPtr block = one.allocate(1 + random() % 20000);
        CHECK(native().owns(block.get()) == is_pooled);
        if (is_pooled) one.endAllocateToPool(0, pool);
        if (random() % 4 == 0)
          one.recordStream(block, stream_of(static_cast<intptr_t>(number) + 1));
        live.push_back(std::move(block));
        while (live.size() > random() % 8) live.erase(live.begin() + random() % live.size());
        if (i % 500 == 0) one.emptyCache();
        if (i % 100 == 0) CHECK(one.getDeviceStats(0).allocated_bytes[kAll].current >= 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto s = one.getDeviceStats(0);
  CHECK(s.allocation[kAll].current == 0 && s.allocated_bytes[kAll].current == 0);
  CHECK(s.allocation[kAll].allocated == s.allocation[kAll].freed);
}

const std::map<std::string, void (*)(const Words&)> kCases{
#define CASE(name) {#name, name}
    CASE(requests_come_from_ours_and_go_back_to_it),
    CASE(statistics_are_as_torchs_own_type_counts),
    CASE(what_a_pool_claims_is_the_native_ones),
    CASE(a_pools_state_is_saved_and_restored),
    CASE(nothing_that_a_capture_forbids_happens_during_one),
    CASE(each_gives_back_its_cache_for_the_other),
    CASE(a_pool_that_is_begun_keeps_nobody_from_memory),
    CASE(a_pool_for_hard_times_is_used_in_them),
    CASE(the_profiler_is_told_the_sums),
    CASE(trackers_see_blocks_come_and_go),
    CASE(the_limit_is_of_both_together),
    CASE(what_it_holds_can_be_seen),
    CASE(between_processes_and_devices),
    CASE(another_pytorch_is_refused),
    CASE(a_forked_child_leaves_its_parents_blocks_alone),
    CASE(an_end_with_everything_alive),
    CASE(many_threads),
#undef CASE
};

}  // namespace

int main(int count, char** words) {
  if (count == 2 && std::string(words[1]) == "--list") {
    for (const auto& [name, run] : kCases) std::puts(name.c_str());
    return 0;
  }
  if (count != 6 || kCases.count(words[1]) == 0) return 2;
  kCases.at(words[1])({words[2], words[3], words[4], words[5]});
  if (headroom_fake_violations() != 0) {
    std::fprintf(stderr, "%s\n", headroom_fake_first_violation());
    return 1;
  }
  std::puts("held");
  return 0;
}
