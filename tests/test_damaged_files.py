"""Whatever is wrong with a file, it is refused by name or read as it is: no traceback, no hang, no wrong size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fast import slow_but
from fuzzing.campaign import Campaign, Finding, cases_of
from fuzzing.faulty_readings import ENDS
from fuzzing.kinds import KINDS

ALL = [kind.name for kind in KINDS]
CASES = 2000


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    """A process that reads what is damaged, and is watched."""
    watched = Campaign(tmp_path_factory.mktemp("damaged"))
    yield watched
    watched.close()


def told(faults: Sequence[Finding]) -> str:
    """Return faults as lines, each with the command that repeats it."""
    return "\n".join(
        f"{one.end}: {one.reading} of {one.kind}/{one.target} after {one.damage}: {one.says}\n"
        f"    cd tests && python -m fuzzing --folder /tmp/damaged --kind {one.kind} --number {one.number}"
        for one in faults
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "kinds",
    slow_but([ALL[part::4] for part in range(4)], [ALL[::4]]),
    ids=["first", "second", "third", "fourth"],
)
def test_one_damage_of_each_kind_of_file_is_refused_or_read_as_it_is(kinds: list[str], campaign: Campaign) -> None:
    findings = list(campaign.run([(name, 0) for name in kinds]))
    faults = [one for one in findings if one.is_fault]
    assert not faults, told(faults)
    assert {one.kind for one in findings} == set(kinds)
    assert {one.end for one in findings} == {"accepted", "refused"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL)
def test_damages_of_a_kind_of_file_are_refused_or_read_as_they_are(
    kind: str, campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = cases_of([kind], CASES)
    findings = list(campaign.run(cases))
    with capsys.disabled():
        print(f" {kind}: {len(cases)} cases in {len(findings)} readings", end="")
    faults = [one for one in findings if one.is_fault]
    assert not faults, told(faults)


@pytest.mark.slow
def test_there_are_at_least_two_thousand_cases_and_the_same_each_time() -> None:
    assert sum(len(cases_of([kind], CASES)) for kind in ALL) >= CASES
    assert cases_of(ALL, CASES) == cases_of(ALL, CASES)


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_the_watch_notices_how_a_reading_ends(end: str, tmp_path: Path, campaign: Campaign) -> None:
    watched = Campaign(campaign.base.parent, waiting=20)
    findings = list(watched.run([(f"faulty: {end}", 0), ("npy", 0)]))
    watched.close()
    assert [one.end for one in findings if one.kind.startswith("faulty")] == [end]
    assert any(one.kind == "npy" and not one.is_fault for one in findings)  # the next case goes on
