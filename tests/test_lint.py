"""tools/lint: every rule reports one line of a bad snippet, and nothing in the good one beside it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from lint import metal_lint
from lint.metal_lint import REASONS, ROOT, lint

KERNELS = sorted(ROOT.glob("metal/**/*.metal"))

HEAD = """\
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;
using namespace mpp::tensor_ops;
enum { kSlot = 0 };
using Ext = dextents<int, 2>;
using Matrix = tensor<device float, Ext, tensor_inline>;
using Mode = matmul2d_descriptor::mode;
constant constexpr auto accumulate = matmul2d_descriptor(32, 32, -1, false, false, false, Mode::multiply_accumulate);
"""

# Around the snippets that are marked `in op`.
OPERATION = """\
inline void f(device float* p, device const float* q, device half* h) {{
  matmul2d<accumulate, execution_simdgroup> op;
  Matrix a(p, Ext(64, 64));
  Matrix b(p, Ext(64, 64));
  Matrix c(p, Ext(64, 64));
  auto acc = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
{}}}
"""

# A rule, the bad snippet with <- on the line to report, and behind -- the good one. $TAB and $X are long or invisible.
CASES = r"""
== line-length
// $X <-
--
// $X

== tab
constant constexpr int a =$TAB1;  // <-
--
constant constexpr int a = 1;

== forbidden-word
inline void f() {
  goto end;  // <-
end:;
}
--
inline void f(long goto_end) {}  // goto end, long long

== forbidden-word
inline void f(long long x) {}  // <-
--
inline long f(long x) { return x; }

== threadgroup-in-helper
inline void f() {
  threadgroup float tile[8];  // <-
  tile[0] = 1.0f;
}
--
inline void f(threadgroup float* tile) {
  threadgroup float* row = tile + 8;
  row[0] = 1.0f;
}

== thread-limit
[[kernel]] void k(device float* c [[buffer(kSlot)]]) { c[0] = 1.0f; }  // <-
--
[[kernel, max_total_threads_per_threadgroup(32)]] void k(device float* c [[buffer(kSlot)]]) { c[0] = 1.0f; }

== thread-limit
template <class T>
kernel void k(device T* c [[buffer(kSlot)]]) {  // <-
  c[0] = T(1);
}
template [[host_name("k")]] [[kernel]] decltype(k<half>) k<half>;
--
inline void k(device float* c) { c[0] = 1.0f; }

== bare-index
[[kernel, max_total_threads_per_threadgroup(32)]] void k(
    device float* c [[buffer(2)]]) {  // <-
  c[0] = 1.0f;
}
--
[[kernel, max_total_threads_per_threadgroup(32)]] void k(
    device float* c [[buffer(kSlot)]]) {
  c[0] = 1.0f;
}

== bare-index
constant bool aligned [[function_constant(3)]];  // <-
--
constant bool aligned [[function_constant(kSlot)]];
inline float f(float x) { return aligned ? x : 0.0f; }

== decltype-operand in op
auto other = op.get_destination_cooperative_tensor<decltype(a), Matrix, float>();  // <-
--
using A = remove_addrspace_t<decltype(a)>;
auto other = op.get_destination_cooperative_tensor<A, Matrix, float>();

== unguarded-slot in op
for (ushort i = 0; i < acc.get_capacity(); ++i) {
  acc[i] = 0.0f;  // <-
}
--
for (ushort i = 0; i < acc.get_capacity(); ++i) {
  if (acc.is_valid_element(i)) {
    acc[i] = 0.0f;
  }
}

== unguarded-slot in op
if (!acc.is_valid_element(0)) {
  acc[0] = 0.0f;  // <-
}
--
for (ushort i = 0; i < 8; ++i) {
  if (!acc.is_valid_element(i)) {
    continue;
  }
  acc[i] = 0.0f;
}

== unguarded-slot in op
if (acc.is_valid_element(0)) {
  p[0] = acc[1];  // <-
}
--
p[0] = acc.is_valid_element(1) ? acc[1] : 0.0f;

== unguarded-slot in op
if (acc.is_valid_element(0)) {
  acc[0] = 1.0f;
} else {
  acc[0] = 0.0f;  // <-
}
--
auto out = op.get_destination_cooperative_tensor<Matrix, Matrix, half>();
if (acc.is_valid_element(0)) {
  out[0] = half(acc[0]);
}

