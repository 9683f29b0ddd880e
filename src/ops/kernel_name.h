// The part of a kernel's name that is its own.
//
// "void at::native::elementwise_kernel<128, Add>(int, Add)" is the function
// "elementwise_kernel<128, Add>" in namespaces that say who wrote it, with a result and parameters
// that many functions share: a copy in a namespace of products is a copy. Linear; pure.
#pragma once

#include <string_view>

namespace headroom::ops {

// Function and template arguments, within `name`. The whole name where it is no C++ declaration:
// mangled, cut short, or a word.
std::string_view own_part(std::string_view name);

// What a kernel is called, whichever way it is written: "void at::native::foo<float>(int)" and
// "_ZN2at6native3fooIfEEvi" are both "foo".
[[nodiscard]] std::string_view kernel_stem(std::string_view name);

}  // namespace headroom::ops
