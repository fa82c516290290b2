// Replays GPU launches: every kernel's launches are played through a device and an encoder that only write down what
// MLX's would get, and what they wrote down is run on the host runtime, checked. Then launches with planted faults must
// not pass.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "csrc/backends/metal/encode.h"
#include "csrc/metal_host/host.h"

namespace {

using namespace mlx_gemm;

// ---- What stands in for MLX ----

// A handle to memory, as MLX's array is.
struct Array {
  std::shared_ptr<std::vector<float>> memory;
  int64_t offset = 0;  // of the first element
};

Array unwritten(size_t count) {
  return {std::make_shared<std::vector<float>>(count, std::numeric_limits<float>::quiet_NaN())};
}

struct Library {
  std::string source;
};

struct Pipeline {
  std::string kernel;
  std::vector<metal_host::Constant> constants;
  unsigned long limit = 1024;

  unsigned long maxTotalThreadsPerThreadgroup() const { return limit; }
};

enum class DataType { int_type, bool_type };
constexpr PipelineOptions<int, DataType> kOptions{0, DataType::int_type, DataType::bool_type};

// The part of MLX's Device that make_pipeline() uses, with its caches: by the library's name, by the pipeline's.
class RecordingDevice {
 public:
  Library* get_library(const std::string& name, int, const std::function<std::string()>& builder) {
    auto& library = libraries_[name];
    if (!library) {
      library = std::make_unique<Library>(builder());
    }
    return library.get();
  }

  using Constants = std::vector<std::tuple<const void*, DataType, unsigned long>>;
  Pipeline* get_kernel(const std::string& name, Library* library, const std::string& specialised,
                       const Constants& constants) {
    auto& pipeline = pipelines_[{library, specialised}];
    if (!pipeline) {
      if (library->source.find("host_name(\"" + name + "\")") == std::string::npos) {
        throw std::runtime_error("no such function");
      }
      pipeline = std::make_unique<Pipeline>(name);
      for (const auto& [value, type, id] : constants) {
        const bool boolean = type == DataType::bool_type;
        pipeline->constants.push_back(
            {int(id), boolean ? *static_cast<const bool*>(value) : *static_cast<const int32_t*>(value)});
      }
    }
    return pipeline.get();
  }

  size_t libraries() const { return libraries_.size(); }
  size_t pipelines() const { return pipelines_.size(); }

 private:
  std::map<std::string, std::unique_ptr<Library>> libraries_;
  std::map<std::pair<Library*, std::string>, std::unique_ptr<Pipeline>> pipelines_;
};

// The part of MLX's CommandEncoder that encode() uses. Like it, this one puts a barrier before a dispatch that uses
// what an earlier one wrote; between barriers a GPU runs dispatches in any order.
class RecordingEncoder {
 public:
  struct Concurrent {
    RecordingEncoder& encoder;
    explicit Concurrent(RecordingEncoder& encoder) : encoder(encoder) { encoder.concurrent_ = true; }
    ~Concurrent() {
      encoder.concurrent_ = false;
      encoder.written_.merge(encoder.concurrent_outputs_);
    }
  };

  // What may be forgotten on the way from a sequence to a GPU.
  enum class Forgets { nothing, outputs, temporaries };
  explicit RecordingEncoder(Forgets forgets) : forgets_(forgets) {}

  void set_compute_pipeline_state(const Pipeline* pipeline) {
    next_.kernel = pipeline->kernel;
    next_.constants = pipeline->constants;
  }
  void set_input_array(const Array& array, int slot, int64_t offset) { bind(array, slot, offset, false); }
  void set_output_array(Array& array, int slot, int64_t offset) {
    bind(array, slot, offset, true);
    if (forgets_ != Forgets::outputs) {
      (concurrent_ ? concurrent_outputs_ : outputs_).insert(array.memory.get());
    }
  }
  void add_temporary(Array array) {
    if (forgets_ != Forgets::temporaries) {
      temporaries_.push_back(std::move(array));
    }
  }
  void set_bytes(const std::byte* data, int count, int slot) {
    const auto& bytes = params_.emplace_back(std::make_unique<std::vector<std::byte>>(data, data + count));
    next_.buffers[size_t(slot)] = {bytes->data(), bytes->size(), false, true};
  }
  Concurrent start_concurrent() { return Concurrent(*this); }
  void dispatch_threadgroups(metal_host::Size3 grid, metal_host::Size3 threads) {
    if (needs_barrier_ || epochs_.empty()) {
      epochs_.emplace_back();
      written_.clear();
      needs_barrier_ = false;
    }
    written_.merge(outputs_);
    outputs_.clear();
    next_.grid = grid;
    next_.threads = threads;
    epochs_.back().push_back(std::exchange(next_, {}));
  }