== unguarded-slot
template <class Tile>
inline void clear(thread Tile& tile) {
  for (ushort i = 0; i < tile.get_capacity(); ++i) {
    tile[i] = 0.0f;  // <-
  }
}
--
template <class Tile>
inline void clear(thread Tile& tile) {
  for (ushort i = 0; i < tile.get_capacity(); ++i) {
    tile.set(i, 0.0f);
  }
}

== address-space
inline void f(device float* p, threadgroup float* t) {
  threadgroup float* q = p;  // <-
}
--
inline void f(device float* p, threadgroup float* t) {
  threadgroup float* q = t;
  device const float4* v = (device const float4*)p;
}

== address-space
inline void g(thread float& x) {}
inline void f(device float* p) {
  g(p[0]);  // <-
}
--
inline void g(device float& x) {}
inline void f(device float* p) { g(p[0]); }

== address-space
inline void f(constant float* p) {
  simdgroup_float8x8 m;
  simdgroup_load(m, p, 8);  // <-
}
--
inline void f(device const float* p, threadgroup float* t) {
  simdgroup_float8x8 m;
  simdgroup_load(m, p, 8);
  simdgroup_store(m, t, 8);
}

== address-space
template <int N>
[[kernel, max_total_threads_per_threadgroup(N)]] void k() {
  threadgroup float tile[N];
  device float* p = tile;  // <-
}
template [[host_name("k")]] [[kernel]] decltype(k<8>) k<8>;
--
template <int N>
[[kernel, max_total_threads_per_threadgroup(N)]] void k() {
  threadgroup float tile[N][4];
  threadgroup int count;
  threadgroup float* p = tile[1];
  count = 1;
}
template [[host_name("k")]] [[kernel]] decltype(k<8>) k<8>;

== address-space
template <class T>
struct Loader {
  const device T* source;
  Loader(const device T* p) : source(p) {}
};
inline void f(threadgroup half* t) {
  Loader<half> loader(t);  // <-
}
--
template <class T>
struct Loader {
  const device T* source;
  Loader(const device T* p) : source(p) {}
  void next() { source += 8; }
};
inline void f(device half* p) {
  Loader<half> loader(p);
  Loader<half> other = loader;
  other.next();
  loader = other;
  loader = Loader<half>(p);
}

== unqualified-pointer
inline float f(
    float* p) {  // <-
  return p[0];
}
--
template <class T, int N>
inline void g(thread array<T, N>& x) {}
inline float f(thread float* p, device float* device* q) {
  auto* r = q;
  thread auto& s = *p;
  return s * r[0][0];
}

== unqualified-pointer
struct S {
  device float* device* good;
  device float** bad;  // <-
};
--
struct S {
  device float *one, *two;
  int x = 2 * 3, y = 3 * 4;
};

== unqualified-pointer
inline int f(thread int (&x)[3]) {
  auto& y = x[0];  // <-
  return y;
}
--
inline int f(thread int (&x)[3]) {
  auto add = [&](thread int& y) { y += x[0]; };
  add(x[1]);
  return x[1];
}

== unqualified-pointer
inline int f(int (&x)[3]) { return x[0]; }  // <-
--
inline int f(int x[3]) { return x[0]; }

== unqualified-pointer
using P = float*;  // <-
--
using P = device float*;

== method-space
struct S {
  int x;
  int get() const { return x; }
};
inline int f(device const S& s) {
  return s.get();  // <-
}
--
struct S {
  int x;
  int get() const { return x; }
};
inline int f(device const S& s, constant S& t) {
  S copy = s;
  const S other = t;
  return copy.get() + s.x;
}

== method-space
struct S {
  int x;
  void clear() { x = 0; }
};
template <int N>
inline void f(threadgroup S* s) {
  s[N].clear();  // <-
}
inline void g(threadgroup S* s) { f<2>(s); }
--
struct S {
  int x;
  void clear() { x = 0; }
  S next() const { return S{x + 1}; }
  int get() const threadgroup { return x; }
  int get() const { return x; }
};
inline int f(threadgroup S* s) {
  S copy = S{s->get()}.next().next();
  copy.clear();
  return copy.get();
}

