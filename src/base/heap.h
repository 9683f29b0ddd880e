// How this process keeps freed memory.
#pragma once

namespace headroom {

// Tells the C library to keep what is freed instead of giving it back to the kernel: a search makes
// and frees traces of some megabytes again and again, and fresh pages would cost it a tenth of its
// time. To be called once, before other threads are made. Does nothing where the C library is not
// glibc. Source: mallopt(3).
void keep_freed_memory();

}  // namespace headroom