  // Whether all memory is still there and every dispatch finishes, the last of those between two barriers first.
  bool run() const {
    if (std::ranges::any_of(bound_, [](const auto& memory) { return memory.expired(); })) {
      return false;
    }
    for (const auto& epoch : epochs_) {
      for (auto dispatch = epoch.rbegin(); dispatch != epoch.rend(); ++dispatch) {
        if (!metal_host_module()->run(*dispatch).fault.empty()) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  // A GPU binds a buffer from an offset to its end.
  void bind(const Array& array, int slot, int64_t offset, bool writable) {
    bound_.push_back(array.memory);
    needs_barrier_ |= written_.contains(array.memory.get());
    const int64_t start = array.offset * int64_t(sizeof(float)) + offset;
    auto* data = reinterpret_cast<std::byte*>(array.memory->data());
    next_.buffers[size_t(slot)] = {data + start, array.memory->size() * sizeof(float) - size_t(start), writable};
  }

  using Memory = std::vector<float>;
  Forgets forgets_;
  bool concurrent_ = false;
  bool needs_barrier_ = false;
  std::set<const Memory*> outputs_;
  std::set<const Memory*> written_;  // since the last barrier
  std::set<const Memory*> concurrent_outputs_;
  std::vector<std::weak_ptr<Memory>> bound_;
  std::vector<Array> temporaries_;
  metal_host::Dispatch next_;
  std::vector<std::vector<metal_host::Dispatch>> epochs_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> params_;
};

// ---- Products ----

int64_t position(const Strided& layout, std::span<const int> index) {
  int64_t offset = 0;
  for (size_t dim = 0; dim < index.size(); ++dim) {
    offset += index[dim] * layout.strides[dim];
  }
  return offset;
}

// Small integers, so that every sum is exact, in memory that reaches from the lowest element to the highest.
Array make_array(const Strided& layout, unsigned seed) {
  int64_t lowest = 0;
  int64_t highest = 0;
  for (size_t dim = 0; dim < layout.shape.size(); ++dim) {
    const int64_t reach = (layout.shape[dim] - 1) * layout.strides[dim];
    (reach < 0 ? lowest : highest) += reach;
  }
  Array array = unwritten(size_t(highest - lowest + 1));
  array.offset = -lowest;
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> small(-8, 8);
  std::generate(array.memory->begin(), array.memory->end(), [&] { return float(small(random)); });
  return array;
}

// What a production kernel does besides: D = relu(2 A B + 3 C) + R, with C and R [batch, M, N].
struct Extras {
  Strided c_layout;
  Strided r_layout;
  Array c;
  Array r;
};

constexpr Epilogue kEpilogue{
    .alpha = 2.0f, .beta = 3.0f, .has_c = true, .has_residual = true, .activation = Activation::relu};

// A [batch, M, K] times B [batch or 1, K, N], and the exact result.
struct Product {
  Strided a_layout;
  Strided b_layout;
  Array a;
  Array b;
  std::vector<int64_t> exact;
  bool joins = false;  // all rows of A are one matrix, as in the op
  std::optional<Extras> extras = {};
};

Product make_product(const Strided& a_layout, const Strided& b_layout, bool joins = false) {
  Product p{a_layout, b_layout, make_array(a_layout, 1), make_array(b_layout, 2), {}, joins};
  const int batch = a_layout.shape[0], M = a_layout.shape[1], K = a_layout.shape[2], N = b_layout.shape[2];
  for (int i = 0; i < batch; ++i) {
    const int b_index = b_layout.shape[0] == 1 ? 0 : i;
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        int64_t sum = 0;
        for (int k = 0; k < K; ++k) {
          sum += int64_t((*p.a.memory)[size_t(p.a.offset + position(a_layout, std::array{i, m, k}))]) *
                 int64_t((*p.b.memory)[size_t(p.b.offset + position(b_layout, std::array{b_index, k, n}))]);
        }
        p.exact.push_back(sum);
      }
    }
  }
  return p;
}

Product with_extras(Product p, const Strided& c_layout, const Strided& r_layout) {
  p.extras = Extras{c_layout, r_layout, make_array(c_layout, 3), make_array(r_layout, 4)};
  const int batch = c_layout.shape[0], M = c_layout.shape[1], N = c_layout.shape[2];
  size_t at = 0;
  for (int i = 0; i < batch; ++i) {
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n, ++at) {
        const std::array index{i, m, n};
        const Extras& extras = *p.extras;
        const int64_t sum =
            2 * p.exact[at] + 3 * int64_t((*extras.c.memory)[size_t(extras.c.offset + position(c_layout, index))]);
        p.exact[at] = std::max<int64_t>(sum, 0) +
                      int64_t((*extras.r.memory)[size_t(extras.r.offset + position(r_layout, index))]);
      }
    }
  }
  return p;
}

