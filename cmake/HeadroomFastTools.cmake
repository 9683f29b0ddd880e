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

# A faster first build, which is a newcomer's (the preset `release` asks): the standard library's
# headers that most files include are precompiled once for all rooms, a third of the compiling. Not
# behind ccache, which has no use for them, and not where tests are built: there a forgotten
# #include is to be found.
if(HEADROOM_PRECOMPILE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(HEADROOM_PRECOMPILED
    <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <ranges> <set>
    <span> <string> <string_view> <unordered_map> <utility> <variant> <vector>)
endif()
