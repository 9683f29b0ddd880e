# Faster rebuilds on a developer's machine: ccache in front of the compiler and mold as the linker,
# each only where it is installed. Off unless asked for (the presets ask), so that a packager's own
# choice of tools is never overridden.
if(HEADROOM_FAST_TOOLS)
  find_program(HEADROOM_CCACHE ccache)
  if(HEADROOM_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    # Paths of this checkout count as relative, so that another one (a fresh clone, a work tree)
    # compiles only what differs: a build from nothing takes twenty minutes, that one takes one.
    find_program(HEADROOM_ENV env REQUIRED)
    set(CMAKE_CXX_COMPILER_LAUNCHER
      ${HEADROOM_ENV} CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${HEADROOM_CCACHE})
  endif()
  find_program(HEADROOM_MOLD mold)
  if(HEADROOM_MOLD)
    add_link_options(-fuse-ld=mold)
  endif()
endif()

# A faster build from nothing, which is a newcomer's and the continuous integration's: the headers
# that most files include are precompiled once for all rooms and once for all rooms' tests, a quarter
# to a third of the compiling. Not behind ccache, which has no use for them; there, and in the presets of the
# sanitizers, a forgotten #include is found.
if(HEADROOM_PRECOMPILE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(HEADROOM_PRECOMPILED
    <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <ranges> <set>
    <span> <string> <string_view> <unordered_map> <utility> <variant> <vector>)
  set(HEADROOM_PRECOMPILED_TEST ${HEADROOM_PRECOMPILED} <gtest/gtest.h>)
  # GCC gathers its garbage again and again on the way to a few hundred megabytes, a seventh of its
  # time; so it begins later.
  add_compile_options(--param=ggc-min-heapsize=524288 --param=ggc-min-expand=200)
  # What GCC 12 says of its own std::string operator+ without cause (its bugs 105329 and 105651),
  # in a file here and there; without precompiled headers it keeps that to itself.
  target_compile_options(headroom_warnings INTERFACE
    -Wno-error=restrict -Wno-error=array-bounds -Wno-error=stringop-overflow)
endif()
