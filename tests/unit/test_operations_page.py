"""The page docs/operations.md and the instruments say the same, both ways."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from airunner import telemetry
from airunner.generation.dead_letters import OUR_CODES
from airunner.telemetry.fleet_metrics import CLOUDWATCH_NAMES, FLEET_METRICS
from airunner.telemetry.instruments import Instrument

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()
EVENT = re.compile(r'"((?:fleet|housekeeping|runner)\.[a-z_]+)"')
ROW = re.compile(r"^\| `(airunner\.[\w.]+)` \| `(\w+)` \| (.*?) ?\| (.+) \| (.*?) ?\|$", re.MULTILINE)
SIDES = [
    ("Of the server", telemetry.SERVER_METRICS),
    ("Of a worker", telemetry.WORKER_METRICS),
    ("Of a relay", telemetry.OUTBOX_METRICS),
    ("Of a generation worker", telemetry.GENERATION_METRICS),
    ("Of the processors of a fleet", FLEET_METRICS),
]
NAMES = ["server", "worker", "relay", "generation", "fleet"]
HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")


@pytest.mark.parametrize(("heading", "instruments"), SIDES, ids=NAMES)
def test_every_metric_is_described_and_nothing_else(heading: str, instruments: Sequence[Instrument]) -> None:
    said = [(name, shown, labels_in(labels)) for name, shown, labels, _, _ in rows(heading)]
    assert said == [(each.name, each.prometheus_name, each.labels) for each in instruments]


@pytest.mark.parametrize(("heading", "instruments"), SIDES, ids=NAMES)
def test_hardly_a_metric_is_without_an_alert(heading: str, instruments: Sequence[Instrument]) -> None:
    """What only makes sense beside another has none of its own."""
    silent = {name for name, _, _, _, alert in rows(heading) if not alert}
    assert silent <= {"airunner.store.commits", "airunner.worker.slots"}


def test_every_code_of_a_dead_letter_has_its_row_and_nothing_else() -> None:
    table = PAGE.partition("\n| Code | Verdict |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(OUR_CODES)


def test_queries_name_metrics_that_exist() -> None:
    known = {each.prometheus_name for _, instruments in SIDES for each in instruments}
    used = set(re.findall(r"\bairunner_\w+", PAGE))
    assert used - known - {f"{name}{suffix}" for name in known for suffix in HISTOGRAM_SUFFIXES} == set()


def test_the_names_in_cloudwatch_are_told() -> None:
    meanings = {name: meaning for name, _, _, meaning, _ in rows("Of the processors of a fleet")}
    for instrument in FLEET_METRICS:
        called = CLOUDWATCH_NAMES.get(instrument)
        told = re.findall(r"CloudWatch: `(\w+)`(?:, dimension `(\w+)`)?", meanings[instrument.name])
        assert told == ([(called.name, "".join(called.labels))] if called else [])


def test_every_event_that_a_fleet_logs_is_told_and_nothing_else() -> None:
    sources = [file.read_text() for file in sorted((ROOT / "src" / "airunner" / "fleet").rglob("*.py"))]
    written = {name for source in sources for name in EVENT.findall(source)}
    table = PAGE.partition("\n### What a fleet logs\n")[2].partition("\n## ")[0]
    told = {
        name
        for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(.+?)`", row)
    }
    # That is the name of a loop.
    assert told == written - {"fleet.schedule"}


def rows(heading: str) -> list[tuple[str, str, str, str, str]]:
    _, found, rest = PAGE.partition(f"\n### {heading}\n")
    assert found, f"there is no section {heading}"
    table = re.split(r"\n##", rest)[0]
    return ROW.findall(table)


def labels_in(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`(\w+)`", cell))
