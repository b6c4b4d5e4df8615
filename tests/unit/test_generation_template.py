"""The template of generation by itself: its alarms, and queues that must not be one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airunner.config import ConfigError, load_settings
from airunner.generation.layout import generation_resources
from tests.support.template import GENERATION_PATH, load_template, resources

QUEUES = resources("AWS::SQS::Queue", GENERATION_PATH)
ALARMS = resources("AWS::CloudWatch::Alarm", GENERATION_PATH)
URL = "https://sqs.eu-west-1.amazonaws.com/1"


def test_a_stack_has_the_defaults_of_the_settings(tmp_path: Path) -> None:
    (wanted,) = generation_resources(load_settings(environ={}, cwd=tmp_path).settings).queues
    parameters = load_template(GENERATION_PATH)["Parameters"]
    assert parameters["MaxReceiveCount"]["Default"] == wanted.max_receive_count == 5
    named = {queue: properties["QueueName"]["Fn::Sub"] for queue, properties in QUEUES.items()}
    assert {name.replace("${Env}", parameters["Env"]["Default"]) for name in named.values()} == {
        wanted.name,
        wanted.dead_letter_name,
    }


def test_depth_age_and_dead_letters_have_alarms() -> None:
    watched = {
        (alarm["MetricName"], alarm["Dimensions"][0]["Value"]["Fn::GetAtt"]): alarm["Threshold"]
        for alarm in ALARMS.values()
    }
    assert watched == {
        ("ApproximateNumberOfMessagesVisible", "GenerationDeadLetters.QueueName"): 0,
        ("ApproximateNumberOfMessagesVisible", "GenerationQueue.QueueName"): {"Ref": "QueueDepthAlarm"},
        ("ApproximateAgeOfOldestMessage", "GenerationQueue.QueueName"): {"Ref": "QueueAgeAlarmSeconds"},
    }
    told = {"Fn::If": ["HasTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    for alarm in ALARMS.values():
        assert (alarm["AlarmActions"], alarm["TreatMissingData"]) == (told, "notBreaching")


def test_queues_are_encrypted_and_reached_by_tls_alone() -> None:
    denied = {
        name: statement
        for policy in resources("AWS::SQS::QueuePolicy", GENERATION_PATH).values()
        for statement in policy["PolicyDocument"]["Statement"]
        for name in [statement["Resource"]["Fn::GetAtt"].removesuffix(".Arn")]
    }
    assert set(denied) == set(QUEUES)
    for statement in denied.values():
        assert (statement["Effect"], statement["Principal"]) == ("Deny", "*")
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert all(queue["SqsManagedSseEnabled"] for queue in QUEUES.values())


@pytest.mark.parametrize(
    "flags",
    [
        {"store.sqs.queues": "default,generation"},
        {"store.sqs.queues": f"work={URL}/shop", "generation.queue_url": f"{URL}/shop"},
        {"store.sqs.queues": f"work={URL}/airunner-dev-generation"},
        {"store.sqs.queues": f"work={URL}/shop", "outbox.queues": f"generation={URL}/shop"},
    ],
)
def test_a_job_queue_that_is_the_message_queue_is_refused(tmp_path: Path, flags: dict[str, Any]) -> None:
    given = {"store.type": "aws", **flags}
    with pytest.raises(ConfigError, match=r"store\.sqs\.queues"):
        generation_resources(load_settings(environ={}, flags=given, cwd=tmp_path).settings)
    for other in ({"outbox.sink": "jobs"}, {"store.type": "sqlite"}):
        generation_resources(load_settings(environ={}, flags={**given, **other}, cwd=tmp_path).settings)
