# The installed package: find_package(tessera) gives tessera::tessera (the library), tessera::emulator (PTX on a CPU, which
# the library does not need; `COMPONENTS emulator` asks for it by name), tessera::c (libtessera.so and tessera.h; with
# `COMPONENTS c` alone nothing else is looked for) and the command in bin/. Without CMake, pkg-config has `tessera`, libtessera.so. What that takes is the
# component `c`: `cmake --install build --component c`.
# Headers are installed as they are included here: "tessera/device.h" lies in base/include/, the types that device code
# shares in templates/tessera/spec/.
include(CMakePackageConfigHelpers)

set_target_properties(tessera_jit PROPERTIES EXPORT_NAME tessera)
add_library(tessera::tessera ALIAS tessera_jit)
set_target_properties(tessera_emulator PROPERTIES EXPORT_NAME emulator)
add_library(tessera::emulator ALIAS tessera_emulator)
install(TARGETS tessera_base tessera_generator tessera_runtime tessera_reference tessera_jit tessera_emulator tessera_emulator_math EXPORT tessera-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tessera RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
set_target_properties(tessera_c PROPERTIES EXPORT_NAME c)
add_library(tessera::c ALIAS tessera_c)
install(TARGETS tessera_c EXPORT tessera-c-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT c)

install(DIRECTORY templates/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
install(EXPORT tessera-targets NAMESPACE tessera:: DESTINATION ${package_dir})
install(EXPORT tessera-c-targets NAMESPACE tessera:: DESTINATION ${package_dir} COMPONENT c)
configure_package_config_file(cmake/tessera-config.cmake.in ${PROJECT_BINARY_DIR}/tessera-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tessera-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tessera-config.cmake ${PROJECT_BINARY_DIR}/tessera-config-version.cmake
        DESTINATION ${package_dir} COMPONENT c)

# Its prefix follows from where the file lies: the folder may be moved.
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/tessera.pc.in ${PROJECT_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT c)
