"""Translates Metal source into C++ for the Metal host runtime (csrc/metal_host).

The source is flattened by the C preprocessor (Apple's own headers stay includes of the runtime's), cut into tokens,
rewritten declaration by declaration and printed with its line numbers, so that compiler messages and faults name the
.metal file. What changes:

  device, threadgroup, constant   macros: nothing, or clang's address spaces in a build that checks them
  thread                          erased; declarations that become identical by all this are printed once
  [[attributes]]                  dropped, except on kernel parameters and instantiations, and for the thread limit
  kernel parameters               default arguments that fetch what the dispatch bound
  threadgroup T x[N];             a reference into the threadgroup's memory
  function constants              objects that look their value up
  host_name instantiations        registrations of the kernel under that name
  1.0h                            half(1.0f)

Anything else that Metal adds to C++ is refused with file and line rather than guessed at.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

# Headers of the Metal toolchain; the runtime provides them under csrc/metal_host/include.
METAL_HEADERS = (
    "metal_stdlib",
    "metal_math",
    "metal_logging",
    "metal_simdgroup",
    "metal_simdgroup_matrix",
    "metal_tensor",
    "metal_cooperative_tensor",
    "MetalPerformancePrimitives/MetalPerformancePrimitives.h",
)

ADDRESS_SPACES = {"device", "thread", "threadgroup", "constant"}
# Macros of the runtime: nothing, or clang's address spaces in a build that checks them.
SPACE_MACROS = {"device": "METAL_HOST_DEVICE", "threadgroup": "METAL_HOST_THREADGROUP", "thread": ""}

# Kernel parameter attributes that need no lane, and those that rule out one fiber per SIMD group.
UNIFORM_ATTRIBUTES = {
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
    "threads_per_threadgroup",
    "simdgroup_index_in_threadgroup",
}
LANE_ATTRIBUTES = {
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
}
# Functions through which a kernel can see its lane without a parameter.
LANE_FUNCTIONS = re.compile(r"(simd|quad)_\w+|thread_elements|__metal_get_thread_index_in_simdgroup")

TOKEN = re.compile(
    r"""\n?\#[^\n]*                          # line markers and pragmas, kept as white space
      | \s+
      | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*'
      | \.?\d(?:[eEpP][+-]|[\w.])*
      | [A-Za-z_]\w*
      | :: | -> | << | \[\[ | \]\]
      | .""",
    re.VERBOSE | re.DOTALL,
)
BRACKETS = {"(": ")", "[": "]", "{": "}", "[[": "]]"}
CLOSING = set(BRACKETS.values())


class TranslationError(Exception):
    pass


@dataclass
class Token:
    space: str  # white space, line markers and pragmas before the token
    text: str
    line: int  # in the flattened text


@dataclass(frozen=True)
class Source:
    """A Metal file, the folder that its includes are relative to, and further folders and macros, as for a compiler."""

    path: Path
    root: Path
    includes: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()


def flatten(source: Source, compiler: str) -> str:
    """Preprocesses `source` with every Metal header empty and every other include expanded."""
    with tempfile.TemporaryDirectory() as stubs:
        for header in METAL_HEADERS:
            stub = Path(stubs, header)
            stub.parent.mkdir(parents=True, exist_ok=True)
            stub.touch()
        command = [compiler, "-E", "-x", "c++", "-undef", "-nostdinc", f"-I{stubs}", "-I."]
        command += [f"-I{folder}" for folder in source.includes]
        command += ["-D__METAL__=1", "-D__METAL_VERSION__=400", "-D__HAVE_TENSOR__=1", "-D__HAVE_BFLOAT__=1"]
        command += [f"-D{define}" for define in source.defines]
        inside = source.path.is_relative_to(source.root)
        command += [str(source.path.relative_to(source.root) if inside else source.path)]
        run = subprocess.run(command, cwd=source.root, capture_output=True, text=True)
    if run.returncode != 0:
        raise TranslationError(run.stderr.strip())
    named = run.stdout.replace(f"{stubs}/", "")  # the same text every time
    return re.sub(r'^# (\d+) "(?:\./)?([^"]*)".*$', r'#line \1 "\2"', named, flags=re.MULTILINE)


def tokenize(text: str) -> list[Token]:
    tokens: list[Token] = []
    space = ""
    line = 1
    for match in TOKEN.finditer(text):
        piece = match[0]
        if piece.isspace() or piece.lstrip("\n").startswith("#"):
            # Metal's own pragmas mean nothing to a C++ compiler, and where it obeys those on loops it takes minutes.
            space += "\n" if re.match(r"\n?#\s*pragma\s+(METAL|clang\s+loop|unroll)", piece) else piece
        else:
            tokens.append(Token(space, piece, line))
            space = ""
        line += piece.count("\n")
    tokens.append(Token(space, "", line))
    return tokens


class Translator:
    def __init__(self, text: str, keep_spaces: bool = False) -> None:
        self.text = text
        self.keep_spaces = keep_spaces
        self.tokens = tokenize(text)
        self.out: list[str] = []
        self.count = 0
        self.lane_free: dict[str, bool] = {}  # kernel name -> never asks for a lane
        self.uses_lanes = any(LANE_FUNCTIONS.fullmatch(t.text) for t in self.tokens)

    def translate(self) -> str:
        self.declarations(0, len(self.tokens) - 1)
        self.out.append(self.tokens[-1].space)
        return "".join(self.out)

    # ---- Reading ----

    def fail(self, index: int, message: str) -> TranslationError:
        """An error at the place in the .metal source that token `index` came from."""
        before = self.text.split("\n")[: self.tokens[index].line]
        for distance, line in enumerate(reversed(before)):
            if marker := re.match(r'#line (\d+) "(.*)"', line):
                return TranslationError(f"{marker[2]}:{int(marker[1]) + distance - 1}: {message}")
        return TranslationError(message)

    def word(self, index: int) -> str:
        """Text of a token; nothing past the end, which every search takes for the end of the file."""
        return self.tokens[index].text if index < len(self.tokens) else ""

    def words(self, begin: int, end: int) -> list[str]:
        return [t.text for t in self.tokens[begin:end]]

    def after_group(self, begin: int) -> int:
        """Index after the bracket that closes the one at `begin`."""
        open_brackets = [BRACKETS[self.word(begin)]]
        index = begin + 1
        while open_brackets:
            word = self.word(index)
            if word == "":
                raise self.fail(begin, f"no matching bracket for '{self.word(begin)}'")
            if word == "]]" and open_brackets[-1] == "]":  # two array brackets, not an attribute's end
                token = self.tokens[index]
                self.tokens[index : index + 1] = [Token(token.space, "]", token.line), Token("", "]", token.line)]
                word = "]"
            if word in BRACKETS:
                open_brackets.append(BRACKETS[word])
            elif word in CLOSING and word != open_brackets.pop():
                raise self.fail(index, f"unexpected '{word}'")
            index += 1
        return index

    def semicolon(self, begin: int) -> int:
        """Index of the first semicolon from `begin` on."""
        index = begin
        while self.word(index) != ";":
            if self.word(index) == "":
                raise self.fail(begin, "a declaration without an end")
            index += 1
        return index

    def after_template_parameters(self, begin: int) -> int:
        """Index after `template <...>` at `begin`."""
        index, depth = begin + 1, 0
        while True:
            word = self.word(index)
            if word == "":
                raise self.fail(begin, "a declaration without an end")
            if word in BRACKETS:
                index = self.after_group(index)
                continue
            depth += (word == "<") - (word == ">")
            index += 1
            if depth == 0:
                return index

    # ---- Writing ----

    def emit(self, text: str, at: int) -> None:
        """Replaces token `at` by `text`, keeping the white space before it."""
        self.out.append(self.tokens[at].space + text)

    def skip(self, begin: int, end: int) -> None:
        """Drops tokens but keeps their lines."""
        self.out.extend(t.space for t in self.tokens[begin:end])

    def copy(self, begin: int, end: int) -> None:
        """Prints tokens with address spaces erased, attributes dropped and literals rewritten."""
        index = begin
        while index < end:
            word = self.word(index)
            if word == "[[":
                after = self.after_group(index)
                self.skip(index, after)
                index = after
                continue
            if word in SPACE_MACROS:
                self.emit(SPACE_MACROS[word], index)
            elif word == "constant":
                qualified = {self.word(index - 1), self.word(index + 1)} & {"const", "constexpr"}
                self.emit("METAL_HOST_CONSTANT" + ("" if qualified else " const"), index)
            elif literal := re.fullmatch(r"([\d.][\d.eE+-]*)h", word):
                self.emit(f"half({literal[1]}f)", index)
            else:
                self.emit(word, index)
            index += 1

    # ---- Declarations ----

    def declarations(self, begin: int, end: int) -> None:
        """Namespace or class scope: one declaration after the other."""
        seen: set[str] = set()
        index = begin
        while index < end:
            index = self.declaration(index, seen)

    def declaration(self, begin: int, seen: set[str]) -> int:
        """Translates the declaration at `begin` and returns the index after it."""
        if self.word(begin) in ("public", "private", "protected"):
            self.copy(begin, begin + 2)
            return begin + 2
        shape = self.outline(begin)
        if self.instantiation(begin, shape.end) or self.function_constant(begin, shape.end):
            return shape.end
        header_end = shape.body[0] if shape.body else shape.end
        header = [w for w in self.words(begin, header_end) if self.keep_spaces or w not in ADDRESS_SPACES]
        key = " ".join(header)
        if shape.body and shape.kind != "namespace" and key in seen:
            self.skip(begin, shape.end)  # an overload or a specialisation for another address space
            return shape.end
        seen.add(key)
        if shape.kind in ("namespace", "class"):
            assert shape.body
            self.copy(begin, shape.body[0] + 1)
            self.declarations(shape.body[0] + 1, shape.body[1] - 1)
            self.copy(shape.body[1] - 1, shape.end)
            return shape.end
        if shape.body and shape.kind == "function":
            self.function(begin, shape)
        else:
            self.copy(begin, shape.end)
        return shape.end

    @dataclass
    class Outline:
        kind: str  # namespace, class, function or other
        end: int
        parameters: tuple[int, int] | None  # of a function, brackets included
        body: tuple[int, int] | None  # braces included

    def outline(self, begin: int) -> Outline:
        """Finds the extent of a declaration, its parameter list and its body."""
        index = begin
        while self.word(index) == "template" and self.word(index + 1) == "<":
            index = self.after_template_parameters(index)
        first = index
        parameters = None
        initialised = False
        in_initialiser_list = False
        while True:
            word = self.word(index)
            if word == "":
                raise self.fail(begin, "a declaration without an end")
            if word == ";":
                return self.Outline("other", index + 1, parameters, None)
            if word == "{":
                after = self.after_group(index)
                kind = self.scope_kind(first, index) if parameters is None else "function"
                if kind == "namespace":
                    return self.Outline(kind, after, None, (index, after))
                if kind == "class":
                    end = self.semicolon(after)
                    return self.Outline(kind, end + 1, None, (index, after))
                brace_initialiser = in_initialiser_list and self.word(after) in (",", "{")
                if kind == "function" and not initialised and not brace_initialiser:
                    return self.Outline(kind, after, parameters, (index, after))
                index = after
                continue
            if word == "=" and "operator" not in self.words(max(first, index - 2), index):
                initialised = True
            if word == ":" and parameters is not None:
                in_initialiser_list = True
            if word in BRACKETS:
                after = self.after_group(index)
                is_list = word == "(" and parameters is None and not initialised
                if is_list and self.word(index - 1) not in ("decltype", "alignas", "__attribute__"):
                    parameters = (index, after)
                index = after
                continue
            index += 1

    def scope_kind(self, begin: int, end: int) -> str:
        words = self.words(begin, end)
        if "namespace" in words:
            return "namespace"
        if "enum" not in words and {"struct", "class", "union"} & set(words):
            return "class"
        return "other"

    def instantiation(self, begin: int, end: int) -> bool:
        """template [[host_name("x")]] [[kernel]] decltype(f<...>) f<...>; or ... void f<...>(parameters);"""
        text = " ".join(self.words(begin, end))
        head = r'template \[\[ host_name \( (".*?") \) \]\] (?:\[\[ kernel \]\] )?'
        match = re.fullmatch(head + r"decltype \( (.*) \) \2 ;", text)
        match = match or re.fullmatch(head + r"void (\w+ <.*?>) \(.*\) ;", text)
        if not match:
            if text.startswith("template [[ host_name"):
                raise self.fail(begin, "an instantiation has the form decltype(f<...>) f<...> or void f<...>(...)")
            return False
        self.emit(self.registration(begin, match[1], match[2]), begin)
        self.skip(begin + 1, end)
        return True

    def registration(self, at: int, name: str, function: str) -> str:
        base = function.split("<")[0].split("::")[-1].strip()
        if base not in self.lane_free:
            raise self.fail(at, f"{base} is not a kernel of this file")
        uniform = self.lane_free[base] and not self.uses_lanes
        self.count += 1
        return f"METAL_HOST_REGISTER_{'UNIFORM' if uniform else 'LANES'}(registration_{self.count}, {name}, {function})"

    def function_constant(self, begin: int, end: int) -> bool:
        """constant T name [[function_constant(id)]];"""
        text = " ".join(self.words(begin, end))
        match = re.fullmatch(r"constant (?:const )?([\w: ]+?) (\w+) \[\[ function_constant \( (\w+) \) \]\] ;", text)
        if not match:
            return False
        self.emit(f"static const FunctionConstant<{match[1]}> {match[2]}{{{match[3]}}};", begin)
        self.skip(begin + 1, end)
        return True

    # ---- Functions ----

    def function(self, begin: int, shape: Outline) -> None:
        assert shape.parameters and shape.body
        parameters_begin, parameters_end = shape.parameters
        is_kernel = "kernel" in self.words(begin, parameters_begin)
        if is_kernel:
            name = self.word(parameters_begin - 1)
            self.kernel_header(begin, parameters_begin)
            self.kernel_parameters(name, shape)
            self.copy(parameters_end, shape.body[0])
        else:
            self.copy(begin, shape.body[0])
        self.copy(shape.body[0], shape.body[0] + 1)
        if is_kernel:
            self.thread_limit(begin, parameters_begin)
        self.body(shape.body[0] + 1, shape.body[1])
        if is_kernel and self.word(begin) != "template":
            self.out.append(" " + self.registration(begin, f'"{name}"', name))

    def kernel_header(self, begin: int, end: int) -> None:
        for index in range(begin, end):
            if self.word(index) == "kernel" and self.word(index - 1) not in ("[[", ","):
                self.skip(index, index + 1)
                self.copy(begin, index)
                self.copy(index + 1, end)
                return
        self.copy(begin, end)

    def thread_limit(self, begin: int, end: int) -> None:
        """max_total_threads_per_threadgroup(limit) is checked when a thread enters the kernel."""
        for index in range(begin, end):
            if self.word(index) == "max_total_threads_per_threadgroup":
                limit = " ".join(self.words(index + 1, self.after_group(index + 1)))
                self.out.append(f" metal_host::limit_threads{limit};")

    def kernel_parameters(self, name: str, shape: Outline) -> None:
        """Every parameter carries an attribute; it becomes a default argument."""
        assert shape.parameters and shape.body
        begin, end = shape.parameters
        named = set(self.words(*shape.body))
        self.copy(begin, begin + 1)
        self.lane_free[name] = True
        start = begin + 1
        while start < end - 1:
            index = start
            attribute = None
            while self.word(index) != "," and index < end - 1:
                if self.word(index) == "[[":
                    attribute = (index, self.after_group(index))
                index = self.after_group(index) if self.word(index) in BRACKETS else index + 1
            if attribute is None:
                raise self.fail(start, f"a parameter of kernel {name} has no attribute")
            self.copy(start, attribute[0])
            self.out.append(self.binding(name, start, attribute, named))
            self.copy(attribute[1], index + (self.word(index) == ","))
            start = index + 1
        self.copy(end - 1, end)

    def binding(self, name: str, start: int, attribute: tuple[int, int], named: set[str]) -> str:
        words = self.words(attribute[0] + 1, attribute[1] - 1)
        declaration = self.words(start, attribute[0])
        buffer = re.fullmatch(r"buffer \( ([^,]+) \)(?: , function_constant \( (\w+) \))?", " ".join(words))
        if buffer:
            # An argument is absent whose function constant is false, or which the body never names.
            unused = declaration[-1].isidentifier() and declaration[-1] not in named
            present = "false" if unused else buffer[2] or "true"
            arguments = f"{buffer[1]}, {present}"
            if "*" in declaration:
                return f" = BoundPointer({arguments})"
            if "&" in declaration:
                return f" = BoundReference({arguments})"
            raise self.fail(start, "a buffer parameter is a pointer or a reference")
        attribute_name = words[0] if words else ""
        if len(words) == 1 and attribute_name in UNIFORM_ATTRIBUTES | LANE_ATTRIBUTES:
            if attribute_name in LANE_ATTRIBUTES:
                self.lane_free[name] = False
            return f" = {attribute_name}()"
        raise self.fail(attribute[0], f"unknown kernel parameter attribute [[{' '.join(words)}]]")

    def body(self, begin: int, end: int) -> None:
        """A function body: threadgroup variables become references into the threadgroup's memory."""
        index = copied = begin
        while index < end:
            if self.word(index) == "threadgroup" and self.word(index - 1) in ("{", "}", ";"):
                stop = self.semicolon(index)
                declarator = self.words(index, stop)
                dimensions = declarator.index("[") if "[" in declarator else len(declarator)
                if not {"*", "&", "=", "("} & set(declarator[:dimensions]):
                    self.copy(copied, index)
                    self.threadgroup_variable(index, stop, index + dimensions)
                    index = copied = stop
                    continue
            elif self.word(index) == "threadgroup" and self.declares_variable(index):
                raise self.fail(index, "write a threadgroup variable as `threadgroup T x[N];`, a statement of its own")
            index += 1
        self.copy(copied, end)

    def declares_variable(self, index: int) -> bool:
        """Whether `threadgroup` at `index` qualifies a variable, rather than what a pointer or reference refers to."""
        while self.word(index) not in ("*", "&", ">", ",", ")", ""):
            if self.word(index) in (";", "=", "["):
                return True
            index = self.after_group(index) if self.word(index) == "[[" else index + 1
        return False

    def threadgroup_variable(self, begin: int, end: int, dimensions: int) -> None:
        depth = 0
        several = initialised = False
        for word in self.words(begin, end):
            depth += (word in ("<", "[")) - (word in (">", "]"))
            several = several or (word == "," and depth == 0)
            initialised = initialised or (word == "=" and depth == 0)
        if several or initialised:
            raise self.fail(begin, "declare one threadgroup variable at a time, without an initialiser")
        name = self.word(dimensions - 1)
        element = " ".join(w for w in self.words(begin + 1, dimensions - 1))
        extent = "".join(self.words(dimensions, end))
        self.count += 1
        key = f"threadgroup_key_{self.count}"
        self.emit(
            f"using {name}_type = {element}{extent}; static const char {key} = 0; "
            f"auto& {name} = threadgroup_object<{name}_type>(&{key})",
            begin,
        )
        self.skip(begin + 1, end)


