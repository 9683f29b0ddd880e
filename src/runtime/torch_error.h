// Throws PyTorch's own OutOfMemoryError without being compiled against PyTorch.
//
// Problem: where there is no memory, code above us expects c10::OutOfMemoryError, which becomes
// torch.OutOfMemoryError in Python and which programs catch to try a smaller batch. Its class
// belongs to libc10.so, whose headers we do not have and whose version we do not know.
// Way: the class's constructor, destructor and type are exported by libc10.so under names that the
// C++ ABI prescribes, and have been the same since PyTorch 1.5: (SourceLocation, std::string). They
// are looked up by name, as is the __cxa_throw of the libstdc++ that PyTorch uses, so that the
// exception is thrown and caught by one and the same. PyTorch before 2.6 was built with the older
// std::string; torch_error_older.cpp is this file compiled for that.
// Source: c10/util/Exception.h of PyTorch 2.13 and 2.0.
#pragma once

namespace headroom::runtime {

// Everything that is needed to throw, found once; immutable then.
struct TorchError {
  void* construct = nullptr;  // void(void* self, SourceLocation, std::string)
  void* destroy = nullptr;    // void(void* self)
  void* type = nullptr;       // std::type_info of OutOfMemoryError
  void* allocate = nullptr;   // __cxa_allocate_exception
  void* throw_it = nullptr;   // __cxa_throw
  void* vtable = nullptr;     // of OutOfMemoryError, where only its base can be constructed
  bool has_older_string = false;

  [[nodiscard]] bool is_complete() const {
    return construct != nullptr && destroy != nullptr && type != nullptr && allocate != nullptr &&
           throw_it != nullptr;
  }
};

// Looks in the libraries that the process has loaded; loads none.
[[nodiscard]] TorchError find_torch_error();

// By the std::string that each is compiled with. REQUIRES: error.is_complete().
[[noreturn]] void throw_with_newer_string(const TorchError& error, const char* message);
[[noreturn]] void throw_with_older_string(const TorchError& error, const char* message);

}  // namespace headroom::runtime
