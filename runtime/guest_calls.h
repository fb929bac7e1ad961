// The functions that a guest library calls instead of those that would change its process (guest_library.h).
//
// They change nothing, but for one thing. A host may be in a compile of its own, with the same library, when the calls
// are replaced: that compile has taken signals and the limit of the stack already, and what it does at its end has to
// be done. So a call that gives back goes through where nothing but such a compile can have taken: the signal is in
// the hands of a guest or ignored, and what is put there is not what a replaced call has told this thread to be there.
#pragma once

#include <span>
#include <string_view>

#include "runtime/replaced_imports.h"

struct link_map;

namespace tessera {

std::span<const ReplacedImport> replaced_imports_of_guests();

/// Whether a function of this name changes what signals do.
bool sets_signals(std::string_view name);

/// From now on handlers in this library count as a guest's. It must stay loaded as long as this code is.
void add_guest(const link_map& guest);

/// The calling thread uses guests for this library until it leaves: none of these uses began before the calls were
/// replaced. May be nested.
void enter_own_use();
void leave_own_use();

}  // namespace tessera
