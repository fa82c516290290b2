"""The mutation harness finds seeded bugs, lets what changes nothing pass, and its document lists every mutant."""

from __future__ import annotations

from dataclasses import replace

import mutants
import pytest
from mutations import MUTATIONS

# Fast to compile and run, one for each kind of source.
QUICK = {
    "naive: assigns instead of adding": "wrong result",
    "select: first macOS refused": "failing check",
    "registry rows: tile that matmul2d computes wrongly": "compile error",
}


def named(name: str) -> mutants.Mutation:
    return next(mutation for mutation in MUTATIONS if mutation.name == name)


def test_seeded_bugs_are_found() -> None:
    verdicts = mutants.run_all([named(name) for name in QUICK], jobs=2)
    assert dict(zip(QUICK, (verdict.by for verdict in verdicts), strict=True)) == QUICK


@pytest.mark.parametrize("file", ["metal/ladder/naive.metal", "csrc/backends/launch_record.cpp"])
def test_an_identity_survives(file: str) -> None:
    identity = mutants.original(file)
    mutants.prepare()
    verdict = mutants.run(identity)
    assert not verdict.killed
    assert mutants.unexpected([identity], [verdict]) == [f"{identity.name}: survived"]
    assert not mutants.unexpected([replace(identity, equivalent="changes nothing")], [verdict])


def test_text_that_no_longer_matches_is_an_error() -> None:
    stale = replace(MUTATIONS[0], old="no such text")
    with pytest.raises(mutants.VoidRun, match="holds the text to replace 0 times, not once"):
        mutants.run_all([stale], jobs=1)


def test_every_mutation_fits_and_has_its_own_name() -> None:
    assert all(mutants.patched(mutation) for mutation in MUTATIONS)
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def test_every_kernel_has_mutants() -> None:
    ladder = {str(path.relative_to(mutants.ROOT)) for path in mutants.ROOT.glob("metal/**/*.metal")}
    assert ladder <= {mutation.file for mutation in MUTATIONS}


def test_document_lists_every_mutant() -> None:
    assert mutants.names_in(mutants.DOC.read_text()) == [mutation.name for mutation in MUTATIONS]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_mutant_is_killed() -> None:
    verdicts = mutants.run_all(MUTATIONS, jobs=2)
    assert not mutants.unexpected(MUTATIONS, verdicts)
