// Read before every source: what Metal's compiler has built in, and what libclang_lint.py puts into the source.
#pragma once
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define device __global
#define threadgroup __local
#define constant __constant
#define thread __private
#define kernel

// Keywords of OpenCL that are names in Metal.
#define generic generic_
#define global global_
#define local local_
#define pipe pipe_
#define read_only read_only_
#define read_write read_write_
#define write_only write_only_

// Reports a call for which `condition` holds; `message` starts with the id of the rule.
#define METAL_LINT_RULE(condition, message) __attribute__((diagnose_if(condition, message, "warning")))

namespace metal_lint {

// Initialises the reference that stands for a threadgroup variable.
struct ThreadgroupMemory {
  template <class T>
  operator threadgroup T&() const;
};

// Constructs a vector of scalars and vectors, or converts one.
template <class V, class... Parts>
constexpr V vector(Parts...) {
  return V();
}

// Called with a template parameter at the start of a kernel template.
template <class T>
void probe() METAL_LINT_RULE(true, "instantiated");
template <auto V>
void probe() METAL_LINT_RULE(true, "instantiated");

}  // namespace metal_lint
