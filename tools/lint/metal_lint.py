"""Check Metal source without a Metal compiler.

    python tools/lint/metal_lint.py FILE... | --all | --rules

FILE is a .metal file; what it includes from the repository is checked with it. --all takes every file of metal/.
Prints `file:line: rule: message` and fails when there is anything to print. --rules lists the rules and their reasons.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lint import findings, libclang_lint, rules
from lint.findings import Finding
from lint.source import Source

ROOT = Path(__file__).resolve().parent.parent.parent

REASONS = {name: rule.why for name, rule in rules.RULES.items()} | libclang_lint.RULES | findings.RULES


def load(files: Iterable[Path]) -> dict[Path, Source]:
    """The files and, through their includes, every file of the repository that they read."""
    sources: dict[Path, Source] = {}
    pending = list(files)
    while pending:
        path = pending.pop().resolve()
        if path not in sources:
            sources[path] = Source(path, path.read_text())
            pending += [ROOT / name for name in sources[path].includes if (ROOT / name).is_file()]
    return sources


def lint(files: Iterable[Path]) -> list[Finding]:
    """Findings in the files and what they include: one per line and rule, in order."""
    sources = load(files)
    found: dict[Path, dict[tuple[int, str], Finding]] = defaultdict(dict)
    # The registry is a table with its own columns.
    tokens = (f for source in sources.values() if source.path.suffix != ".def" for f in rules.check(source))
    for finding in (*tokens, *libclang_lint.check(sources, ROOT)):
        found[finding.path].setdefault((finding.line, finding.rule), finding)
    settled = (
        f for path, source in sources.items() for f in findings.settle(source, found[path].values(), set(REASONS))
    )
    return sorted(settled)


def main() -> int:
    parser = argparse.ArgumentParser(description="Check Metal source without a Metal compiler.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--all", action="store_true", help="every .metal file of metal/")
    parser.add_argument("--rules", action="store_true", help="list the rules and their reasons")
    options = parser.parse_args()
    if options.rules:
        print("\n".join(f"{name:22}{why}" for name, why in sorted(REASONS.items())))
        return 0
    if bool(options.files) == options.all:
        parser.error("name files, or --all")
    if wrong := [str(path) for path in options.files if path.suffix != ".metal" or not path.is_file()]:
        parser.error(f"not a .metal file: {', '.join(wrong)}")
    try:
        found = lint(sorted(ROOT.glob("metal/**/*.metal")) if options.all else options.files)
    except (RecursionError, UnicodeDecodeError) as error:
        parser.error(f"not a Metal source that can be read: {error}")
    for finding in found:
        path = finding.path.relative_to(ROOT) if finding.path.is_relative_to(ROOT) else finding.path
        print(f"{path}:{finding.line}: {finding.rule}: {finding.message}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