== generic-this
struct S {
  int x;
  thread int& at() { return x; }  // <-
};
--
struct S {
  int x;
  thread int& at() thread { return x; }
  static device int* next(device int* p) { return p + 1; }
};

== generic-this
template <class T>
struct S {
  T x[2];
  const thread T& operator[](int i) const { return x[i]; }  // <-
};
inline float f(S<float> s) { return s[1]; }
--
template <class T>
struct S {
  T x[2];
  T operator[](int i) const { return x[i]; }
  S operator+(S other) const { return S{{x[0] + other.x[0], x[1]}}; }
};
inline float f(S<float> a, S<float> b) { return (a + b + a)[1]; }

== program-scope
constexpr int TILE = 64;  // <-
--
constant constexpr int TILE = 64;

== program-scope
struct S {
  static constexpr int TILE = 64;  // <-
};
--
struct S {
  static constant constexpr int TILE = 64;
};

== static-local
inline int f() {
  static int calls = 0;  // <-
  return ++calls;
}
--
inline int f() {
  constexpr int calls = 0;
  return calls;
}

== double
inline void f(float x) {
  double y = x;  // <-
}
--
inline float f(half x) { return x * 2.0h; }

== double
inline void f(float x) {
  long double y = x;  // <-
}
--
inline long f(float x) { return long(x); }

== virtual
struct S {
  virtual void f() {}  // <-
};
--
struct Base {
  int x;
};
struct S : Base {
  int y;
};

== exceptions
inline void f() {
  throw 1;  // <-
}
--
inline void f() { return; }

== heap
inline void f() {
  thread int* p = new int;  // <-
}
--
inline void f() {
  int x[4];
  thread int* p = x;
}

== heap
inline void f(thread int* p) {
  delete p;  // <-
}
--
struct S {
  S() = delete;
};

== rtti
struct S {};
inline void f(thread S* s) {
  dynamic_cast<thread S*>(s);  // <-
}
--
struct Base {};
struct S : Base {};
inline thread S* f(thread Base* s) { return static_cast<thread S*>(s); }

== storage-class
inline void f() {
  register int x = 1;  // <-
}
--
inline void f() {
  const int x = 1;
}

== function-pointer
inline void f() {
  int (*each)(int);  // <-
}
--
template <class F>
inline int apply(F each) {
  return each(1);
}
inline int f(int x) {
  return apply([&](int y) { return x + y; });
}

== variable-length-array
inline void f(int n) {
  float x[n];  // <-
}
--
template <int N>
inline float f() {
  float x[N] = {0.0f};
  return x[0];
}
inline float g() { return f<3>(); }

== temporary-reference
inline void g(thread int& x) {}
inline void f() {
  g(3);  // <-
}
--
inline void g(thread int& x) {}
inline void f() {
  int x = 3;
  g(x);
}

== temporary-reference
inline void f() {
  thread int& x = 3;  // <-
}
--
inline void f(thread int& y) {
  thread int& x = y;
  const thread int& z = 3;
}

== threadgroup-variable
[[kernel, max_total_threads_per_threadgroup(32)]] void k() {
  threadgroup int x = 0;  // <-
}
--
[[kernel, max_total_threads_per_threadgroup(32)]] void k() {
  threadgroup int x;
  x = 0;
}

== bfloat-conversion
inline void f(device bfloat* c, float x) {
  c[0] = x;  // <-
}
--
inline void f(device bfloat* c, device half* d, float x) {
  c[0] = bfloat(x);
  d[0] = x;
  d[1] = half(float(c[0]));
}

== bfloat-conversion
inline void f(device bfloat* c, device half* d) {
  d[0] = c[0];  // <-
}
--
inline float f(device bfloat* c) { return c[0] + 1.0f; }

== not-instantiated
template <class T>
[[kernel, max_total_threads_per_threadgroup(32)]] void k(
    device T* c [[buffer(kSlot)]]) {  // <-
  c[0] = T(1);
}
--
template <class T>
[[kernel, max_total_threads_per_threadgroup(32)]] void k(
    device T* c [[buffer(kSlot)]]) {
  c[0] = T(1);
}
template [[host_name("k")]] [[kernel]] decltype(k<half>) k<half>;

