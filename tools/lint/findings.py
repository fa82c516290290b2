"""What the lint reports, and the comments that allow it: `// lint: allow(rule) reason`.

Behind code, such a comment covers its line; on a line of its own, the statement or declaration that follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lint.source import Comment, Source

RULES = {
    "bad-allow": "An exception names one rule that exists, and says why it is right.",
    "unused-allow": "An exception that excuses nothing hides the next real finding.",
}
ALLOW = re.compile(r"allow\(([\w-]+)\)\s+\w")


@dataclass(frozen=True, order=True)
class Finding:
    path: Path
    line: int
    rule: str
    message: str


@dataclass(frozen=True)
class Allow:
    rule: str
    line: int
    covered: range

    def covers(self, finding: Finding) -> bool:
        return finding.rule == self.rule and finding.line in self.covered


def settle(source: Source, findings: Iterable[Finding], known_rules: set[str]) -> Iterator[Finding]:
    """The findings in one file that no comment allows, and those about the comments themselves."""
    allows = []
    for comment in source.comments:
        if "lint:" not in comment.text:
            continue
        match = ALLOW.match(comment.text.split("lint:", 1)[1].strip())
        if match and match[1] in known_rules - set(RULES):
            allows.append(Allow(match[1], comment.line, covered_lines(source, comment)))
        else:
            message = "an exception has the form `lint: allow(rule) reason`, with a rule of this lint"
            yield Finding(source.path, comment.line, "bad-allow", message)

    used = set()
    for finding in findings:
        excuses = [allow for allow in allows if allow.covers(finding)]
        used.update(excuses)
        if not excuses:
            yield finding
    for allow in allows:
        if allow not in used:
            message = f"there is no {allow.rule} finding here to allow"
            yield Finding(source.path, allow.line, "unused-allow", message)


def covered_lines(source: Source, comment: Comment) -> range:
    if any(token.line == comment.line for token in source.tokens):
        return range(comment.line, comment.line + 1)
    following = next((i for i, token in enumerate(source.tokens) if token.offset > comment.offset), None)
    if following is None:
        return range(0)
    last = source.tokens[source.statement_end(following) - 1]
    return range(source.tokens[following].line, last.line + 1)