LaunchSequence plan(const KernelInfo& kernel, const Product& p) {
  Addressing addressing = addressing_of(kernel, Dtype::float32, p.a_layout.shape[2]);
  addressing.join_rows = addressing.copy_to_join = p.joins;
  const GemmView view = view_gemm(p.a_layout, p.b_layout, addressing);
  FusedEpilogue epilogue;
  if (p.extras) {
    epilogue = {kEpilogue, *view_addend(p.extras->c_layout, view), *view_addend(p.extras->r_layout, view)};
  }
  return plan_products(kernel, view, epilogue);
}

using Forgets = RecordingEncoder::Forgets;

// Plays the launches and says whether all of them finish.
bool finishes(const LaunchSequence& sequence, const ProductArrays<Array>& arrays, Forgets forgets = Forgets::nothing) {
  RecordingDevice device;
  RecordingEncoder encoder(forgets);
  try {
    encode(
        sequence, arrays, [&](const LaunchRecord& record) { return make_pipeline(record, device, kOptions); },
        [](const Scratch& scratch) { return unwritten(size_t(scratch.bytes) / sizeof(float)); }, encoder);
  } catch (const std::runtime_error&) {
    return false;  // no such function
  }
  return encoder.run();
}

// Whether the launches finish with the right result.
bool passes(const LaunchSequence& sequence, const Product& p, Forgets forgets = Forgets::nothing) {
  Array c = unwritten(p.exact.size());
  const Array* addend = p.extras ? &p.extras->c : nullptr;
  const Array* residual = p.extras ? &p.extras->r : nullptr;
  return finishes(sequence, {p.a, p.b, c, addend, residual}, forgets) &&
         std::ranges::equal(*c.memory, p.exact, [](float x, int64_t y) { return x == float(y); });
}

// The sides of a product that is made of several tiles, more down than across, and no two of them equal.
std::array<int, 3> sides(const KernelInfo& kernel) {
  const auto [m, n, k] = kernel.needs;
  return m > 1 ? std::array{4 * m, 2 * n, 3 * k} : std::array{2 * kernel.bm + 3, kernel.bn + 1, 70};
}

// Two products that a kernel addresses as they lie, with room between rows.
Product in_place(const KernelInfo& kernel) {
  const auto [M, N, K] = sides(kernel);
  const int64_t lda = K + 3, ldb = N + 5;
  return make_product({{2, M, K}, {M * lda, lda, 1}}, {{2, K, N}, {K * ldb, ldb, 1}});
}

// Two products of operands that are copied: A backwards with gaps, B column by column.
Product copied(const KernelInfo& kernel) {
  const auto [M, N, K] = sides(kernel);
  const int64_t row = 2 * K + 3, column = K + 1;
  return make_product({{2, M, K}, {-M * row, row, -2}}, {{2, K, N}, {N * column, 1, column}});
}

// Rows that are one product of the kernel, but have a gap between the matrices; a B of equal rows.
Product joined(const KernelInfo& kernel) {
  const auto [M, N, K] = sides(kernel);
  return make_product({{2, M, K}, {M * K + 9, K, 1}}, {{1, K, N}, {0, 0, 1}}, true);
}

// ---- Planted faults ----

GemmParams* params(LaunchRecord& record) { return reinterpret_cast<GemmParams*>(record.params.data()); }
CopyParams* copy_params(LaunchRecord& record) { return reinterpret_cast<CopyParams*>(record.params.data()); }

struct Fault {
  const char* name;
  std::function<void(LaunchRecord&)> plant;
};

