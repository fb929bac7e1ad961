// When a static runtime is taken over (takeover.cpp): of the program and all that it is linked with before any
// constructor runs, of a library that is opened later (dlopen, dlmopen; Python's ctypes and import) before its own do.
// Constructors register kernels with the runtime, so later would be too late.
//
// This library is linked with -z initfirst: the dynamic linker runs its constructors before all others'. So nothing
// here may count on another library's, not even libc's, which sets `environ`. glibc before 2.34 has such a library
// already (libpthread): there, libraries that the program is linked with come too late.
//
// The dynamic linker calls an empty function of its own, for debuggers (r_debug::r_brk of link.h), when it has mapped
// what a dlopen asks for, before that has run. It is redirected here. The interface is older than Linux; interposing
// dlopen would change whose search path counts, and LD_AUDIT would be another variable to pass on.
#include "guest/loaded.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "guest/libraries.h"
#include "guest/session.h"
#include "guest/takeover.h"

namespace tessera::guest {
namespace {

/// One of the dynamic linker's list.
struct Object {
  const link_map* map = nullptr;
  std::uint64_t base = 0;
  const void* dynamic = nullptr;  ///< tells an object from a later one in its place
  ObjectFacts facts;
};

/// The linker's lock is held while they change; the mutex is for those who ask.
struct Objects {
  std::mutex mutex;
  std::vector<Object> all;
  std::string own_path, own_folder;
  std::uint64_t own_base = 0;
  int cuda = 0;               ///< of the first that has a runtime
  std::string of_other_cuda;  ///< a later one, built for another version
};
Objects& loaded_objects() {
  static auto* const made = new Objects;
  return *made;
}

// The first is the program, which the list has no name of.
const char* path_of(const link_map& map, bool is_program) { return is_program ? "/proc/self/exe" : map.l_name; }

void look_at(Objects& known, const link_map& map, bool is_program) {
  const auto is_it = [&](const Object& object) {
    return object.map == &map && object.base == map.l_addr && object.dynamic == map.l_ld;
  };
  if (std::any_of(known.all.begin(), known.all.end(), is_it)) return;
  Object object{&map, map.l_addr, map.l_ld, {}};
  const char* const path = path_of(map, is_program);
  // Not what lies beside this library: its names of CUDA's are ours already.
  if (*path != '\0' && std::strncmp(path, known.own_folder.c_str(), known.own_folder.size()) != 0)
    object.facts = take_over(path, map.l_addr, known.own_path.c_str(), known.own_base);
  const bool has_runtime = object.facts.taken != 0 || object.facts.asks_by_linker;
  if (has_runtime && known.cuda == 0) known.cuda = object.facts.cuda;
  if (has_runtime && object.facts.cuda != 0 && object.facts.cuda != known.cuda) known.of_other_cuda = path;
  const std::lock_guard lock(known.mutex);
  known.all.push_back(object);
}

void look_at_all() {
  Objects& known = loaded_objects();
  std::vector<const link_map*> present;
  bool is_program = true;
#if __GLIBC_PREREQ(2, 35)
  // Each namespace of dlmopen has a list.
  for (const auto* space = reinterpret_cast<const r_debug_extended*>(&_r_debug); space != nullptr;
       space = space->base.r_version >= 2 ? space->r_next : nullptr) {
    const link_map* const first = space->base.r_map;
#else
  {
    const link_map* const first = _r_debug.r_map;
#endif
    for (const link_map* map = first; map != nullptr; map = map->l_next) {
      look_at(known, *map, std::exchange(is_program, false));
      present.push_back(map);
    }
  }
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.all, [&](const Object& object) {
    return std::find(present.begin(), present.end(), object.map) == present.end();
  });
}

// In place of the linker's empty function, under its lock.
void objects_changed() {
  const int error = errno;
  if (_r_debug.r_state != r_debug::RT_DELETE) look_at_all();
  errno = error;
}

// Nothing but a return and what fills the room to the next function, which a jump goes over.
bool is_empty_function(std::uint64_t function) {
  if (function % kJumpBytes != 0) return false;
  const auto* const code = reinterpret_cast<const std::uint8_t*>(function);  // NOLINT: an address
#if defined(__x86_64__)
  constexpr std::uint8_t kStart[] = {0xF3, 0x0F, 0x1E, 0xFA}, kReturn[] = {0xC3};  // endbr64
  constexpr std::uint8_t kFill[] = {0x00, 0x0F, 0x1F, 0x2E, 0x40, 0x44, 0x66, 0x80, 0x84, 0x90, 0xCC};
#else
  constexpr std::uint8_t kStart[] = {0x5F, 0x24, 0x03, 0xD5}, kReturn[] = {0xC0, 0x03, 0x5F, 0xD6};  // bti c
  constexpr std::uint8_t kFill[] = {0x00, 0x1F, 0x20, 0x03, 0xD5};
#endif
  const std::size_t at = std::memcmp(code, kStart, sizeof(kStart)) == 0 ? sizeof(kStart) : 0;
  if (std::memcmp(code + at, kReturn, sizeof(kReturn)) != 0) return false;
  return std::all_of(code + at + sizeof(kReturn), code + kJumpBytes, [&](std::uint8_t byte) {
    return std::find(std::begin(kFill), std::end(kFill), byte) != std::end(kFill);
  });
}

// "the program", "libfoo.so": whose code this is.
std::string name_of(const Objects& known, const Object& object) {
  if (&object == &known.all.front()) return "the program";
  return std::string(object.map->l_name).substr(std::string(object.map->l_name).rfind('/') + 1);
}

constexpr const char* kWhy =
    "{} has a CUDA runtime inside and no table of symbols to find it by{}: link it without -s, do not strip it, or "
    "link "
    "it with -cudart shared";

__attribute__((constructor)) void begin(int, char**, char** environment) {
  if (environ == nullptr) environ = environment;
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&missing), &self) == 0 || self.dli_fname == nullptr) return;
  Objects& known = loaded_objects();
  known.own_path = self.dli_fname;
  known.own_folder = known.own_path.substr(0, known.own_path.rfind('/') + 1);
  known.own_base = reinterpret_cast<std::uint64_t>(self.dli_fbase);
  look_at_all();
  if (is_empty_function(_r_debug.r_brk)) redirect(_r_debug.r_brk, reinterpret_cast<const void*>(&objects_changed));
  if (known.all.empty() || !known.all.front().facts.is_out_of_reach()) return;
  Session::instance().add_problem(fmt::format(fmt::runtime(kWhy), "the program", ""), true);
  _exit(3);  // its runtime would find no driver
}

}  // namespace

bool is_program_of_cuda_12() {
  const Objects& known = loaded_objects();
  if (!known.of_other_cuda.empty())
    Session::instance().add_problem(fmt::format(
        "{} is built for another CUDA than the rest of the process: functions whose parameters changed from "
        "12 to 13 are taken as those of {}",
        known.of_other_cuda, known.cuda));
  return known.cuda == 12;
}

void tell_untaken(const void* address) {
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr) return;
  Objects& known = loaded_objects();
  const std::lock_guard lock(known.mutex);
  for (const Object& object : known.all) {
    if (object.map != map) continue;
    const std::string name = name_of(known, object);
    if (object.facts.taken != 0 || name.starts_with("libnv") || is_machine_code_only(info.dli_fname)) return;
    Session::instance().add_problem(
        fmt::format(fmt::runtime(kWhy), name, ", so its CUDA calls answer 'operation not supported'"), true);
    return;
  }
}

}  // namespace tessera::guest