== compile
inline int f() {
  return 1 +;  // <-
}
--
inline uint f(uint2 local) { return uint2(local.y, 1).x + uint(ushort2(local).y); }

== missing-api in op
const bool x = acc.get_mask(0);  // <-
--
const int x = acc.is_valid_element(0) ? acc.get_multidimensional_index(0)[1] : 0;

== missing-api
template <class Tensor>
inline auto never_called(Tensor t) {
  return t.template static_slice<32, 32>(0, 0);  // <-
}
--
template <class Tensor>
inline auto never_called(Tensor t) {
  return t.template slice<32, 32>(0, 0);
}

== missing-api in op
auto x = a.offset(1, 2);  // <-
--
Matrix x(p + 2 * 64 + 1, Ext(63, 62), array<int, 2>{1, 64});

== capacity-constant in op
float x[acc.get_capacity()];  // <-
--
const ushort x = acc.get_capacity();

== capacity-constant in op
constexpr ushort x = acc.get_capacity();  // <-
--
constexpr ushort x = acc.get_rank();

== tensor-copy in op
auto other = acc;  // <-
--
auto other = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();

== const-operand in op
tensor<device const float, Ext, tensor_inline> x(q, Ext(64, 64));
op.run(x, b, c);  // <-
--
Matrix x((device float*)q, Ext(64, 64));
op.run(x, b, c);

== const-operand in op
const Matrix x = a;
op.run(x, b, c);  // <-
--
Matrix x = a;
op.run(x, b, c);

== index-type in op
using Wrong = dextents<uint, 2>;
tensor<device float, Wrong, tensor_inline> x(p, Wrong(64, 64));
op.run(x, b, c);  // <-
--
using Static = extents<int, 64, 64>;
tensor<device float, Static, tensor_inline> x(p, Static{});
op.run(x, b, c);

== element-types in op
tensor<device half, Ext, tensor_inline> x(h, Ext(64, 64));
op.run(a, b, x);  // <-
--
tensor<device half, Ext, tensor_inline> x(h, Ext(64, 64));
op.run(x, b, c);

== element-types in op
tensor<device half, Ext, tensor_inline> x(h, Ext(64, 64));
acc.store(x);  // <-
--
op.run(a, b, acc);
acc.store(c);
acc.store(Matrix(p, Ext(8, 8)));

== operand-types in op
using Static = extents<int, 64, 64>;
tensor<device float, Static, tensor_inline> x(p, Static{});
op.run(x, b, acc);  // <-
--
op.run(a, b, acc);

== temporary-operand in op
op.run(a, b, Matrix(p, Ext(64, 64)));  // <-
--
op.run(a, b, c);

== explicit-mode in op
constexpr auto d = matmul2d_descriptor(32, 32, 32);  // <-
--
constexpr auto d = matmul2d_descriptor(32, 32, 32, false, false, false, Mode::multiply);

== tile-shape in op
constexpr auto d = matmul2d_descriptor(32, 32, 16, false, false, false, Mode::multiply);
matmul2d<d, execution_simdgroup> other;
other.run(a, b, c);  // <-
--
constexpr auto d = matmul2d_descriptor(16, 32, 16, false, false, false, Mode::multiply);
matmul2d<d, execution_simdgroup> other;
auto x = other.get_left_input_cooperative_tensor<float, float, float>();
other.run(x, b, c);

== tile-shape
template <int M>
inline void f(thread Matrix& x) {
  matmul2d<matmul2d_descriptor(M, 32, -1, false, false, false, Mode::multiply), execution_simdgroup> op;
  op.run(x, x, x);  // <-
}
inline void g(thread Matrix& x) { f<8>(x); }
--
template <int M>
inline void f(thread Matrix& x) {
  matmul2d<matmul2d_descriptor(M, 32, -1, false, false, false, Mode::multiply), execution_simdgroup> op;
  op.run(x, x, x);
}
inline void g(thread Matrix& x) { f<48>(x); }

== large-slice in op
auto x = a.slice<32, dynamic_extent>(0, 0);  // <-
--
threadgroup half* tile = nullptr;
tensor<threadgroup half, Ext, tensor_inline> t(tile, Ext(64, 64));
auto x = t.slice(32, 0);