const Fault kProductFaults[] = {
    {"A and B in each other's slots", [](LaunchRecord& r) { std::swap(r.buffers[0].slot, r.buffers[1].slot); }},
    {"A's offset forgotten", [](LaunchRecord& r) { r.buffers[0].byte_offset = 0; }},
    {"B's offset in elements", [](LaunchRecord& r) { r.buffers[1].byte_offset /= 4; }},
    {"C's offset off by one", [](LaunchRecord& r) { r.buffers[2].byte_offset += 4; }},
    {"C bound twice to A", [](LaunchRecord& r) { r.buffers[0].operand = Operand::c; }},
    {"params in another slot", [](LaunchRecord& r) { r.params_slot = 4; }},
    {"K and ldc swapped", [](LaunchRecord& r) { std::swap(params(r)->K, params(r)->ldc); }},
    {"lda taken for K", [](LaunchRecord& r) { params(r)->lda = params(r)->K; }},
    {"ldb taken for N", [](LaunchRecord& r) { params(r)->ldb = params(r)->N; }},
    {"one threadgroup short", [](LaunchRecord& r) { r.grid.x -= 1; }},
    {"half the threads", [](LaunchRecord& r) { (r.threads.y > 1 ? r.threads.y : r.threads.x) /= 2; }},
    {"another kernel's name", [](LaunchRecord& r) { r.kernel = "strided_copy_32"; }},
};

const Fault kCopyFaults[] = {
    {"source and destination swapped", [](LaunchRecord& r) { std::swap(r.buffers[0].slot, r.buffers[1].slot); }},
    {"source's offset forgotten", [](LaunchRecord& r) { r.buffers[0].byte_offset += 4; }},
    {"destination off by one", [](LaunchRecord& r) { r.buffers[1].byte_offset += 4; }},
    {"copied into C", [](LaunchRecord& r) { r.buffers[1].operand = Operand::c; }},
    {"params in another slot", [](LaunchRecord& r) { r.params_slot = 3; }},
    {"origin one element on", [](LaunchRecord& r) { copy_params(r)->origin += 1; }},
    {"column stride with the other sign", [](LaunchRecord& r) { copy_params(r)->column_stride *= -1; }},
    {"row strides swapped",
     [](LaunchRecord& r) { std::swap(copy_params(r)->row_strides[0], copy_params(r)->row_strides[1]); }},
    {"row lengths swapped",
     [](LaunchRecord& r) { std::swap(copy_params(r)->row_lengths[0], copy_params(r)->row_lengths[1]); }},
    {"first row skipped", [](LaunchRecord& r) { copy_params(r)->first_row = 1; }},
    {"one row less", [](LaunchRecord& r) { copy_params(r)->rows -= 1; }},
    {"one axis of rows less", [](LaunchRecord& r) { r.constants[0].value -= 1; }},
    {"axes under another id", [](LaunchRecord& r) { r.constants[0].id += 1; }},
    {"one threadgroup short", [](LaunchRecord& r) { r.grid.y -= 1; }},
    {"copies of another width", [](LaunchRecord& r) { r.kernel = "strided_copy_16"; }},
};

FusedGemmParams* fused(LaunchRecord& record) { return reinterpret_cast<FusedGemmParams*>(record.params.data()); }

BufferBinding& bound(LaunchRecord& record, Operand operand) {
  return *std::ranges::find(record.buffers, operand, &BufferBinding::operand);
}

