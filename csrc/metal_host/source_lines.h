// Places in the Metal source for addresses in checked code, from the table that tools/source_lines.py puts beside the
// shared object.
#pragma once

namespace metal_host {

struct Place {
  const char* file = nullptr;  // nullptr: unknown
  unsigned line = 0;
};

// The access that returns to `return_address` from its hook.
Place source_place(const void* return_address);

// Whether an address lies in the shared object that this code is part of.
bool in_own_image(const void* address);

}  // namespace metal_host
