// A plugin with the library's code in it, hidden: what a host loads, lets compile once, and unloads.
#include "runtime/guest_library.h"

extern "C" __attribute__((visibility("default"))) bool use_guest(const char* name) {
  const tessera::GuestLibrary guest = tessera::open_guest_library(name);
  const tessera::GuestScope scope(guest);
  return guest.is_contained;
}