// Planted in the launch of `everything`, below.
const Fault kFusedFaults[] = {
    {"A and B in each other's slots", [](LaunchRecord& r) { std::swap(r.buffers[0].slot, r.buffers[1].slot); }},
    {"D's offset off by one", [](LaunchRecord& r) { bound(r, Operand::c).byte_offset += 4; }},
    {"C and residual in each other's slots",
     [](LaunchRecord& r) { std::swap(bound(r, Operand::addend).slot, bound(r, Operand::residual).slot); }},
    {"A bound from its first element",
     [](LaunchRecord& r) { bound(r, Operand::a).byte_offset += 4 * fused(r)->a_origin; }},
    {"A's origin forgotten", [](LaunchRecord& r) { fused(r)->a_origin = 0; }},
    {"residual's origin forgotten", [](LaunchRecord& r) { fused(r)->residual.origin = 0; }},
    {"params in another slot", [](LaunchRecord& r) { r.params_slot = 6; }},
    {"A not transposed", [](LaunchRecord& r) { r.constants[0].value ^= 1; }},
    {"B transposed", [](LaunchRecord& r) { r.constants[1].value ^= 1; }},
    {"transposes under each other's ids", [](LaunchRecord& r) { std::swap(r.constants[0].id, r.constants[1].id); }},
    {"no C", [](LaunchRecord& r) { r.constants[2].value = 0; }},
    {"no residual", [](LaunchRecord& r) { r.constants[3].value = 0; }},
    {"lda taken for M", [](LaunchRecord& r) { fused(r)->lda = fused(r)->M; }},
    {"ldb one more", [](LaunchRecord& r) { fused(r)->ldb += 1; }},
    {"K one less", [](LaunchRecord& r) { fused(r)->K -= 1; }},
    {"M and N swapped", [](LaunchRecord& r) { std::swap(fused(r)->M, fused(r)->N); }},
    {"A's batch stride with the other sign", [](LaunchRecord& r) { fused(r)->a_batch_strides[kBatchDims - 1] *= -1; }},
    {"B stepped through", [](LaunchRecord& r) { fused(r)->b_batch_strides[kBatchDims - 1] = 1; }},
    {"C's rows repeated", [](LaunchRecord& r) { fused(r)->c.row_stride = 0; }},
    {"C's columns and rows swapped",
     [](LaunchRecord& r) { std::swap(fused(r)->c.row_stride, fused(r)->c.column_stride); }},
    {"residual of the first product for all",
     [](LaunchRecord& r) { fused(r)->residual.batch_strides[kBatchDims - 1] = 0; }},
    {"batch along another dimension",
     [](LaunchRecord& r) { std::swap(fused(r)->batch_shape[0], fused(r)->batch_shape[kBatchDims - 1]); }},
    {"alpha and beta swapped", [](LaunchRecord& r) { std::swap(fused(r)->alpha, fused(r)->beta); }},
    {"no activation", [](LaunchRecord& r) { fused(r)->activation = kActivationNone; }},
    {"one product less", [](LaunchRecord& r) { r.grid.z -= 1; }},
    {"half the columns of tiles", [](LaunchRecord& r) { r.grid.x /= 2; }},
    {"half the threads", [](LaunchRecord& r) { r.threads.x /= 2; }},
    {"a function of other types",
     [](LaunchRecord& r) { r.kernel.replace(r.kernel.rfind("_float32_float32"), 16, "_float16_float16"); }},
};

// ---- Checks ----

int passed = 0;
int failed = 0;

void report(bool right, std::string_view subject, const char* what) {
  right ? ++passed : ++failed;
  if (!right) {
    std::printf("FAILED %.*s: %s\n", int(subject.size()), subject.data(), what);
  }
}

void check_kernel(const KernelInfo& kernel) {
  const Product plain = in_place(kernel);
  const LaunchSequence products = plan(kernel, plain);
  report(products.copies.empty() && products.products.size() == 2, kernel.name, "two launches without copies");
  report(passes(products, plain), kernel.name, "a batch as planned");
  for (const Fault& fault : kProductFaults) {
    LaunchSequence faulty = products;
    std::ranges::for_each(faulty.products, fault.plant);
    report(!passes(faulty, plain), kernel.name, fault.name);
  }

  const Product strided = copied(kernel);
  const LaunchSequence copies = plan(kernel, strided);
  report(copies.copies.size() == 2 && copies.scratch.size() == 2, kernel.name, "two copies");
  report(passes(copies, strided), kernel.name, "copies and products as planned");
  report(!passes(copies, strided, Forgets::outputs), kernel.name, "products that do not wait for the copies");
  report(!passes(copies, strided, Forgets::temporaries), kernel.name, "copies that nobody keeps");
  LaunchSequence faulty = copies;
  for (BufferBinding& binding : faulty.products[1].buffers) {
    binding.operand = binding.operand == Operand::a_copy ? Operand::a : binding.operand;
  }
  report(!passes(faulty, strided), kernel.name, "a product of what was to be copied");

  const Product rows = joined(kernel);
  report(plan(kernel, rows).products.size() == 1, kernel.name, "all rows in one launch");
  report(passes(plan(kernel, rows), rows), kernel.name, "joined rows as planned");
}

