#include "csrc/metal_host/source_lines.h"

#include <dlfcn.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <string>

namespace metal_host {

namespace {

const Dl_info& own_image() {
  static const Dl_info info = [] {
    Dl_info found{};
    dladdr(reinterpret_cast<const void*>(&own_image), &found);
    return found;
  }();
  return info;
}

struct Row {
  std::string file;
  unsigned line;
};

// Each row of the file: offset of the return address (hexadecimal), line, file.
std::map<uintptr_t, Row> load_table() {
  std::map<uintptr_t, Row> table;
  std::ifstream file(std::string(own_image().dli_fname) + ".lines");
  uintptr_t offset = 0;
  Row row;
  while (file >> std::hex >> offset >> std::dec >> row.line >> row.file) {
    table.emplace(offset, row);
  }
  return table;
}

}  // namespace

Place source_place(const void* return_address) {
  static const std::map<uintptr_t, Row> table = load_table();
  const auto base = reinterpret_cast<uintptr_t>(own_image().dli_fbase);
  const auto found = table.find(reinterpret_cast<uintptr_t>(return_address) - base);
  return found == table.end() ? Place{} : Place{found->second.file.c_str(), found->second.line};
}

bool in_own_image(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) && info.dli_fbase == own_image().dli_fbase;
}

}  // namespace metal_host
