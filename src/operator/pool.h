// FreeList: memory of objects that are gone, kept for the next ones of their kind.
//
// A step makes and drops tens of thousands of tensors, storages and nodes, and holds few of them at
// once. Each thread has lists of its own, which go with the thread; nothing is returned before.
// Under AddressSanitizer nothing is kept, so that a use after the end is found. Cost: nanoseconds.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace headroom::op {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kKeepsMemory = false;
#else
inline constexpr bool kKeepsMemory = true;
#endif

// For a class's own operator new and delete.
template <size_t kSize>
class FreeList {
 public:
  FreeList() = default;
  FreeList(const FreeList&) = delete;
  FreeList& operator=(const FreeList&) = delete;
  ~FreeList() {
    while (first_) ::operator delete(take());
  }

  static FreeList& of_thread() {
    thread_local FreeList list;
    return list;
  }
  [[nodiscard]] void* allocate() { return first_ ? take() : ::operator new(kSize); }
  void release(void* memory) {
    if (!kKeepsMemory) {
      ::operator delete(memory);
      return;
    }
    first_ = new (memory) Link{first_};
  }

 private:
  struct Link {
    Link* next;
  };
  static_assert(kSize >= sizeof(Link));

  void* take() {
    Link* link = first_;
    first_ = link->next;
    return link;
  }

  Link* first_ = nullptr;
};

// Whole objects, kept with the capacity of the vectors inside them.
// REQUIRES of T: default constructible; whoever recycles one has emptied it.
template <typename T>
class ObjectPool {
 public:
  ObjectPool() = default;
  ObjectPool(const ObjectPool&) = delete;
  ObjectPool& operator=(const ObjectPool&) = delete;
  ~ObjectPool() {
    for (T* object : idle_) delete object;
  }

  static ObjectPool& of_thread() {
    thread_local ObjectPool pool;
    return pool;
  }
  [[nodiscard]] T* take() {
    if (idle_.empty()) return new T;
    T* object = idle_.back();
    idle_.pop_back();
    return object;
  }
  void recycle(T* object) {
    if (kKeepsMemory) {
      idle_.push_back(object);
    } else {
      delete object;
    }
  }

 private:
  std::vector<T*> idle_;
};

}  // namespace headroom::op
