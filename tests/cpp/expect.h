// What the check programs share: comparisons that print the line of the call when they fail, and the exit code.
#pragma once

#include <cstdio>
#include <cstring>
#include <source_location>
#include <sstream>
#include <type_traits>

inline int passed = 0;
inline int failed = 0;

// Prints `got` and `expected` with the line of the call when they differ.
template <class T>
void same(const T& got, const std::type_identity_t<T>& expected,
          std::source_location at = std::source_location::current()) {
  if (got == expected) {
    ++passed;
    return;
  }
  ++failed;
  std::ostringstream text;
  text << std::boolalpha << "got " << got << ", expected " << expected;
  const char* folder = std::strrchr(at.file_name(), '/');
  std::printf("%s:%u: %s\n", folder == nullptr ? at.file_name() : folder + 1, unsigned(at.line()), text.str().c_str());
}

inline int report() {
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0 || passed == 0;
}
