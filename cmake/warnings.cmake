# tessera_target(NAME): our warnings, sanitizers and include root for a target of ours.
function(tessera_target name)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                            $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/templates>)
  # A product and a sum are two roundings unless the code says fma, on every host: the compiler never fuses them.
  target_compile_options(${name} PRIVATE -ffp-contract=off)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion)
  if(TESSERA_WERROR)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
  if(TESSERA_FUZZERS)
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(TESSERA_SANITIZE)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # g++ 13 sees overflows and unset values in what its own instrumentation inserts
      target_compile_options(${name} PRIVATE -Wno-array-bounds -Wno-stringop-overflow -Wno-maybe-uninitialized)
    endif()
    target_compile_options(${name} PRIVATE -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${name} PUBLIC $<BUILD_INTERFACE:-fsanitize=${TESSERA_SANITIZE}>)
  endif()
endfunction()

# tessera_public_headers(NAME): headers of this folder's include/ are for everybody, as "tessera/...", and are installed.
function(tessera_public_headers name)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
                                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endfunction()

# tessera_together(NAME FILE...): these files of the target are compiled as one, since most of what a small file costs is headers and the
# templates that all of them use. Where two give something the same name the compiler says so. A file in no list is compiled alone, and so is
# every file with -DTESSERA_UNITY=OFF.
function(tessera_together name)
  if(TESSERA_UNITY)
    string(MAKE_C_IDENTIFIER "${ARGV1}" group)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${group})
    target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)  # it takes all but the first file for headers
  endif()
endfunction()

# tessera_precompiled(NAME HEADER...): the target's files begin with these headers, which are then read once. tessera_precompiled(NAME AS OTHER):
# with OTHER's, whose options are the same. Where a cache of compiles is in use it serves better; and what is compiled file by file, by clang or
# with sanitizers, tells of a missing #include.
function(tessera_precompiled name)
  if(NOT TESSERA_UNITY OR TESSERA_SANITIZE OR CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache" OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  if(ARGV1 STREQUAL "AS")
    target_precompile_headers(${name} REUSE_FROM ${ARGV2})
  else()
    target_precompile_headers(${name} PRIVATE ${ARGN})
  endif()
endfunction()
