"""The generated code is current, importable from its place, and speaks the contract's names on the wire."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from airunner.codec.gen.job.v1 import job_connect, job_pb2
from scripts import generate_proto

GENERATED = generate_proto.SOURCE / generate_proto.PACKAGE
CONTRACT = generate_proto.ROOT / "api/job/v1/job.proto"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GENERATED, tmp_path / "gen"))


def test_an_equal_copy_is_current(copy: Path) -> None:
    assert generate_proto.differences(GENERATED, copy) == []


def test_changed_missing_and_left_over_files_are_named(copy: Path) -> None:
    (copy / "job/v1/job_connect.py").write_text("changed", encoding="utf-8")
    (copy / "job/v1/job_pb2.pyi").unlink()
    (copy / "job/v1/old_pb2.py").touch()
    assert generate_proto.differences(GENERATED, copy) == [
        "job/v1/job_connect.py",
        "job/v1/job_pb2.pyi",
        "job/v1/old_pb2.py",
    ]


def test_regenerating_changes_nothing(tmp_path: Path) -> None:
    generate_proto.generate(tmp_path)
    assert generate_proto.differences(tmp_path / generate_proto.PACKAGE, GENERATED) == []


def test_every_method_of_the_contract_has_its_path_on_the_wire() -> None:
    methods = set(re.findall(r"^\s*rpc (\w+)\(", CONTRACT.read_text(encoding="utf-8"), flags=re.MULTILINE))
    source = Path(job_connect.__file__).read_text(encoding="utf-8")
    paths = set(re.findall(r'"/job\.v1\.\w+/(\w+)"', source))
    assert paths == methods
    assert '"/job.v1.JobService/EnqueueJob"' in source


def test_messages_keep_the_names_of_the_contract() -> None:
    assert job_pb2.Job.DESCRIPTOR.full_name == "job.v1.Job"
    assert job_pb2.Job.__module__ == "airunner.codec.gen.job.v1.job_pb2"
