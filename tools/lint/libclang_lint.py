"""Address spaces, language restrictions and uses of the Metal API, checked by libclang.

C++ for OpenCL has Metal's qualified pointers, so the source is parsed in that mode against the declarations in
include/, after small rewrites that keep its lines:

  [[attributes]]                 removed
  function constants             extern, so that they have no value
  threadgroup T name[N];         a reference to threadgroup memory: OpenCL has such variables only in kernels, and
                                 kernels cannot be templates
  member functions               also declared, as deleted, for device and threadgroup objects: Metal 4.0 takes one
                                 without an address space to be for thread objects; constructors lose theirs
  kernel templates               get a probe at the start of the body, which reports that it is instantiated

OpenCL's generic address space is on: without it classes cannot be assigned or passed by value. It is no way around
the rules, because a pointer without an address space is a finding.

Not seen: what no instantiation reaches; what follows a broken declaration in the same template; attributes; uses of a
variable whose initialiser is legal Metal but not OpenCL.
Too strict: a temporary passed as `const thread T&`; on the result of a call, a member function with `thread`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import Path

from clang import cindex  # type: ignore[import-untyped]

from lint.findings import Finding
from lint.source import ADDRESS_SPACES, Function, Source, Token

INCLUDE = Path(__file__).resolve().parent / "include"
ARGUMENTS = [
    *("-x", "clcpp", "-cl-std=clc++2021", "-cl-no-stdinc", "--target=x86_64-unknown-linux-gnu"),
    *("-Xclang", "-cl-ext=-all,+cl_khr_fp16,+__opencl_c_generic_address_space"),
    *("-D__METAL_VERSION__=400", "-D__HAVE_TENSOR__=1", "-D__HAVE_BFLOAT__=1"),
    *("-ferror-limit=0", "-Wimplicit-float-conversion", f"-I{INCLUDE}", "-include", f"{INCLUDE}/metal_lint.h"),
]

# OpenCL's words in Metal's.
METAL_WORDS = {
    "__global": "device",
    "__local": "threadgroup",
    "__constant": "constant",
    "__private": "thread",
    f"{2**64 - 1}UL": "dynamic_extent",
}

# What is legal in Metal: a temporary bound to `const thread T&`, a class copied out of constant memory.
LEGAL = re.compile(
    r"reference of type 'const __private .*(cannot bind to a temporary|to value of type '(?!const __|__))"
    r"|implicit copy constructor\) not viable: cannot bind reference in address space '__constant'"
)

# Overloads that nobody meant to call.
NO_CANDIDATE = re.compile(r"the implicit|not viable: requires ")

EXCLUDED = "The Metal specification excludes it from C++."

# The compiler's own findings: reason, and the message (or all of its notes about candidates) that they are known by.
COMPILER_RULES = {
    "capacity-constant": (
        "The capacity is fixed when the pipeline is made (Metal.jl's notes on the intermediate code).",
        r"non-constexpr function 'get_capacity'",
    ),
    "variable-length-array": (EXCLUDED, r"array size is not a constant|variable length array"),
    "temporary-reference": (
        "A temporary lies in no address space that `thread T&` could name.",
        r"to value of type '(?!const __|__)|bind to a temporary|bind reference in default address space"
        r"|would make '[^']*__private \w+' equal '(?!const __|__)",
    ),
    "method-space": (
        "A member function without a qualifier is for thread objects (Metal specification).",
        r"cannot initialize object parameter|'this' object is in address space|deleted (member )?(function|operator)",
    ),
    "program-scope": (
        "Variables of a file or class are `constant` (Metal specification).",
        r"program scope variable",
    ),
    "static-local": (EXCLUDED, r"static local variable"),
    "double": (EXCLUDED, r"use of type '(long )?double'"),
    "virtual": (EXCLUDED, r"virtual functions are not supported"),
    "exceptions": (EXCLUDED, r"with exceptions disabled"),
    "heap": (EXCLUDED, r"'default (new|delete)"),
    "rtti": (EXCLUDED, r"'(dynamic_cast|typeid)' is not supported"),
    "storage-class": (EXCLUDED, r"storage class specifier"),
    "function-pointer": ("Only visible functions have addresses (Metal specification).", r"pointers to functions"),
    "threadgroup-variable": (
        "One per statement and without an initialiser (Metal specification, tools/metal_to_host.py).",
        r"variable cannot be declared in local address space",
    ),
    "bfloat-conversion": (
        "float to bfloat is explicit, half and bfloat do not convert (Metal specification).",
        r"loses floating-point precision: .* to '[^']*bf|'[^']*\bhalf'.* '[^']*bfloat'|'[^']*bfloat'.* '[^']*\bhalf'",
    ),
    "missing-api": (
        "What include/ does not declare is not known to exist, however often comments name it.",
        r"no member named|no type named|use of undeclared identifier",
    ),
    "generic-this": (
        "Since Metal 4.1 `this` is generic in a member function without `thread` (MLX had to add it).",
        r"'[^']*__generic [^']*'",
    ),
    "address-space": (
        "Pointers and references into different address spaces never convert (Metal specification).",
        r"address space|would make '[^']*__\w+ \w+' equal '",
    ),
    "compile": ("The source must parse.", r""),
}

# Found by METAL_LINT_RULE in the headers of include/.
HEADER_RULES = {
    "const-operand": "matmul2d rejects const elements with misleading messages (MLX and llama.cpp cast const away).",
    "element-types": "The type table of matmul2d; load and store do not convert (Apple's header).",
    "explicit-mode": "Header and specification of matmul2d disagree on whether `multiply` reads C.",
    "index-type": "matmul2d asserts extents of int and rank 2 (Apple's header).",
    "large-slice": "A slice 2 GiB or more into its tensor is addressed wrongly (llama.cpp issue 28748).",
    "operand-types": "A destination belongs to the operand types that it was made for (Apple's header).",
    "temporary-operand": "run() takes three non-const lvalues (Apple's header).",
    "tensor-copy": "A cooperative tensor stays where its getter put it (Apple's header).",
    "tile-shape": "Other tiles are computed wrongly in silence, or rejected from macOS 26.4 on (metalBLAS, XLA).",
}

DECLARATION_RULES = {
    "unqualified-pointer": "Every pointer and reference names its address space (Metal specification).",
    "not-instantiated": "A kernel template that nothing instantiates is checked by nobody.",
}

RULES = {name: why for name, (why, _) in COMPILER_RULES.items()} | HEADER_RULES | DECLARATION_RULES


def check(sources: Mapping[Path, Source], root: Path) -> Iterator[Finding]:
    """Findings in .metal files and in the files of the repository that they include, all of them in `sources`."""
    rewritten = {path: Source(path, rewrite(source)) for path, source in sources.items()}
    unsaved = [(str(path), source.text) for path, source in rewritten.items()]
    index = cindex.Index.create()
    instantiated: set[tuple[Path, int]] = set()
    for path in sources:
        if path.suffix != ".metal":
            continue
        unit = index.parse(str(path), args=[*ARGUMENTS, f"-I{root}"], unsaved_files=unsaved)
        for diagnostic in unit.diagnostics:
            place = place_of(diagnostic, rewritten) or (path, 1)
            if diagnostic.spelling == "instantiated":
                instantiated.add(place)
            elif name := rule_of(diagnostic):
                yield Finding(*place, name, message_of(diagnostic))
        yield from unqualified_pointers(unit.cursor, rewritten)
    for path, source in sources.items():
        for body, _ in kernel_templates(source):
            if (path, body.line) not in instantiated:
                message = "no instantiation reaches this kernel template"
                yield Finding(path, body.line, "not-instantiated", message)


# ---- Rewriting ----


def rewrite(source: Source) -> str:
    """The source as libclang reads it; the same lines, and one byte per character."""
    edits = [(begin, end, "") for begin, end in attributes(source)]
    for function in source.functions:
        for name, semicolon in source.threadgroup_variables(function):
            token, end = source.tokens[name], source.tokens[semicolon].offset
            edits.append((token.offset, token.offset + len(token.text), f"(&{token.text})"))
            edits.append((end, end, " = metal_lint::ThreadgroupMemory()"))
        if function.owner:
            edits += member_edits(source, function)
    for index, token in enumerate(source.tokens):
        if token.text == "function_constant" and source.word(index + 6) == ";":
            begin = source.tokens[source.statement_begin(index)].offset
            edits.append((begin, begin, "extern "))
    for body, parameter in kernel_templates(source):
        edits.append((body.offset + 1, body.offset + 1, f" metal_lint::probe<{parameter}>();"))
    text = source.text
    for begin, end, replacement in sorted(edits, reverse=True):
        text = text[:begin] + replacement + re.sub(r"[^\n]", "", text[begin:end]) + text[end:]
    return text.encode("ascii", "replace").decode()


def member_edits(source: Source, function: Function) -> Iterator[tuple[int, int, str]]:
    """Deletes a member function for device and threadgroup objects; takes the address space from a constructor."""
    closing = function.parameters[1]
    before = source.words(source.after_template(function.begin), function.name)
    after = source.tokens[closing + 1 : function.end]
    if source.word(function.name) == function.owner or before[-1:] == ["~"]:
        yield from ((t.offset, t.offset + len(t.text), "") for t in after if t.text in ADDRESS_SPACES)
    elif "static" not in before and not source.has_spaces(function):
        declaration = " ".join(source.words(function.begin, closing + 1))
        const = "const" if any(token.text == "const" for token in after) else ""
        deleted = "".join(f"{declaration} {const} {space} = delete; " for space in ("device", "threadgroup"))
        yield source.tokens[function.begin].offset, source.tokens[function.begin].offset, deleted


def attributes(source: Source) -> Iterator[tuple[int, int]]:
    """Offsets of every [[...]], those in macros too."""
    for tokens in (source.tokens, source.macro_tokens):
        depth = 0
        begin = None
        for token, following in zip(tokens, tokens[1:], strict=False):
            depth += (token.text == "[") - (token.text == "]")
            adjacent = following.text == token.text and following.offset == token.offset + 1
            if begin is None and token.text == "[" and adjacent:
                begin, depth = token.offset, 1
            elif begin is not None and depth == 1 and token.text == "]" and adjacent:
                yield begin, following.offset + 1
                begin = None


def kernel_templates(source: Source) -> Iterator[tuple[Token, str]]:
    """The brace that opens the body of each kernel template, and the name of its first parameter."""
    for function in source.functions:
        if function.is_kernel and function.body_end and source.word(function.begin) == "template":
            end = source.after_angles(function.begin + 1)
            stops = (",", "=", ">")
            stop = next(i for i in source.level(function.begin, end) if source.word(i) in stops)
            yield source.tokens[function.end], source.word(stop - 1)


# ---- What the compiler says ----


def file_of(location: cindex.SourceLocation) -> Path:
    return Path(location.file.name if location.file else "")


def place_of(diagnostic: cindex.Diagnostic, sources: Mapping[Path, Source]) -> tuple[Path, int] | None:
    """Where in our sources: the first note there when the message itself is about a header of include/."""
    for location in (diagnostic.location, *(note.location for note in diagnostic.children)):
        if file_of(location) in sources:
            return file_of(location), location.line
    return None


def rule_of(diagnostic: cindex.Diagnostic) -> str | None:
    text = str(diagnostic.spelling)
    name = text.split(":")[0]
    if name in HEADER_RULES:
        return name
    if any(LEGAL.search(each) for each in (text, *(note.spelling for note in diagnostic.children))):
        return None
    notes = useful_notes(diagnostic)
    candidates = [note for note in notes if note.startswith("candidate")]
    texts = candidates or ["\n".join([text, *notes])]
    is_error = diagnostic.severity >= cindex.Diagnostic.Error
    for rule, (_, pattern) in COMPILER_RULES.items():
        found = [bool(re.search(pattern, each)) or is_conflict(rule, each) for each in (text, *texts)]
        if (is_error or rule == "bfloat-conversion") and (found[0] or all(found[1:])):
            return rule
    return None


def useful_notes(diagnostic: cindex.Diagnostic) -> list[str]:
    return [str(note.spelling) for note in diagnostic.children if not NO_CANDIDATE.search(note.spelling)]


def is_conflict(rule: str, text: str) -> bool:
    """Whether a message names pointers, references or arrays in different address spaces."""
    spaces = re.findall(r"__(global|local|constant|private)(?= [^'*&[]*[*&[])", text)
    return rule == "address-space" and len(set(spaces)) > 1


def message_of(diagnostic: cindex.Diagnostic) -> str:
    """The message in Metal's words, with the reason why the first overload does not fit."""
    text = str(diagnostic.spelling)
    if text.split(":")[0] in HEADER_RULES:
        return text.split(":", 1)[1].strip()
    reason = next((note for note in useful_notes(diagnostic) if note.startswith("candidate")), None)
    text += f": {reason}" if reason else ""
    for opencl, metal in METAL_WORDS.items():
        text = text.replace(opencl, metal)
    return text


