"""Metal source as tokens, comments and declarations: as much structure as the rules need, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ADDRESS_SPACES = {"device", "constant", "threadgroup", "thread"}

TOKEN = re.compile(
    r"""\s+
      | (?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<code>"(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
          | \.?\d(?:[eEpP][+-]|[\w.])*
          | [A-Za-z_]\w*
          | :: | -> | && | \|\| | [=!<>]=
          | .)""",
    re.VERBOSE | re.DOTALL,
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
LOCAL_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
BRACKETS = {"(": ")", "[": "]", "{": "}"}
# A bracket after these does not open a parameter list.
NOT_A_FUNCTION = {"alignas", "decltype", "__attribute__", "static_assert"}


@dataclass(frozen=True)
class Token:
    text: str
    line: int
    offset: int

    @property
    def is_word(self) -> bool:
        return self.text[0].isalpha() or self.text[0] == "_"


@dataclass(frozen=True)
class Comment:
    text: str
    line: int
    offset: int


@dataclass(frozen=True)
class Function:
    """A function declaration or definition; all fields but the names are indices of tokens."""

    begin: int
    name: int
    parameters: tuple[int, int]  # the brackets
    end: int  # the brace that opens the body, or the semicolon
    body_end: int | None  # the brace that closes it
    owner: str | None  # the class it is a member of
    is_kernel: bool


class Source:
    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        self.comments: list[Comment] = []
        self.tokens: list[Token] = []
        self.macro_tokens: list[Token] = []  # of preprocessor lines
        directives = iter([m.span() for m in DIRECTIVE.finditer(text)])
        begin, end = next(directives, (len(text), len(text)))
        line = 1
        for match in TOKEN.finditer(text):
            while match.start() >= end:
                begin, end = next(directives, (len(text), len(text) + 1))
            if match["comment"]:
                self.comments.append(Comment(match[0], line, match.start()))
            elif match["code"]:
                inside = self.macro_tokens if match.start() >= begin else self.tokens
                inside.append(Token(match[0], line, match.start()))
            line += match[0].count("\n")

    @property
    def includes(self) -> list[str]:
        return LOCAL_INCLUDE.findall(self.text)

    def word(self, index: int) -> str:
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def words(self, begin: int, end: int) -> list[str]:
        return [t.text for t in self.tokens[begin:end]]

    # ---- Structure ----

    @cached_property
    def partner(self) -> dict[int, int]:
        """From each bracket to the one that matches it, both ways."""
        partner: dict[int, int] = {}
        open_brackets: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.text in BRACKETS:
                open_brackets.append(index)
            elif open_brackets and token.text == BRACKETS[self.word(open_brackets[-1])]:
                partner[index] = open_brackets.pop()
                partner[partner[index]] = index
        return partner

    def level(self, begin: int, end: int) -> Iterator[int]:
        """Indices of the tokens in [begin, end) outside nested brackets; of a nested pair, the opening one."""
        index = begin
        while index < end:
            yield index
            index = self.partner.get(index, index) + 1 if self.word(index) in BRACKETS else index + 1

    def after_angles(self, begin: int) -> int:
        """Index after the `<...>` at `begin`."""
        depth = 0
        for index in self.level(begin, len(self.tokens)):
            depth += (self.word(index) == "<") - (self.word(index) == ">")
            if depth == 0:
                return index + 1
        return len(self.tokens)

    def after_template(self, begin: int) -> int:
        """Index after any `template <...>` at `begin`."""
        while self.word(begin) == "template" and self.word(begin + 1) == "<":
            begin = self.after_angles(begin + 1)
        return begin

    def statement_end(self, begin: int) -> int:
        """Index after the statement or declaration at `begin`, with its else branches."""
        for index in self.level(begin, len(self.tokens)):
            word = self.word(index)
            if word == ";":
                return index + 1
            if word == "}":
                return index
            if word == "{" and self.brace_kind(begin, index) in ("block", "namespace"):
                after = self.partner.get(index, index) + 1
                if self.word(after) != "else":
                    return after
        return len(self.tokens)

    def statement_begin(self, index: int) -> int:
        """Index of the first token of the statement that token `index` stands in."""
        while index > 0 and self.word(index - 1) not in (";", "{", "}", ""):
            index -= 1
            index = self.partner.get(index, index) if self.word(index) in (")", "]") else index
        return index

    def brace_kind(self, begin: int, brace: int) -> str:
        """What the brace opens in the statement at `begin`: a namespace, a class, a block or an initialiser."""
        head = [self.word(i) for i in self.level(self.after_template(begin), brace)]
        last = self.word(brace - 1)
        if "namespace" in head:
            return "namespace"
        if {"struct", "class", "union"} & set(head) and ("(" not in head or "alignas" in head):
            return "class"
        if {"=", "return", "enum"} & set(head) and "operator" not in head:
            return "initialiser"
        after_parameters = last in ADDRESS_SPACES | {")", "const", "noexcept"} or ("->" in head and "(" in head)
        after_initialisers = last == "}" and ":" in head
        if not head or last in ("else", "do", ":") or after_parameters or after_initialisers:
            return "block"
        return "initialiser"

    @cached_property
    def functions(self) -> list[Function]:
        return list(self._functions(0, len(self.tokens), None))

    def _functions(self, begin: int, end: int, owner: str | None) -> Iterator[Function]:
        while begin < end:
            if self.word(begin) in ("public", "private", "protected"):
                begin += 2
                continue
            after = max(self.statement_end(begin), begin + 1)
            brace = next((i for i in self.level(begin, after) if self.word(i) == "{"), None)
            kind = self.brace_kind(begin, brace) if brace is not None else ""
            if brace is not None and kind in ("namespace", "class"):
                name = owner if kind == "namespace" else self._class_name(begin, brace)
                yield from self._functions(brace + 1, self.partner.get(brace, after), name)
            elif function := self._function(begin, after, owner):
                yield function
            begin = after

    def _class_name(self, begin: int, brace: int) -> str:
        head = self.words(self.after_template(begin), brace)
        keyword = next(i for i, word in enumerate(head) if word in ("struct", "class", "union"))
        return head[keyword + 1] if keyword + 1 < len(head) else ""

    def _function(self, begin: int, after: int, owner: str | None) -> Function | None:
        first = self.after_template(begin)
        parameters = None
        for index in self.level(first, after):
            name, before = self.word(index - 1), self.words(first, index)
            if self.word(index) == "=" and "operator" not in before:
                return None
            is_call_operator = name == "operator" and self.word(index + 1) == ")"
            named = before and (self.tokens[index - 1].is_word or "operator" in before) and name not in NOT_A_FUNCTION
            if self.word(index) == "(" and named and not is_call_operator:
                parameters = index
                break
        if parameters is None or self.word(first) in ("using", "typedef", "friend"):
            return None
        closing = self.partner.get(parameters, after - 1)
        body_end = after - 1 if self.word(after - 1) == "}" else None
        body = self.partner.get(after - 1, after - 1) if body_end is not None else after - 1
        head = self.words(first, parameters)
        name_index = first + head.index("operator") if "operator" in head else parameters - 1
        return Function(begin, name_index, (parameters, closing), body, body_end, owner, "kernel" in head)

    def has_spaces(self, function: Function) -> bool:
        """Whether it, or a member function of the same name, says for objects of which address space it is."""
        same = (f for f in self.functions if (f.owner, self.word(f.name)) == (function.owner, self.word(function.name)))
        return any(ADDRESS_SPACES & set(self.words(f.parameters[1], f.end)) for f in same)

    def body(self, function: Function) -> range:
        """Indices of the tokens of its body, the opening brace included; empty for a declaration."""
        return range(function.end, function.body_end or function.end)

    def threadgroup_variables(self, function: Function) -> Iterator[tuple[int, int]]:
        """Name and semicolon of each `threadgroup T name[...];` in a function's body."""
        for index in self.body(function):
            if self.word(index) == "threadgroup" and self.word(index - 1) in ("{", "}", ";"):
                semicolon = self.statement_end(index) - 1
                level = [i for i in self.level(index, semicolon)]
                words = [self.word(i) for i in level]
                if not {"*", "&", "=", "("} & set(words) and not self._several(index, semicolon):
                    yield next((i for i in level if self.word(i) == "["), semicolon) - 1, semicolon

    def _several(self, begin: int, end: int) -> bool:
        """Whether a comma separates declarators rather than template arguments."""
        depth = 0
        for index in self.level(begin, end):
            depth += (self.word(index) == "<") - (self.word(index) == ">")
            if self.word(index) == "," and depth == 0:
                return True
        return False
