"""Rules that a C++ parser cannot check, over the tokens of one file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lint.findings import Finding
from lint.source import Function, Source

MAX_LINE = 120

Found = Iterator[tuple[int, str]]  # line, message


@dataclass(frozen=True)
class Rule:
    why: str
    check: Callable[[Source], Found]


RULES: dict[str, Rule] = {}


def rule(name: str, why: str) -> Callable[[Callable[[Source], Found]], Callable[[Source], Found]]:
    """Registers a check under its id; `why` is its reason and where that is known from."""

    def register(check: Callable[[Source], Found]) -> Callable[[Source], Found]:
        RULES[name] = Rule(why, check)
        return check

    return register


def check(source: Source) -> Iterator[Finding]:
    for name, each in RULES.items():
        for line, message in each.check(source):
            yield Finding(source.path, line, name, message)


# ---- Layout ----


@rule("line-length", f"Lines have at most {MAX_LINE} columns, as in .clang-format.")
def line_length(source: Source) -> Found:
    for number, line in enumerate(source.text.split("\n"), 1):
        if len(line) > MAX_LINE:
            yield number, f"{len(line)} columns, the limit is {MAX_LINE}"


@rule("tab", "Indentation is spaces, as in .clang-format.")
def tab(source: Source) -> Found:
    for number, line in enumerate(source.text.split("\n"), 1):
        if "\t" in line:
            yield number, "a tab"


# ---- Language ----


@rule("forbidden-word", "The Metal specification excludes these from C++; OpenCL's parser accepts them.")
def forbidden_word(source: Source) -> Found:
    for index, token in enumerate(source.tokens):
        if token.text in ("goto", "asm") or (token.text == "long" and source.word(index - 1) == "long"):
            yield token.line, f"Metal has no {'long long' if token.text == 'long' else token.text}"


@rule("threadgroup-in-helper", "Threadgroup variables belong to a kernel (Metal specification): pass pointers.")
def threadgroup_in_helper(source: Source) -> Found:
    for function in source.functions:
        for name, _ in () if function.is_kernel else source.threadgroup_variables(function):
            yield source.tokens[name].line, f"threadgroup variable {source.word(name)} outside a kernel"


# ---- Kernels ----


@rule("thread-limit", "Without it the pipeline may allow fewer threads than a launch uses (Metal specification).")
def thread_limit(source: Source) -> Found:
    for function in source.functions:
        head = source.words(function.begin, function.name)
        if function.is_kernel and function.body_end and "max_total_threads_per_threadgroup" not in head:
            message = f"kernel {source.word(function.name)} has no max_total_threads_per_threadgroup"
            yield source.tokens[function.name].line, message


@rule("bare-index", "Slots are named once, in metal/shared/params.h, for host and kernel.")
def bare_index(source: Source) -> Found:
    for index, token in enumerate(source.tokens):
        binding = token.text in ("buffer", "threadgroup", "function_constant") and source.word(index - 1) in ("[", ",")
        if binding and source.word(index + 1) == "(" and source.word(index + 2)[:1].isdigit():
            yield token.line, f"{token.text}({source.word(index + 2)}): use a name from metal/shared/params.h"


# ---- TensorOps ----


@rule("missing-api", "Only comments of Apple's headers name them; no toolchain up to 32023.921 declares them.")
def missing_api(source: Source) -> Found:
    instead = {"get_mask": "is_valid_element", "static_slice": "slice<...>"}
    for token in source.tokens:
        if token.text in instead:
            yield token.line, f"{token.text} does not exist: use {instead[token.text]}"


@rule("decltype-operand", "The type of a variable may carry `thread` since Metal 4.1; getters refuse it (MLX met it).")
def decltype_operand(source: Source) -> Found:
    for index, token in enumerate(source.tokens):
        variable = source.word(index + 1) == "(" and source.word(index + 3) == ")"
        if token.text == "decltype" and variable and "remove_addrspace_t" not in source.words(index - 2, index):
            yield token.line, f"decltype({source.word(index + 2)}): name the type with an alias"


@rule("unguarded-slot", "Not every slot holds an element, and [] does not check (Apple's header).")
def unguarded_slot(source: Source) -> Found:
    for function in source.functions:
        tensors = cooperative_tensors(source, function)
        for index in source.body(function):
            if source.word(index) in tensors and source.word(index + 1) == "[":
                slot = " ".join(source.words(index + 2, source.partner.get(index + 1, index + 2)))
                if not is_guarded(source, function, index, slot):
                    name = source.word(index)
                    yield source.tokens[index].line, f"{name}[{slot}] outside `if ({name}.is_valid_element({slot}))`"


def cooperative_tensors(source: Source, function: Function) -> set[str]:
    """Names that a getter of matmul2d initialises, or that are asked about their slots."""
    names = set()
    for index in source.body(function):
        if source.word(index) in ("get_capacity", "is_valid_element") and source.word(index - 1) == ".":
            names.add(source.word(index - 2))
        if source.word(index).endswith("_cooperative_tensor"):
            begin = source.statement_begin(index)
            names.update(source.word(i - 1) for i in range(begin, index) if source.word(i) == "=")
    return names


def is_guarded(source: Source, function: Function, index: int, slot: str) -> bool:
    """Whether the slot is known to be valid. A guard of another tensor of the operation will do: they line up."""
    valid = rf"\b\w+ \. is_valid_element \( {re.escape(slot)} \)"
    holds = re.compile(rf"(?<!! ){valid}")
    leaves = re.compile(rf"if \( ! {valid} \) (?:{{ )?(?:continue|return|break)\b")
    begin = source.statement_begin(index)
    conditions = [source.words(begin, index)]
    for block in source.body(function):
        if source.word(block) == "{" and block < index < source.partner.get(block, block):
            conditions.append(source.words(source.statement_begin(block), block))
            if leaves.search(" ".join(source.words(block + 1, begin))):
                return True
    return any("||" not in words and holds.search(" ".join(words)) for words in conditions)