// A of every layout, backwards through the batch; one B; a column of C for each product; a residual backwards in rows.
Product everything(const KernelInfo& kernel, Layout layout) {
  const int M = 2 * kernel.bm + 3, N = kernel.bn + 1, K = 70;
  const int64_t lda = (a_transposed(layout) ? M : K) + 3, ldb = (b_transposed(layout) ? K : N) + 5;
  const int64_t a_matrix = 3 + lda * (a_transposed(layout) ? K : M);
  const Strided a{{2, M, K}, {-a_matrix, a_transposed(layout) ? 1 : lda, a_transposed(layout) ? lda : 1}};
  const Strided b{{1, K, N}, {0, b_transposed(layout) ? 1 : ldb, b_transposed(layout) ? ldb : 1}};
  return with_extras(make_product(a, b), {{2, M, N}, {M + 1, 1, 0}}, {{2, M, N}, {M * (N + 2), -(N + 2), 1}});
}

void check_fused_kernel(const KernelInfo& kernel) {
  for (const Layout layout : {Layout::nn, Layout::nt, Layout::tn, Layout::tt}) {
    const Product p = everything(kernel, layout);
    report(plan(kernel, p).products.size() == 1, kernel.name, "a batch in one launch");
    report(passes(plan(kernel, p), p), kernel.name, to_string(layout));
  }
  const Product strided = copied(kernel);
  report(passes(plan(kernel, strided), strided), kernel.name, "copies and products as planned");
  const Product rows = joined(kernel);
  report(passes(plan(kernel, rows), rows), kernel.name, "joined rows as planned");
  const Product p = everything(kernel, Layout::tn);
  for (const Fault& fault : kFusedFaults) {
    LaunchSequence faulty = plan(kernel, p);
    fault.plant(faulty.products[0]);
    report(!passes(faulty, p), kernel.name, fault.name);
  }
}

// More products than a grid is deep, and more dimensions than a launch has.
void check_large_batches() {
  const KernelInfo& kernel = *find_kernel("simd_gemm_64x64_k16");
  const Product deep = make_product({{70000, 1, 2}, {3, 2, 1}}, {{70000, 2, 1}, {2, 1, 1}});
  report(plan(kernel, deep).products.size() == 2, kernel.name, "70000 products in two launches");
  report(passes(plan(kernel, deep), deep), kernel.name, "70000 products");

  // Offsets of products along five dimensions whose strides do not merge, against the host's own arithmetic.
  const GemmView view{.problem = {.M = 1, .N = 1, .K = 1, .lda = 1, .ldb = 1, .batch = 2 * 3 * 2 * 3 * 2},
                      .loop = {2, 3, 2, 3, 2},
                      .a_steps = {1000, 200, -50, 7, 1},
                      .b_steps = {0, 5, 0, -1, 90}};
  std::vector<LaunchRecord> launches = plan_fused_launches(kernel, view, {});
  report(launches.size() == 6, kernel.name, "two dimensions are counted by the host");
  bool right = true;
  int64_t index = 0;
  for (LaunchRecord& record : launches) {
    for (uint32_t z = 0; z < record.grid.z; ++z, ++index) {
      const FusedGemmParams& p = *fused(record);
      int64_t a = bound(record, Operand::a).byte_offset / 4 + p.a_origin;
      int64_t b = bound(record, Operand::b).byte_offset / 4 + p.b_origin;
      int64_t rest = z;
      for (int dim = kBatchDims - 1; dim >= 0; --dim) {
        a += rest % p.batch_shape[dim] * p.a_batch_strides[dim];
        b += rest % p.batch_shape[dim] * p.b_batch_strides[dim];
        rest /= p.batch_shape[dim];
      }
      const OperandOffsets expected = offsets_of_product(view, index);
      right = right && a == expected.a && b == expected.b;
    }
  }
  report(right && index == 72, kernel.name, "offsets of a batch of five dimensions");

  // Half types: offsets in bytes of their own.
  Problem half{.M = 4, .N = 6, .K = 8, .lda = 8, .ldb = 6, .batch = 2, .dtype = Dtype::float16, .out = Dtype::float32};
  const GemmView two{.problem = half, .loop = {2}, .a_steps = {32}, .b_steps = {48}};
  LaunchRecord record = plan_fused_launches(kernel, two, {}).at(0);
  report(bound(record, Operand::a).byte_size == 2 * 64 && bound(record, Operand::c).byte_size == 4 * 48 &&
             record.kernel == "simd_gemm_64x64_k16_float16_float32",
         kernel.name, "float32 from float16");
}

