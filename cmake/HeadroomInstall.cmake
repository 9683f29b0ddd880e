# What `cmake --install` lays down, in two components:
#   headroom_runtime   the program `headroom`, libheadroom_torch.so, and what they read
#   headroom_dev       libheadroom with its headers, the CMake package `headroom`
#                      (find_package(headroom) gives headroom::headroom) and headroom.pc
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET headroom_cli)
  install(TARGETS headroom_cli RUNTIME COMPONENT headroom_runtime)
endif()
# The allocator that `headroom run` puts into PyTorch.
install(TARGETS headroom_torch LIBRARY COMPONENT headroom_runtime)

install(FILES data/devices.json data/operator_rules.json data/timing.json
  DESTINATION ${CMAKE_INSTALL_DATADIR}/headroom COMPONENT headroom_runtime)

# The tracer of Python modules, and the glue of `headroom run`: the program looks for them here.
install(DIRECTORY python/headroom DESTINATION ${CMAKE_INSTALL_DATADIR}/headroom/python
  COMPONENT headroom_runtime FILES_MATCHING PATTERN "*.py" PATTERN "*.cpp" PATTERN "*.h" PATTERN __pycache__ EXCLUDE)
# What the shim of `headroom run` is compiled with, beside it.
install(FILES src/runtime/abi.h
  DESTINATION ${CMAKE_INSTALL_DATADIR}/headroom/python/headroom/run/shim/runtime
  COMPONENT headroom_runtime)

install(TARGETS headroom EXPORT headroom_targets
  LIBRARY COMPONENT headroom_dev NAMELINK_COMPONENT headroom_dev
  FILE_SET HEADERS COMPONENT headroom_dev)
set(headroom_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/headroom)
install(EXPORT headroom_targets NAMESPACE headroom:: FILE headroom-targets.cmake
  DESTINATION ${headroom_package_dir} COMPONENT headroom_dev)
configure_package_config_file(cmake/headroom-config.cmake.in headroom-config.cmake
  INSTALL_DESTINATION ${headroom_package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may break what was there.
write_basic_package_version_file(headroom-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/headroom-config.cmake ${PROJECT_BINARY_DIR}/headroom-config-version.cmake
  DESTINATION ${headroom_package_dir} COMPONENT headroom_dev)
# The .pc file finds its own prefix, so that an installed tree can be moved.
file(RELATIVE_PATH headroom_pc_to_prefix
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/headroom.pc.in headroom.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/headroom.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT headroom_dev)

# The wheel (tools/wheel): `cmake --build BUILD --target headroom_wheel`, or `pip wheel .`.
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_FOUND)
  add_custom_target(headroom_wheel
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/wheel/headroom_wheel.py
      --library $<TARGET_FILE:headroom_torch> --out ${PROJECT_BINARY_DIR}/wheel
    DEPENDS headroom_torch COMMENT "Making the wheel" VERBATIM)
endif()
