// BackwardFunction: what a node runs in backward, kept in place.
//
// A step makes tens of thousands of nodes, and what their functions remember (a size, a few
// strides) is more than a std::function keeps without the heap. Larger captures go to the heap.
// Neither copied nor moved, as nodes are not; not thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace headroom::op {

template <typename... Args>
class BackwardFunction {
 public:
  BackwardFunction() = default;
  BackwardFunction(const BackwardFunction&) = delete;
  BackwardFunction& operator=(const BackwardFunction&) = delete;
  ~BackwardFunction() { reset(); }

  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, BackwardFunction>)
  BackwardFunction& operator=(F&& function) {
    using Function = std::remove_cvref_t<F>;
    reset();
    if constexpr (sizeof(Function) <= kCapacity && alignof(Function) <= alignof(std::max_align_t)) {
      new (storage_) Function(std::forward<F>(function));
      call_ = [](void* at, Args... args) { (*static_cast<Function*>(at))(args...); };
      if constexpr (!std::is_trivially_destructible_v<Function>) {
        destroy_ = [](void* at) { static_cast<Function*>(at)->~Function(); };
      }
    } else {
      new (storage_) Function*(new Function(std::forward<F>(function)));
      call_ = [](void* at, Args... args) { (**static_cast<Function**>(at))(args...); };
      destroy_ = [](void* at) { delete *static_cast<Function**>(at); };
    }
    return *this;
  }

  // REQUIRES: a function was assigned.
  void operator()(Args... args) { call_(storage_, args...); }

  void reset() {
    if (destroy_) std::exchange(destroy_, nullptr)(storage_);
    call_ = nullptr;
  }

 private:
  static constexpr size_t kCapacity = 160;  // two Dims and some

  void (*call_)(void*, Args...) = nullptr;
  void (*destroy_)(void*) = nullptr;
  alignas(std::max_align_t) std::byte storage_[kCapacity];
};

}  // namespace headroom::op