void check_copy_faults() {
  const KernelInfo& kernel = *find_kernel("tiled_16");
  const Product strided = copied(kernel);
  for (const Fault& fault : kCopyFaults) {
    LaunchSequence faulty = plan(kernel, strided);
    fault.plant(faulty.copies[0]);
    report(!passes(faulty, strided), "copy of A", fault.name);
  }
}

// Element i of the copy of an array of these axes is the element that row-major order puts there.
bool copies_right(const Strided& layout) {
  Array from = make_array(layout, 3);
  int64_t count = 1;
  for (const int length : layout.shape) {
    count *= length;
  }
  Array to = unwritten(size_t(count));
  LaunchSequence sequence;
  append_copies({Operand::a, Operand::c, 4}, layout, sequence.copies);
  if (!finishes(sequence, {from, from, to})) {
    return false;
  }
  std::vector<int> index(layout.shape.size());
  for (const float element : *to.memory) {
    if (element != (*from.memory)[size_t(from.offset + position(layout, index))]) {
      return false;
    }
    for (size_t dim = index.size(); dim-- > 0 && ++index[dim] == layout.shape[dim];) {
      index[dim] = 0;
    }
  }
  return true;
}

void check_copies() {
  report(copies_right({{}, {}}), "copy", "a scalar");
  report(copies_right({{1, 1}, {7, -3}}), "copy", "one element");
  report(copies_right({{67}, {-3}}), "copy", "a vector backwards");
  report(copies_right({{5, 1, 7}, {0, 99, 2}}), "copy", "a repeated row");
  report(copies_right({{5, 7}, {0, 0}}), "copy", "one element, repeated");
  report(copies_right({{4, 3, 37}, {37, -148, -1}}), "copy", "axes in another order");
  report(copies_right({{33, 9, 2}, {1, 33, 297}}), "copy", "all axes reversed");
  // More axes than a launch takes: the outermost are counted by the host.
  Strided many;
  for (int dim = 0; dim < 11; ++dim) {
    many.shape.push_back(2 + (dim == 4));
    many.strides.push_back((dim % 2 == 0 ? 1 : -1) * (int64_t(1) << (2 * ((7 * dim) % 11)) / 2));
  }
  report(copies_right(many), "copy", "eleven axes");
}

void check_pipelines() {
  const LaunchSequence copies = plan(*find_kernel("naive"), copied(*find_kernel("naive")));
  RecordingDevice device;
  LaunchRecord record = copies.copies[0];
  Pipeline* first = make_pipeline(record, device, kOptions);
  report(make_pipeline(record, device, kOptions) == first, "pipeline", "made once");
  record.constants[0].value += 1;
  report(make_pipeline(record, device, kOptions) != first, "pipeline", "one for other constants");
  report(device.libraries() == 1 && device.pipelines() == 2, "pipeline", "both from one library");
  record = copies.copies[0];

  struct FailingDevice : RecordingDevice {
    Library* get_library(const std::string&, int, const std::function<std::string()>&) {
      throw std::runtime_error("program_source:3:1: error: unknown type name 'flaot'");
    }
  } failing;
  const auto message = [&](auto& on) -> std::string {
    try {
      make_pipeline(record, on, kOptions);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  report(message(failing) ==
             "[mlx_gemm] kernel strided_copy_32 does not compile here: program_source:3:1: error: "
             "unknown type name 'flaot'",
         "pipeline", "the compiler's log reaches the caller");
  first->limit = 255;
  report(
      message(device) == "[mlx_gemm] kernel strided_copy_32 needs 256 threads per threadgroup, this GPU allows it 255",
      "pipeline", "fewer threads than the launch has");
  first->limit = 256;
  report(message(device).empty(), "pipeline", "as many threads as the launch has");
  record.kernel = "nonsense";
  report(message(device) == "[mlx_gemm] kernel nonsense does not compile here: no such function", "pipeline",
         "a kernel that its library lacks");
}

}  // namespace

int main() {
  for (const KernelInfo& kernel : kernels()) {
    kernel.fused() ? check_fused_kernel(kernel) : check_kernel(kernel);
  }
  check_large_batches();
  check_copy_faults();
  check_copies();
  check_pipelines();
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0 || passed == 0;
}
