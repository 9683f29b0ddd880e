#include "runtime/torch_error.h"

#include <dlfcn.h>

#include "runtime/abi.h"
#include "runtime/torch_error_throw.h"

namespace headroom::runtime {
namespace {

constexpr const char* kNewer =
    "ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr const char* kOlder = "ENS_14SourceLocationESs";
constexpr const char* kOwn =
    "_ZN3c1016OutOfMemoryErrorC1";                // where it has a constructor of its own
constexpr const char* kBase = "_ZN3c105ErrorC1";  // before that, its base's is its own

// A library that is loaded already, or null.
void* loaded(const char* name) { return dlopen(name, RTLD_LAZY | RTLD_NOLOAD); }

void* symbol(void* library, const char* begin, const char* end = "") {
  if (library == nullptr) return nullptr;
  return dlsym(library, (std::string(begin) + end).c_str());
}

// The first of the libraries that has it.
void* anywhere(const char* name) {
  for (const char* library : {"libc10.so", "libtorch_python.so", "libtorch_cpu.so"}) {
    if (void* const found = symbol(loaded(library), name)) return found;
  }
  return nullptr;
}

void find_constructor(void* c10, TorchError& error) {
  for (const char* const class_name : {kOwn, kBase}) {
    for (const char* const string : {kNewer, kOlder}) {
      error.construct = symbol(c10, class_name, string);
      if (error.construct == nullptr) continue;
      error.has_older_string = string == kOlder;
      if (class_name == kBase) error.vtable = anywhere("_ZTVN3c1016OutOfMemoryErrorE");
      return;
    }
  }
}

// The complete destructor, by its own name or from the class's vtable, whose first entry it is.
void* find_destructor(void* c10) {
  if (void* const named = symbol(c10, "_ZN3c105ErrorD1Ev")) return named;
  void** const vtable = static_cast<void**>(symbol(c10, "_ZTVN3c105ErrorE"));
  return vtable == nullptr ? nullptr : vtable[2];
}

}  // namespace

TorchError find_torch_error() {
  TorchError error;
  void* const c10 = loaded("libc10.so");
  find_constructor(c10, error);
  error.destroy = find_destructor(c10);
  error.type = anywhere("_ZTIN3c1016OutOfMemoryErrorE");
  void* const cxx = loaded("libstdc++.so.6");
  error.allocate = symbol(cxx, "__cxa_allocate_exception");
  error.throw_it = symbol(cxx, "__cxa_throw");
  return error;
}

void throw_with_newer_string(const TorchError& error, const char* message) {
  throw_torch_error(error, message);
}

namespace {

const TorchError& torch_error() {
  static const TorchError* const found = new TorchError(find_torch_error());
  return *found;
}

}  // namespace
}  // namespace headroom::runtime

extern "C" {

int headroom_torch_errors_missing(void) {
  return headroom::runtime::torch_error().is_complete() ? 0 : 1;
}

void headroom_throw_torch_out_of_memory(const char* message, int /*device*/, void* /*context*/) {
  const headroom::runtime::TorchError& error = headroom::runtime::torch_error();
  if (!error.is_complete()) return;
  if (error.has_older_string) headroom::runtime::throw_with_older_string(error, message);
  headroom::runtime::throw_with_newer_string(error, message);
}

}  // extern "C"