# ---- Declarations ----

POINTER_KINDS = {
    cindex.CursorKind.VAR_DECL,
    cindex.CursorKind.PARM_DECL,
    cindex.CursorKind.FIELD_DECL,
    cindex.CursorKind.FUNCTION_DECL,
    cindex.CursorKind.FUNCTION_TEMPLATE,
    cindex.CursorKind.CXX_METHOD,
    cindex.CursorKind.TYPEDEF_DECL,
    cindex.CursorKind.TYPE_ALIAS_DECL,
    cindex.CursorKind.TEMPLATE_NON_TYPE_PARAMETER,
}


def unqualified_pointers(cursor: cindex.Cursor, sources: Mapping[Path, Source]) -> Iterator[Finding]:
    for child in cursor.get_children():
        path = file_of(child.location)
        if path not in sources and cursor.kind == cindex.CursorKind.TRANSLATION_UNIT:
            continue
        if path in sources and child.kind in POINTER_KINDS and points_nowhere(declarator(child, sources[path])):
            message = f"the pointer or reference {child.spelling or 'without a name'} names no address space"
            yield Finding(path, child.location.line, "unqualified-pointer", message)
        yield from unqualified_pointers(child, sources)


def declarator(cursor: cindex.Cursor, source: Source) -> list[str]:
    """The words of a declaration up to its name; of an alias or a nameless parameter, those of the type."""
    begin, end = cursor.extent.start.offset, cursor.location.offset
    is_alias = cursor.kind == cindex.CursorKind.TYPE_ALIAS_DECL
    if is_alias or not cursor.spelling:
        end = cursor.extent.end.offset
    first, last = (bisect_left(source.tokens, offset, key=lambda token: token.offset) for offset in (begin, end))
    index = source.after_template(first)
    words = []
    while index < last:
        words.append(source.word(index))
        after = source.partner.get(index, index) + 1
        index = after if index < after <= last else index + 1
    return words[words.index("=") + 1 :] if is_alias and "=" in words else words


def points_nowhere(words: list[str]) -> bool:
    """Whether a `*` or `&` follows no address space; each level of indirection needs its own."""
    angles = 0
    qualified = is_initialiser = False
    first: bool | None = None  # what the first declarator starts with holds for the ones behind a comma
    for previous, word in zip(["", *words], words, strict=False):
        if is_initialiser and word != ",":
            continue
        is_initialiser = word == "="
        angles += (word == "<") - (word == ">")
        if angles:
            continue
        if word in ADDRESS_SPACES:
            qualified = True
        elif word == ",":
            qualified = bool(first)
        elif word in ("*", "&", "&&"):
            # The type behind `auto*` brings its space along; a function pointer has a rule of its own.
            if not qualified and (word, previous) not in (("*", "auto"), ("*", "(")):
                return True
            first = qualified if first is None else first
            qualified = False
    return False
