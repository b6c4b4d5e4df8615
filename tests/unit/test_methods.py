"""The table of methods against the contract."""

from __future__ import annotations

from airunner.codec import methods
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.methods import Method

# Nobody of ours calls these: they take a stream of requests, or have a sibling that answers in larger pieces.
NOT_CALLED = {"DequeueJob", "PublishJobEvents", "StreamJobEvents"}


def test_every_method_of_the_contract_is_in_the_table_as_it_is_there() -> None:
    table = {method.path: method for method in vars(methods).values() if isinstance(method, Method)}
    contract = {
        f"/{service.full_name}/{method.name}": method
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if method.name not in NOT_CALLED
    }
    assert table.keys() == contract.keys()
    for path, method in table.items():
        assert method.request.DESCRIPTOR is contract[path].input_type
        assert method.answer.DESCRIPTOR is contract[path].output_type