def translate(source: Source, compiler: str, keep_spaces: bool = False) -> str:
    includes = "".join(f"#include <{header}>\n" for header in METAL_HEADERS)
    translator = Translator(flatten(source, compiler), keep_spaces)
    body = f"namespace METAL_HOST_MSL {{\n{translator.translate()}\n}}\n"
    if translator.uses_lanes:
        body = f"#if METAL_HOST_LANES == 32\n{body}#endif\n"
    return f"{includes}#include <metal_host/bind.h>\n\n{body}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--root", type=Path, required=True, help="folder that local includes are relative to")
    parser.add_argument("--compiler", default="c++", help="C++ compiler whose preprocessor flattens the source")
    parser.add_argument("-I", dest="includes", action="append", default=[], type=Path, help="folder, as for a compiler")
    parser.add_argument("-D", dest="defines", action="append", default=[], help="macro, as for a compiler")
    parser.add_argument(
        "--address-spaces", action="store_true", help="overloads may differ by address space: drop no declaration"
    )
    args = parser.parse_args()
    source = Source(
        args.source.resolve(), args.root.resolve(), tuple(p.resolve() for p in args.includes), tuple(args.defines)
    )
    try:
        text = translate(source, args.compiler, args.address_spaces)
    except TranslationError as error:
        print(f"{error}", file=sys.stderr)
        return 1
    except (RecursionError, UnicodeDecodeError) as error:
        print(f"{args.source}: not a Metal source that can be translated: {error}", file=sys.stderr)
        return 1
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
