// What fork does with memory of the host's that the device shares.
#pragma once

namespace tessera::emulator {

/// The name of the files behind shared pages, as /proc/self/maps has it.
inline constexpr char kSharedFile[] = "tessera-emulator-shared";

/// From here on children of fork get copies of the host's pages that are shared; those of vfork, which only exec, none.
void share_no_host_pages_with_children();

}  // namespace tessera::emulator
