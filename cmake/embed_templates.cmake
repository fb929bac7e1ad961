# cmake -DROOT=... -DOUT=... -P embed_templates.cmake: writes the files under ROOT into a C++ source, each as raw string
# literals, so that the library carries its templates as bytes. No tool besides CMake is needed.
#
# A literal holds whole lines and at most about 8,000 bytes: compilers limit the length of one literal.
cmake_minimum_required(VERSION 3.22)

file(GLOB_RECURSE paths RELATIVE "${ROOT}" "${ROOT}/*.cuh" "${ROOT}/*.cu" "${ROOT}/*.h")
list(SORT paths)

set(body "")
set(names "")
list(LENGTH paths count)
set(index 0)
foreach(path IN LISTS paths)
  file(READ "${ROOT}/${path}" text)
  if(text MATCHES "\\)__tessera\"")
    message(FATAL_ERROR "${path} contains the delimiter of the literals that it is embedded in")
  endif()
  string(APPEND body "constexpr char kText${index}[] =")
  string(LENGTH "${text}" left)
  while(left GREATER 0)
    string(SUBSTRING "${text}" 0 8000 chunk)
    string(LENGTH "${chunk}" size)
    if(left GREATER size)
      string(FIND "${chunk}" "\n" last REVERSE)
      if(last EQUAL -1)
        message(FATAL_ERROR "${path} has a line of more than 8,000 bytes")
      endif()
      math(EXPR size "${last} + 1")
      string(SUBSTRING "${text}" 0 ${size} chunk)
    endif()
    string(APPEND body "\n    R\"__tessera(${chunk})__tessera\"")
    string(SUBSTRING "${text}" ${size} -1 text)
    string(LENGTH "${text}" left)
  endwhile()
  string(APPEND body "\n    \"\";\n")
  string(APPEND names "    {\"${path}\", {kText${index}, sizeof(kText${index}) - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()

file(WRITE "${OUT}" "// Written by cmake/embed_templates.cmake: the files of templates/, sorted by path.
#include \"generator/embedded_templates.h\"

namespace tessera {

namespace {

${body}
constexpr EmbeddedTemplate kTemplates[] = {
${names}};

}  // namespace

std::span<const EmbeddedTemplate> embedded_templates() noexcept { return kTemplates; }

}  // namespace tessera
")
