// Python bindings: signatures and docstrings only.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "csrc/backends/apple_gpu.h"
#include "csrc/backends/cpu/blas.h"
#include "csrc/backends/cpu/isa.h"
#include "csrc/backends/cpu/pending_products.h"
#include "csrc/backends/device_traits.h"
#include "csrc/backends/metal/kernel_sources.h"
#include "csrc/check.h"
#include "csrc/counters.h"
#include "csrc/disabled.h"
#include "csrc/explain.h"
#include "csrc/host_run.h"
#include "csrc/metal_host/multiply_tile.h"
#include "csrc/ops.h"
#include "csrc/thread_pool.h"
#include "mlx/backend/gpu/device_info.h"
#include "mlx/version.h"

namespace nb = nanobind;
namespace mx = mlx::core;
using namespace nb::literals;

namespace mlx_gemm {
namespace {

// Text of a name that Python passes for one of ours.
template <class Value>
Value parse(std::string_view op, const std::string& text,
            const std::vector<std::pair<std::string_view, Value>>& names) {
  std::string known;
  for (const auto& [name, value] : names) {
    if (text == name) {
      return value;
    }
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  reject(op, "'", text, "' is not one of ", known);
}

Layout parse_layout(std::string_view op, const std::string& text) {
  return parse<Layout>(op, text, {{"nn", Layout::nn}, {"nt", Layout::nt}, {"tn", Layout::tn}, {"tt", Layout::tt}});
}

Dtype parse_dtype(std::string_view op, const std::string& text) {
  return parse<Dtype>(op, text,
                      {{"float32", Dtype::float32},
                       {"float16", Dtype::float16},
                       {"bfloat16", Dtype::bfloat16},
                       {"float64", Dtype::float64},
                       {"complex64", Dtype::complex64}});
}

metal_host::Mode parse_mode(std::string_view op, const std::string& text) {
  using metal_host::Mode;
  return parse<Mode>(op, text, {{"auto", Mode::automatic}, {"lanes", Mode::lanes}, {"uniform", Mode::uniform}});
}

std::optional<std::string> unsupported_on_cpu(const std::string& name, int64_t M, int64_t N, int64_t K,
                                              const std::string& layout_name, const std::string& dtype_name) {
  const Layout layout = parse_layout("unsupported", layout_name);
  const Problem problem{
      .M = M,
      .N = N,
      .K = K,
      .lda = a_transposed(layout) ? M : K,
      .ldb = b_transposed(layout) ? K : N,
      .layout = layout,
      .dtype = parse_dtype("unsupported", dtype_name),
  };
  return unsupported(*kernel_named("unsupported", name), problem, {});
}

void bind_kernel_info(nb::module_& m) {
  nb::class_<KernelInfo>(m, "KernelInfo", "One kernel of the registry: a row of metal/shared/gemm_kernels.def.")
      .def_ro("name", &KernelInfo::name)
      .def_ro("body", &KernelInfo::body, "The template in metal/ that the kernel instantiates.")
      .def_prop_ro("family", &KernelInfo::family)
      .def_ro("bm", &KernelInfo::bm, "Rows of a threadgroup's output tile.")
      .def_ro("bn", &KernelInfo::bn, "Columns of a threadgroup's output tile.")
      .def_ro("bk", &KernelInfo::bk, "Step along K; 0 where one operation spans all of K.")
      .def_ro("wm", &KernelInfo::wm)
      .def_ro("wn", &KernelInfo::wn)
      .def_prop_ro("simdgroups", &KernelInfo::simdgroups)
      .def_prop_ro("threads", [](const KernelInfo& k) { return std::pair(k.threads[0], k.threads[1]); })
      .def_prop_ro("order", [](const KernelInfo& k) { return to_string(k.order); })
      .def_prop_ro(
          "needs", [](const KernelInfo& k) { return std::tuple(k.needs[0], k.needs[1], k.needs[2]); },
          "M, N and K must be multiples of these.")
      .def_prop_ro(
          "read_tile", [](const KernelInfo& k) { return std::pair(k.read_tile[0], k.read_tile[1]); },
          "Output block whose device reads are shared.")
      .def_ro("threadgroup_bytes", &KernelInfo::threadgroup_bytes)
      .def_ro("min_generation", &KernelInfo::min_generation, "Apple GPU generation: 13 is M1, 17 is M5.")
      .def_ro("min_os", &KernelInfo::min_os, "macOS version, 100*major + minor.")
      .def_prop_ro("dtypes", &dtypes_of, "Types of the operands; the result has the same, or float32.")
      .def_prop_ro("dtype_accumulate", [](const KernelInfo& k) { return to_string(k.accumulate); })
      .def_prop_ro("math", [](const KernelInfo& k) { return to_string(k.math); })
      .def_prop_ro("layouts", &layouts_of)
      .def_ro("deterministic", &KernelInfo::deterministic)
      .def_prop_ro("role", [](const KernelInfo& k) { return to_string(k.role); })
      .def_ro("summary", &KernelInfo::summary)
      .def_prop_ro(
          "metal_source",
          [](const KernelInfo& k) { return kernel_source(function_name(k, Dtype::float32, Dtype::float32)); },
          "The Metal file that a GPU compiles at run time, for float32.")
      .def(
          "requested_read_bytes",
          [](const KernelInfo& k, int64_t M, int64_t N, int64_t K) {
            return requested_read_bytes(k, {.M = M, .N = N, .K = K});
          },
          "M"_a, "N"_a, "K"_a, "Bytes of A and B that the kernel asks of device memory if nothing is cached.")
      .def("__repr__", [](const KernelInfo& k) { return "KernelInfo(" + std::string(k.name) + ")"; });
}

void bind_plan(nb::module_& m) {
  nb::class_<Explanation>(m, "Plan", "What a product runs, and why. str() is readable.")
      .def_prop_ro(
          "route", [](const Explanation& e) { return to_string(e.plan.route); }, "'kernel', 'blas' or 'mlx'.")
      .def_prop_ro("kernel",
                   [](const Explanation& e) {
                     return e.plan.kernel == nullptr ? std::optional<std::string_view>() : e.plan.kernel->name;
                   })
      .def_prop_ro("reason", [](const Explanation& e) { return why(e.plan); })
      .def_prop_ro(
          "rejected",
          [](const Explanation& e) {
            std::vector<std::pair<std::string, std::string>> pairs;
            for (const auto& [candidate, reason] : e.plan.rejected) {
              pairs.emplace_back(candidate, reason);
            }
            return pairs;
          },
          "Pairs of a candidate and the reason against it.")
      .def_prop_ro(
          "copies", [](const Explanation& e) { return e.plan.copies; }, "Operands that must be copied first.")
      .def_prop_ro("M", [](const Explanation& e) { return e.problem.M; })
      .def_prop_ro("N", [](const Explanation& e) { return e.problem.N; })
      .def_prop_ro("K", [](const Explanation& e) { return e.problem.K; })
      .def_prop_ro("batch", [](const Explanation& e) { return e.problem.batch; })
      .def_prop_ro("layout", [](const Explanation& e) { return to_string(e.problem.layout); })
      .def_prop_ro("dtype", [](const Explanation& e) { return to_string(e.problem.dtype); })
      .def("__str__", [](const Explanation& e) { return to_string(e); })
      .def("__repr__", [](const Explanation& e) {
        return "Plan(route='" + std::string(to_string(e.plan.route)) + "', " + describe(e.problem) + ")";
      });
}

void bind_report(nb::module_& m) {
  nb::class_<Report>(m, "Report", "What a kernel did on the Metal host runtime. Counts of traffic need check=True.")
      .def_ro("kernel", &Report::kernel)
      .def_ro("checked", &Report::checked)
      .def_ro("mode", &Report::mode, "'lanes' or 'uniform'.")
      .def_ro("flops", &Report::flops, "2 M N K.")
      .def_ro("threadgroups", &Report::threadgroups)
      .def_ro("barriers", &Report::barriers, "Threadgroup barriers, once per threadgroup.")
      .def_ro("multiplies", &Report::multiplies, "Matrix multiplies that SIMD groups and TensorOps made.")
      .def_ro("threadgroup_bytes", &Report::threadgroup_bytes)
      .def_ro("requested_read_bytes", &Report::requested_read_bytes)
      .def_ro("requested_write_bytes", &Report::requested_write_bytes)
      .def_ro("threadgroup_read_bytes", &Report::threadgroup_read_bytes)
      .def_ro("threadgroup_write_bytes", &Report::threadgroup_write_bytes)
      .def_ro("intensity", &Report::intensity, "FLOP per requested byte of device memory.")
      .def_ro("warnings", &Report::warnings, "What works on GPUs without being guaranteed; found with check=True.")
      .def_ro("seconds", &Report::seconds, "Wall time on the host; says nothing about a GPU.")
      .def("__repr__", [](const Report& r) {
        return "Report(" + r.kernel + ", " + r.mode + ", " + std::to_string(r.threadgroups) + " threadgroups, " +
               std::to_string(r.barriers) + " barriers, requested " +
               (r.requested_read_bytes ? std::to_string(*r.requested_read_bytes) + " + " +
                                             std::to_string(*r.requested_write_bytes) + " bytes"
                                       : "bytes not counted") +
               ")";
      });
}

Activation parse_activation(std::string_view op, const std::optional<std::string>& text) {
  constexpr Activation kAll[] = {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                 Activation::silu};
  std::vector<std::pair<std::string_view, Activation>> names;
  for (const Activation activation : kAll) {
    names.emplace_back(to_string(activation), activation);
  }
  return text ? parse<Activation>(op, *text, names) : Activation::none;
}

using Name = std::optional<std::string>;
using MaybeArray = std::optional<mx::array>;
using MaybeDtype = std::optional<mx::Dtype>;

// Docstrings are those of mlx_gemm/ops.py, which checks the arguments.
void bind_ops(nb::module_& m) {
  m.def(
      "matmul",
      [](const mx::array& a, const mx::array& b, const Name& kernel, const MaybeDtype& out_dtype,
         const mx::StreamOrDevice& stream) { return matmul(a, b, {kernel, out_dtype, stream}); },
      "a"_a, "b"_a, nb::kw_only(), "kernel"_a = nb::none(), "out_dtype"_a = nb::none(), "stream"_a = nb::none());
  m.def(
      "addmm",
      [](const mx::array& c, const mx::array& a, const mx::array& b, float alpha, float beta, const Name& activation,
         const Name& kernel, const MaybeDtype& out_dtype, const mx::StreamOrDevice& stream) {
        return addmm(c, a, b, {alpha, beta}, parse_activation("addmm", activation), {kernel, out_dtype, stream});
      },
      "c"_a, "a"_a, "b"_a, "alpha"_a = 1.0f, "beta"_a = 1.0f, nb::kw_only(), "activation"_a = nb::none(),
      "kernel"_a = nb::none(), "out_dtype"_a = nb::none(), "stream"_a = nb::none());
  m.def(
      "linear",
      [](const mx::array& x, const mx::array& weight, const MaybeArray& bias, const Name& activation,
         const MaybeArray& residual, const Name& kernel, const MaybeDtype& out_dtype,
         const mx::StreamOrDevice& stream) {
        return linear({x, weight, bias, residual}, parse_activation("linear", activation), {kernel, out_dtype, stream});
      },
      "x"_a, "weight"_a, "bias"_a = nb::none(), nb::kw_only(), "activation"_a = nb::none(), "residual"_a = nb::none(),
      "kernel"_a = nb::none(), "out_dtype"_a = nb::none(), "stream"_a = nb::none());
  m.def(
      "explain",
      [](const mx::array& a, const mx::array& b, const MaybeArray& c, const MaybeArray& bias, const Name& activation,
         const Name& device, const Name& kernel, const MaybeDtype& out_dtype, const mx::StreamOrDevice& stream) {
        nb::gil_scoped_release released;
        return explain({a, b, c, bias}, parse_activation("explain", activation), {{kernel, out_dtype, stream}, device});
      },
      "a"_a, "b"_a, nb::kw_only(), "c"_a = nb::none(), "bias"_a = nb::none(), "activation"_a = nb::none(),
      "device"_a = nb::none(), "kernel"_a = nb::none(), "out_dtype"_a = nb::none(), "stream"_a = nb::none());
  m.def(
      "assign", [](mx::array& target, const mx::array& value) { target.overwrite_descriptor(value); }, "target"_a,
      "value"_a, "Makes an array object stand for another value, as the in-place operators do.");
  m.def(
      "disable", [](bool enter) { disabled_depth() += enter ? 1 : -1; }, "enter"_a,
      "Enters or leaves a scope in which the ops that this thread builds are MLX's own.");
}

void bind_registry(nb::module_& m) {
  m.def(
      "kernels",
      [] {
        std::vector<const KernelInfo*> rows;
        for (const KernelInfo& kernel : kernels()) {
          rows.push_back(&kernel);
        }
        return rows;
      },
      nb::rv_policy::reference, "Every kernel of the registry, in its order.");
  m.def("unsupported", &unsupported_on_cpu, "kernel"_a, "M"_a, "N"_a, "K"_a, nb::kw_only(), "layout"_a = "nn",
        "dtype"_a = "float32",
        R"(The rule that keeps the kernel from running the problem on a CPU, or None.

Raises:
    ValueError: an unknown kernel, layout or dtype.)");
}

void bind_host_runtime(nb::module_& m) {
  nb::exception<HostFault>(m, "HostFault", PyExc_RuntimeError);
  m.def(
      "host_run",
      [](const std::string& kernel, const mx::array& a, const mx::array& b, bool check, std::optional<uint64_t> seed,
         const std::string& mode) {
        const HostOptions options{.check = check, .mode = parse_mode("host.run", mode), .seed = seed};
        const KernelInfo& info = *kernel_named("host.run", kernel);
        nb::gil_scoped_release released;
        return host_run(info, a, b, options);
      },
      "kernel"_a, "a"_a, "b"_a, nb::kw_only(), "check"_a, "seed"_a = nb::none(), "mode"_a = "auto",
      R"(Runs one kernel on the Metal host runtime, now.

Args:
    kernel: a name from kernels().
    a: [M, K], of a type that the kernel multiplies.
    b: [K, N], of the same type.
    check: bounds-check and count every memory access.
    seed: shuffles the order of threads and threadgroups.
    mode: 'auto', 'lanes' (one fiber per thread) or 'uniform' (one per SIMD group).

Returns:
    The product [M, N] of that type, and a Report.

Raises:
    ValueError: an unknown kernel or mode, or shapes, types or a mode that the kernel cannot run.
    HostFault: the kernel broke a rule of Metal.)");
}

std::map<std::string, std::optional<std::string>> environment() {
  return {{"mlx", MLX_GEMM_MLX_VERSION},
          {"mlx_loaded", mx::version()},
          {"blas", blas_loaded() ? std::optional(blas_config()) : std::nullopt},
          {"isa", metal_host::micro_kernel_isa()},
          {"cpu_isa", to_string(cpu_isa())},
          {"threads", std::to_string(thread_count())},
          {"gpu", mx::gpu::is_available() ? std::optional(describe(gpu_traits())) : std::nullopt}};
}

void bind_process(nb::module_& m) {
  m.attr("BUILT_FOR_MLX") = MLX_GEMM_MLX_VERSION;
  m.def("load_blas", &load_blas, "path"_a,
        R"(Loads the OpenBLAS of CPU streams, whose symbols carry the prefix scipy_.

Raises:
    RuntimeError: it cannot be loaded; the loader's reason.)");
  m.def(
      "check_settings",
      [] {
        cpu_isa();
        thread_count();
      },
      R"(Reads the environment variables of the CPU path.

Raises:
    ValueError: one has a value that means nothing.)");
  m.def("load_checked", &set_checked_module_path, "path"_a,
        "Path of the checked kernels, which are loaded when they are first asked for; empty for a build without them.");
  m.def("can_check", &has_checked_module, "Whether there are checked kernels.");
  m.def(
      "counters",
      [] {
        const EventCounters& now = counters();
        return std::map<std::string, int64_t>{{"gemm_evals", now.gemm_evals},
                                              {"blas_calls", now.blas_calls},
                                              {"host_launches", now.host_launches},
                                              {"copies", now.copies},
                                              {"lowered", now.lowered}};
      },
      "Events since the process started.");
  m.def("wait_for_pending_products", &wait_for_pending_products, nb::call_guard<nb::gil_scoped_release>(),
        "Returns when no CPU stream has a product of this package left to compute; called before the process exits.");
  m.def("environment", &environment,
        "What this build runs on: versions of MLX, BLAS, instruction set of the host runtime, GPU.");
}

}  // namespace
}  // namespace mlx_gemm

NB_MODULE(_ext, m) {
  m.doc() = "The C++ part of mlx_gemm.";
  mlx_gemm::bind_kernel_info(m);
  mlx_gemm::bind_plan(m);
  mlx_gemm::bind_report(m);
  mlx_gemm::bind_ops(m);
  mlx_gemm::bind_registry(m);
  mlx_gemm::bind_host_runtime(m);
  mlx_gemm::bind_process(m);
}
