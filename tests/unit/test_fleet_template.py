"""The template of a fleet by itself: its messages, its alarms, and no right too many."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from airunner.config import load_settings
from airunner.fleet.aws.layout import FleetLayout, fleet_resources
from airunner.fleet.aws.parameters import DEFAULT_PREFIX, INSTANCE_TAG
from airunner.fleet.messages.housekeeping import TaskType, parse_housekeeping
from tests.support.template import FLEET_PATH, PATH, load_template, resources

FLEET = Path(__file__).parents[2] / "src" / "airunner" / "fleet"
PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"
QUEUES = resources("AWS::SQS::Queue", FLEET_PATH)
TABLES = resources("AWS::DynamoDB::Table", FLEET_PATH)
RULES = resources("AWS::Events::Rule", FLEET_PATH)
ALARMS = resources("AWS::CloudWatch::Alarm", FLEET_PATH)
POLICIES = resources("AWS::IAM::ManagedPolicy", FLEET_PATH)
PARAMETERS = load_template(FLEET_PATH)["Parameters"]

TOPIC = {"Fn::If": ["HasTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
# Operations whose right has another name, and what our own calls for many items stand for.
RIGHTS = {"batch_get": "BatchGetItem", "read_items": "BatchGetItem", "batch_write": "BatchWriteItem"}
CALL = re.compile(r"_aws\.(ec2|ssm|dynamodb)[,(]\s*\"(\w+)\"")
# An event of a rule that goes by the clock.
SCHEDULED = {
    "version": "0",
    "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa",
    "detail-type": "Scheduled Event",
    "source": "aws.events",
    "account": "123456789012",
    "time": "2025-11-25T10:00:00Z",
    "region": "eu-central-1",
    "resources": ["arn:aws:events:eu-central-1:123456789012:rule/airunner-prod-old-jobs"],
    "detail": {},
}
VARIABLE = re.compile(r"<(\w+)>")
BATCH = re.compile(r"\b(batch_get|read_items|batch_write)\(")


@pytest.mark.parametrize("env", ["prod", "staging"])
def test_names_are_those_of_the_layout(env: str) -> None:
    layout = FleetLayout(env=env)
    names = {named(table["TableName"], env) for table in TABLES.values()}
    assert names == {layout.fleet_table, layout.pool_table}
    wanted = fleet_resources(layout).queues
    assert {named(queue["QueueName"], env) for queue in QUEUES.values()} == {
        *(queue.name for queue in wanted),
        *(queue.dead_letter_name for queue in wanted),
    }


def test_a_stack_has_the_defaults_of_the_settings(tmp_path: Path) -> None:
    settings = load_settings(environ={}, cwd=tmp_path).settings
    assert PARAMETERS["Env"]["Default"] == settings.store.aws.env
    prefix = PARAMETERS["RunnerParameterPath"]["Default"]
    assert prefix == settings.fleet.parameter_prefix == DEFAULT_PREFIX
    assert PARAMETERS["MetricNamespace"]["Default"] == settings.fleet.cloudwatch_namespace


def test_tables_are_encrypted_expire_can_be_recovered_and_outlive_the_stack() -> None:
    """The emulator leaves these out of a stack, so they are not compared there."""
    for logical, table in TABLES.items():
        assert table["SSESpecification"] == {"SSEEnabled": True, "SSEType": "KMS"}
        assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert table["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}
        resource = load_template(FLEET_PATH)["Resources"][logical]
        kept = (resource["UpdateReplacePolicy"], resource["DeletionPolicy"])
        assert kept == ("Retain", "RetainExceptOnCreate")


# Schedules


def test_each_task_is_asked_for_at_its_times() -> None:
    found = {}
    for rule in RULES.values():
        (target,) = rule["Targets"]
        assert target["Arn"] == {"Fn::GetAtt": "HousekeepingQueue.Arn"}
        assert rule["State"] == {"Ref": "Schedules"}
        message = parse_housekeeping(transformed(target["InputTransformer"], SCHEDULED))
        assert (message.timestamp, message.dry_run, message.limit) == (1_764_064_800_000, False, 0)
        assert message.unknown_fields == ()
        found[message.task_type] = rule["ScheduleExpression"]
    assert found == {
        TaskType.ORPHANED_INSTANCES: "cron(0/30 * * * ? *)",
        TaskType.STALE_SSM: "cron(0 * * * ? *)",
        TaskType.POOL_AUDIT: "cron(0 * * * ? *)",
        TaskType.OLD_JOBS: "cron(0 0 * * ? *)",
    }


def test_only_the_rules_of_the_stack_may_send_to_the_queue_by_its_policy() -> None:
    allowed = [
        statement
        for policy in resources("AWS::SQS::QueuePolicy", FLEET_PATH).values()
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]
    (statement,) = allowed
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert statement["Action"] == "sqs:SendMessage"
    assert statement["Resource"] == {"Fn::GetAtt": "HousekeepingQueue.Arn"}
    sources = statement["Condition"]["ArnEquals"]["aws:SourceArn"]
    assert sorted(source["Fn::GetAtt"] for source in sources) == sorted(f"{rule}.Arn" for rule in RULES)


def test_queues_are_encrypted_and_reached_by_tls_alone() -> None:
    denied = {
        statement["Resource"]["Fn::GetAtt"].removesuffix(".Arn"): statement["Condition"]
        for policy in resources("AWS::SQS::QueuePolicy", FLEET_PATH).values()
        for statement in policy["PolicyDocument"]["Statement"]
        if (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", "*", "sqs:*")
    }
    tls_alone = {"Bool": {"aws:SecureTransport": "false"}}
    assert denied == dict.fromkeys(QUEUES, tls_alone)
    assert all(queue["SqsManagedSseEnabled"] for queue in QUEUES.values())


# Alarms


def test_dead_letters_age_and_stopped_runs_have_alarms() -> None:
    watched = {
        (alarm["MetricName"], alarm["Dimensions"][0]["Value"]["Fn::GetAtt"]): (
            alarm["ComparisonOperator"],
            alarm["Threshold"],
            alarm["TreatMissingData"],
        )
        for alarm in ALARMS.values()
    }
    above, reached = "GreaterThanThreshold", "GreaterThanOrEqualToThreshold"
    expected: dict[tuple[str, str], tuple[str, Any, str]] = {
        ("NumberOfMessagesDeleted", "HousekeepingQueue.QueueName"): ("LessThanThreshold", 1, "breaching")
    }
    for queue in ("Termination", "Housekeeping"):
        dead, age = "ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"
        expected[dead, f"{queue}DeadLetters.QueueName"] = (above, 0, "notBreaching")
        limit = {"Ref": f"{queue}AgeAlarmSeconds"}
        expected[age, f"{queue}Queue.QueueName"] = (reached, limit, "notBreaching")
    assert watched == expected
    assert all(alarm["AlarmActions"] == TOPIC for alarm in ALARMS.values())


def test_the_page_says_for_each_alarm_what_to_do() -> None:
    _, _, runbook = PAGE.read_text().partition("## When an alarm rings")
    assert re.findall(r"^\| `(\w+Alarm)` \| .+ \| .+ \|$", runbook, re.MULTILINE) == list(ALARMS)


# Rights


def test_a_runner_reports_and_reads_its_own_configuration_alone() -> None:
    configuration, report = statements("RunnerPolicy")
    assert configuration["Action"] == "ssm:GetParameter"
    assert configuration["Resource"]["Fn::Sub"].endswith(":parameter${RunnerParameterPath}/*/config")
    assert configuration["Condition"] == {
        "StringEquals": {f"aws:ResourceTag/{INSTANCE_TAG}": "${ec2:SourceInstanceARN}"}
    }
    assert sorted(report["Action"]) == ["sqs:GetQueueUrl", "sqs:SendMessage"]
    assert report["Resource"] == {"Fn::GetAtt": "TerminationQueue.Arn"}
    # The other template gives it too, for runners of a fleet of one's own.
    of_workers = resources("AWS::IAM::ManagedPolicy", PATH)["RunnerPolicy"]["PolicyDocument"]["Statement"]
    assert configuration in of_workers


def test_only_marked_instances_can_be_terminated() -> None:
    found = [
        (policy, statement)
        for policy in POLICIES
        for statement in statements(policy)
        if "ec2:TerminateInstances" in listed(statement["Action"])
    ]
    ((policy, statement),) = found
    assert (policy, statement["Action"]) == ("HousekeepingPolicy", "ec2:TerminateInstances")
    assert statement["Condition"] == {
        "StringEquals": {"aws:ResourceTag/runs-fleet:managed": "true"},
        "StringEqualsIfExists": {"aws:ResourceTag/runs-fleet:env": {"Ref": "Env"}},
    }
    assert statement["Resource"]["Fn::Sub"].endswith(":instance/*")


def test_only_descriptions_and_metrics_are_for_everything() -> None:
    named_space = {"StringEquals": {"cloudwatch:namespace": {"Ref": "MetricNamespace"}}}
    for policy in POLICIES:
        for statement in statements(policy):
            assert not any("*" in action for action in listed(statement["Action"]))
            if "*" not in listed(statement["Resource"]):
                continue
            assert statement["Action"] in ("ec2:DescribeInstances", "cloudwatch:PutMetricData")
            if statement["Action"] == "cloudwatch:PutMetricData":
                assert statement["Condition"] == named_space


def test_servers_have_no_right_to_machines_or_parameters() -> None:
    services = {action.partition(":")[0] for action in rights("ServerPolicy")}
    assert services == {"dynamodb", "sqs"}


def test_a_schedule_asks_for_tasks_and_writes_its_slots() -> None:
    ask, slots = statements("SchedulePolicy")
    assert (ask["Action"], ask["Resource"]) == (
        ["sqs:GetQueueUrl", "sqs:SendMessage"],
        {"Fn::GetAtt": "HousekeepingQueue.Arn"},
    )
    text = "".join((FLEET / name).read_text() for name in ("schedule.py", "aws/slots.py"))
    called = {f"{service}:{operation}" for service, operation in CALL.findall(text)}
    # Of the mark that says which environment a table belongs to.
    assert set(slots["Action"]) == called | {"dynamodb:GetItem", "dynamodb:PutItem"}
    assert slots["Resource"] == {"Fn::GetAtt": "FleetTable.Arn"}


def test_what_a_fleet_calls_is_granted_and_nothing_else() -> None:
    text = "\n".join(file.read_text() for file in sorted(FLEET.rglob("*.py")))
    called = {f"{service}:{operation}" for service, operation in CALL.findall(text)}
    called |= {f"dynamodb:{RIGHTS[name]}" for name in BATCH.findall(text)}
    # Of the mark that says which environment a table belongs to.
    called |= {"dynamodb:GetItem", "dynamodb:PutItem"}
    granted = {
        right
        for policy in POLICIES
        for right in rights(policy)
        if right.partition(":")[0] in ("ec2", "ssm", "dynamodb")
    }
    assert called == granted


def test_nobody_but_its_processor_takes_messages_from_a_queue() -> None:
    takers = {
        (policy, resource["Fn::GetAtt"])
        for policy in POLICIES
        for statement in statements(policy)
        if "sqs:ReceiveMessage" in listed(statement["Action"])
        for resource in listed(statement["Resource"])
    }
    assert takers == {
        ("TerminationPolicy", "TerminationQueue.Arn"),
        ("HousekeepingPolicy", "HousekeepingQueue.Arn"),
        ("ServerPolicy", "TerminationDeadLetters.Arn"),
        ("ServerPolicy", "HousekeepingDeadLetters.Arn"),
    }


def rights(policy: str) -> set[str]:
    return {action for statement in statements(policy) for action in listed(statement["Action"])}


def statements(policy: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = POLICIES[policy]["PolicyDocument"]["Statement"]
    assert {statement["Effect"] for statement in found} == {"Allow"}
    return found


def transformed(transformer: dict[str, Any], event: dict[str, Any]) -> str:
    """Return what EventBridge makes of an event: a bare value becomes JSON, one in quotes is put there."""
    values = {name: event[path.removeprefix("$.")] for name, path in transformer["InputPathsMap"].items()}

    def filled(match: re.Match[str]) -> str:
        if match[0].startswith('"'):
            return VARIABLE.sub(lambda inner: str(values[inner[1]]), match[0])
        return json.dumps(values[match[1]])

    return re.sub(rf'"[^"]*"|{VARIABLE.pattern}', filled, str(transformer["InputTemplate"]))


def named(value: Any, env: str) -> str:
    """Return a name in an environment where no parameter names it otherwise."""
    if isinstance(value, str):
        return value
    if "Fn::Sub" in value:
        return str(value["Fn::Sub"]).replace("${Env}", env)
    condition, then, otherwise = value["Fn::If"]
    return named(then if condition == "IsFirst" and env == "prod" else otherwise, env)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
