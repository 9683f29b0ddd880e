// DevicePages: one device's memory as the driver gives it: address space reserved ahead, and pages
// mapped into it one by one, each with a handle of its own, so that a page can go where it is
// needed.
//
// Where the device has no virtual memory management, whole pieces come from cuMemAlloc instead.
// A page that is unmapped stays with us as an idle page until release_idle(): it still counts as
// reserved. Every call but the constant ones REQUIRES the driver lock of device_allocator.h and a
// DriverScope; reserved_bytes() may be read from anywhere.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/driver.h"

namespace headroom::runtime {

class DevicePages {
 public:
  enum class Outcome : uint8_t { done, no_memory, failed };

  struct Wishes {
    bool without_virtual_memory = false;
    // Other devices of this process will copy from and to this one by calls that do not name the
    // devices: those know cuMemAlloc's memory alone, unless each reaches the other's (NOTE below).
    bool needs_peers = false;
    // A device was opened before that was not told so.
    bool is_late = false;
  };
  // Initialises the driver and takes the device's primary context, PyTorch's own.
  //
  // NOTE: PyTorch copies between devices that have no peer access by cudaMemcpyPeerAsync where
  // memory may be mapped pages, and by cudaMemcpyAsync where it believes that all is cudaMalloc's,
  // as behind its C interface for other allocators (memcpyAsync() in CUDACachingAllocator.cpp and
  // CUDAPluggableAllocator.cpp of PyTorch 2.13).
  static Result<std::unique_ptr<DevicePages>> open(const Driver& driver, int ordinal,
                                                   const Wishes& wishes);

  [[nodiscard]] const Driver& driver() const { return driver_; }
  [[nodiscard]] CudaContext* context() const { return context_; }
  [[nodiscard]] bool is_virtual() const { return why_plain_.empty(); }
  // Why whole pieces are taken in place of pages; empty where pages are.
  [[nodiscard]] const std::string& why_plain() const { return why_plain_; }
  // Why peers have no access to what is mapped, though they could have had it; empty where they do,
  // and where nothing is mapped.
  [[nodiscard]] std::string why_no_peers() const;
  [[nodiscard]] int64_t page_bytes() const { return page_bytes_; }
  [[nodiscard]] int64_t total_bytes() const { return total_bytes_; }
  [[nodiscard]] int64_t reserved_bytes() const { return reserved_bytes_.load(); }
  // What the driver was asked so far: pieces taken, pieces given back.
  [[nodiscard]] int64_t allocations() const { return allocations_.load(); }
  [[nodiscard]] int64_t releases() const { return releases_.load(); }

  // Of all memory that is reserved here.
  void set_limit(int64_t bytes) { limit_ = bytes; }
  [[nodiscard]] int64_t limit() const { return limit_; }

  // Address space without memory, in whole pages. Nothing where there is none left.
  std::optional<int64_t> reserve(int64_t bytes);
  void unreserve(int64_t address, int64_t bytes);  // nothing mapped in it
  // REQUIRES: whole pages of reserved address space that nothing is mapped to. All or nothing; what
  // was taken before it was refused is idle then.
  Outcome map(int64_t address, int64_t bytes);
  // REQUIRES: whole mapped pages that no work on the device touches any more.
  void unmap(int64_t address, int64_t bytes);
  void release_idle();

  // cuMemAlloc and cuMemFree.
  Outcome allocate(int64_t bytes, int64_t& address);
  void free(int64_t address, int64_t bytes);

  struct Info {
    int64_t free_bytes = 0;  // 0 where the driver does not say
    int64_t total_bytes = 0;
    bool is_known = true;  // the driver said how much is free
  };
  [[nodiscard]] Info info() const;
  // Waits until the device has done all its work. False while that is not allowed.
  bool synchronize();
  // The same, but false, too, where it takes longer: then somebody else waits on, and until that
  // is over every further call is refused at once. REQUIRES: one thread at a time.
  bool synchronize_within(std::chrono::milliseconds most);
  // Since it was forgotten; empty where none.
  [[nodiscard]] const std::string& last_error() const { return last_error_; }
  void forget_last_error() { last_error_.clear(); }

 private:
  struct FreeDeleter {
    void operator()(void* memory) const { std::free(memory); }
  };
  struct Reservation {
    int64_t address = 0;
    int64_t bytes = 0;
    int64_t used = 0;                                    // from its beginning
    std::unique_ptr<CudaHandle[], FreeDeleter> handles;  // of each page; 0: not mapped
  };
  struct Span {
    int64_t address = 0;
    int64_t bytes = 0;
  };

  explicit DevicePages(const Driver& driver) : driver_(driver) {}
  Result<void> prepare(int ordinal, const Wishes& wishes);
  bool can_map_pages(const Wishes& wishes);
  void forget_pages();
  void share_handles();
  std::optional<int> add_peers();
  bool try_a_page();
  bool add_reservation(int64_t least_bytes);
  [[nodiscard]] CudaHandle& handle_at(int64_t address) const;
  bool has_room(int64_t bytes);
  Outcome take_page(CudaHandle& handle);
  bool set_access(int64_t address, int64_t bytes);
  void note(const char* call, CudaResult error);

  const Driver& driver_;
  int ordinal_ = 0;
  CudaDevice device_ = 0;
  CudaContext* context_ = nullptr;
  std::string why_plain_;
  struct Waiter;                             // a thread that waits for the device
  std::shared_ptr<Waiter> waiter_;           // null, or the last one
  std::atomic<CudaResult> peers_error_ = 0;  // that closed our memory to them
  std::string last_error_;
  int64_t page_bytes_ = 0;
  int64_t total_bytes_ = 0;
  int64_t limit_ = 0;
  CudaAllocationProperties properties_;
  std::vector<CudaAccess> access_;  // this device first, then its peers
  std::vector<Reservation> reservations_;
  std::vector<Span> vacant_;  // spans that were given back
  std::vector<CudaHandle> idle_;
  std::atomic<int64_t> reserved_bytes_ = 0;
  std::atomic<int64_t> allocations_ = 0;
  std::atomic<int64_t> releases_ = 0;
};

}  // namespace headroom::runtime