== unused-allow
// lint: allow(large-slice) the matrix is small  <-
constant constexpr int a = 1;
--
inline void f(thread Matrix& a, int row) {
  // lint: allow(large-slice) the matrix is small
  if (row > 0) {
    auto x = a.slice(0, 0);
  } else {
    auto x = a.slice(8, 0);
  }
}

== unused-allow in op
Matrix x = a;  // lint: allow(large-slice) the matrix is small  <-
--
auto x = a.slice(0, 0);  // lint: allow(large-slice) the matrix is small

== bad-allow
// lint: allow(no-such-rule) for a reason  <-
--
// to lint is to allow nothing

== bad-allow
// lint: allow(tab)  <-
--
constant constexpr int a =$TAB1;  // lint: allow(tab) shows how
"""


def cases() -> list[tuple[str, str, str]]:
    """Rule, bad and good source of every case."""
    rows = []
    for case in CASES.replace("$TAB", "\t").replace("$X", "x" * 117).split("\n== ")[1:]:
        title, body = case.split("\n", 1)
        rule, _, inside = title.partition(" ")
        bad, good = (HEAD + (OPERATION.format(part) if inside else part) for part in body.split("--\n"))
        rows.append((rule, bad, good))
    return rows


def findings(path: Path, text: str) -> list[tuple[int, str]]:
    path.write_text(text)
    return [(finding.line, finding.rule) for finding in lint([path])]


@pytest.mark.parametrize(("rule", "bad", "good"), cases(), ids=[case[0] for case in cases()])
def test_rule(tmp_path: Path, rule: str, bad: str, good: str) -> None:
    marked = [number for number, line in enumerate(bad.split("\n"), 1) if "<-" in line]
    assert findings(tmp_path / "bad.metal", bad) == [(marked[0], rule)]
    assert findings(tmp_path / "good.metal", good) == []


def test_every_rule_has_a_case() -> None:
    assert {rule for rule, _, _ in cases()} == set(REASONS)


def test_our_kernels_are_clean() -> None:
    assert KERNELS and lint(KERNELS) == []


@pytest.mark.parametrize("kernel", KERNELS, ids=[path.stem for path in KERNELS])
def test_every_kernel_template_is_instantiated(tmp_path: Path, kernel: Path) -> None:
    text = kernel.read_text()
    path = tmp_path / kernel.name
    kind, parameter = re.findall(r"template <(int|typename) (\w+)[^>]*>\n\[\[kernel", text)[0]
    never = f"{parameter} == 0" if kind == "int" else f"sizeof({parameter}) == 0"
    path.write_text(text.replace("]]) {\n", f"]]) {{\n  static_assert({never});\n"))
    assert {(f.path, f.rule) for f in lint([path])} == {(path, "compile")}
    path.write_text(
        re.sub(r'^(#include "metal/shared/gemm_kernels.def"|GEMM_INSTANTIATE).*', "", text, flags=re.MULTILINE)
    )
    assert "not-instantiated" in {f.rule for f in lint([path])}


def test_header_is_checked_once_with_what_includes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metal_lint, "ROOT", tmp_path)
    header = tmp_path / "common.h"
    header.write_text("#pragma once\ntemplate <int N>\ninline void f() {\n  double x[N];\n}\n")
    users = [tmp_path / "one.metal", tmp_path / "two.metal"]
    for user in users:
        user.write_text('#include "common.h"\ninline void g() { f<3>(); }\n')
    assert [(f.path, f.line, f.rule) for f in lint(users)] == [(header, 4, "double")]


def test_command(tmp_path: Path) -> None:
    path = tmp_path / "k.metal"
    path.write_text("constexpr int a = 1;\n")
    command = [sys.executable, "tools/lint/metal_lint.py"]
    run = subprocess.run([*command, str(path)], cwd=ROOT, capture_output=True, text=True)
    assert re.fullmatch(rf"{re.escape(str(path))}:1: program-scope: .+\n", run.stdout), run.stderr
    assert run.returncode == 1
    assert subprocess.run([*command, "--all"], cwd=ROOT, capture_output=True).returncode == 0
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 2
