"""The template by itself: linted, equal to `layout` where the emulator cannot tell, and no right too many."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.session import get_session

from airunner.aws.provision import definitions
from airunner.stores.aws import layout
from airunner.stores.aws.layout import Layout
from tests.support.template import FLEET_PATH, GENERATION_PATH, PATH, load_template, resources

PACKAGE = Path(__file__).parents[2] / "src" / "airunner"
STORE = PACKAGE / "stores" / "aws"
STREAMS = STORE / "replicas" / "change_stream.py"
SHARED = [PACKAGE / "aws" / name for name in ("calls.py", "paging.py", "sqs.py", "table_meta.py")]
TABLES = resources("AWS::DynamoDB::Table")
QUEUES = {name: each for name, each in resources("AWS::SQS::Queue").items() if "RedrivePolicy" in each}
ALARMS = resources("AWS::CloudWatch::Alarm")
POLICIES = resources("AWS::IAM::ManagedPolicy")
SERVER_POLICIES = ("ServerPolicy", "ServerPayloadsPolicy")

# Operations whose right has another name; those of a transaction are the rights of its actions.
RIGHTS = {
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
    "DeleteMessageBatch": "DeleteMessage",
    "DeleteObjects": "DeleteObject",
    "HeadBucket": "ListBucket",
    "HeadObject": "GetObject",
    "ListObjectsV2": "ListBucket",
    "SendMessageBatch": "SendMessage",
}
ACTIONS = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}


@pytest.mark.slow
def test_the_linter_has_nothing_to_say() -> None:
    lint = [
        str(Path(sys.executable).with_name("cfn-lint")),
        "--non-zero-exit-code",
        "informational",
        "--regions",
    ]
    found = subprocess.run(
        [*lint, "eu-west-1", "us-east-1", "--", str(PATH), str(GENERATION_PATH), str(FLEET_PATH)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (found.returncode, found.stdout + found.stderr) == (0, "")


# Equal to the layout, as far as the emulator drops it


@pytest.mark.parametrize("table", TABLES)
def test_tables_are_encrypted_expire_and_can_be_recovered(table: str) -> None:
    properties, wanted = TABLES[table], layout.jobs_table(Layout())
    encryption = properties["SSESpecification"]
    assert {"Enabled": encryption["SSEEnabled"], "SSEType": encryption["SSEType"]} == wanted[
        "SSESpecification"
    ]
    for name, arguments in (
        ("TimeToLiveSpecification", definitions.time_to_live("any", layout.TTL_ATTRIBUTE)),
        ("PointInTimeRecoverySpecification", definitions.point_in_time_recovery("any")),
    ):
        assert properties[name] == arguments[name]


def test_the_bucket_is_that_of_the_layout() -> None:
    (bucket,) = resources("AWS::S3::Bucket").values()
    (encryption,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    (wanted,) = definitions.bucket_encryption()["Rules"]
    assert encryption["ServerSideEncryptionByDefault"] == wanted["ApplyServerSideEncryptionByDefault"]
    assert bucket["PublicAccessBlockConfiguration"] == definitions.public_access_block()
    (rule,), (expiry,) = bucket["LifecycleConfiguration"]["Rules"], layout.lifecycle()
    assert rule == {
        "Id": expiry["ID"],
        "Status": expiry["Status"],
        "Prefix": expiry["Filter"]["Prefix"],
        "ExpirationInDays": expiry["Expiration"]["Days"],
    }


def test_data_outlives_the_stack() -> None:
    kinds = {"AWS::DynamoDB::Table", "AWS::S3::Bucket"}
    kept = [each for each in load_template()["Resources"].values() if each["Type"] in kinds]
    assert len(kept) == 3
    assert {each["DeletionPolicy"] for each in kept} == {"RetainExceptOnCreate"}
    assert {each["UpdateReplacePolicy"] for each in kept} == {"Retain"}


# Alarms


@pytest.mark.parametrize("queue", QUEUES)
def test_every_queue_has_its_alarms(queue: str) -> None:
    dead_letters = QUEUES[queue]["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"].removesuffix(".Arn")
    watched = {watched_by(alarm): alarm for alarm in ALARMS.values() if "MetricName" in alarm}
    grave = watched["ApproximateNumberOfMessagesVisible", f"{dead_letters}.QueueName"]
    assert (grave["ComparisonOperator"], grave["Threshold"]) == ("GreaterThanThreshold", 0)
    depth = watched["ApproximateNumberOfMessagesVisible", f"{queue}.QueueName"]
    assert depth["Threshold"] == {"Ref": "QueueDepthAlarm"}
    in_flight = watched["ApproximateNumberOfMessagesNotVisible", f"{queue}.QueueName"]
    assert (in_flight["Statistic"], in_flight["Threshold"]) == ("Maximum", 100_000)
    age = watched["ApproximateAgeOfOldestMessage", f"{queue}.QueueName"]
    assert age["Threshold"] == {"Ref": "QueueAgeAlarmSeconds"}


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_alarms_for_throttles_and_errors(table: str) -> None:
    metrics = {metric for alarm in ALARMS.values() if "Metrics" in alarm for metric in metrics_of(alarm)}
    indexes = [index["IndexName"] for index in TABLES[table].get("GlobalSecondaryIndexes", [])]
    for kind in ("ReadThrottleEvents", "WriteThrottleEvents"):
        assert {(kind, table, index) for index in ["", *indexes]} <= metrics
    assert {operation for kind, name, operation in metrics if (kind, name) == ("SystemErrors", table)}


def test_errors_are_counted_for_every_operation_of_the_store() -> None:
    metrics = {metric for alarm in ALARMS.values() if "Metrics" in alarm for metric in metrics_of(alarm)}
    counted = {operation for kind, _, operation in metrics if kind == "SystemErrors"}
    assert counted == {operation for service, operation in operations() if service == "dynamodb"}


def test_every_alarm_is_told_to_the_topic_and_calm_without_data() -> None:
    told = {"Fn::If": ["HasTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    for alarm in ALARMS.values():
        assert alarm["AlarmActions"] == told
        assert alarm["TreatMissingData"] == "notBreaching"
        for metric in alarm.get("Metrics", []):
            assert metric.get("ReturnData", True) == ("Expression" in metric)


# Rights


def test_servers_may_do_exactly_what_the_store_calls() -> None:
    allowed = {
        action for name in SERVER_POLICIES for each in statements(name) for action in listed(each["Action"])
    }
    # Without the right to list, S3 does not say that an object is missing.
    assert allowed == {*needed_rights(), "s3:ListBucket"}


def test_servers_reach_exactly_our_own_resources() -> None:
    reached = [
        target for name in SERVER_POLICIES for each in statements(name) for target in listed(each["Resource"])
    ]
    assert sorted(map(plain, reached)) == sorted(
        [
            "JobsTable.Arn",
            *(f"${{JobsTable.Arn}}/index/{index}" for index in ("listing", "checks")),
            "EventsTable.Arn",
            *(f"{queue}.Arn" for queue in QUEUES),
            *(each["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"] for each in QUEUES.values()),
            "${Payloads.Arn}/jobs/*",
            "Payloads.Arn",
        ]
    )


def test_servers_list_only_what_is_theirs_of_the_bucket() -> None:
    (rights,) = (each for each in statements("ServerPayloadsPolicy") if each["Sid"] == "MissingPayloads")
    assert rights["Action"] == "s3:ListBucket"
    assert rights["Condition"] == {"StringLikeIfExists": {"s3:prefix": f"{layout.OBJECT_PREFIX}*"}}


def test_a_runner_reads_its_own_configuration_alone() -> None:
    (rights,) = (each for each in statements("RunnerPolicy") if each["Sid"] == "Configuration")
    ours = "${ec2:SourceInstanceARN}"
    assert rights["Condition"] == {"StringEquals": {"aws:ResourceTag/airunner-instance": ours}}


def test_queues_and_bucket_are_reached_by_tls_alone() -> None:
    policies = {**resources("AWS::SQS::QueuePolicy"), **resources("AWS::S3::BucketPolicy")}
    denied = [policy["PolicyDocument"]["Statement"] for policy in policies.values()]
    for (statement,) in denied:
        assert (statement["Effect"], statement["Principal"]) == ("Deny", "*")
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    closed = {plain(target) for (each,) in denied for target in listed(each["Resource"])}
    queues = {f"{queue}.Arn" for queue in resources("AWS::SQS::Queue")}
    assert closed == queues | {"Payloads.Arn", "${Payloads.Arn}/*"}


@pytest.mark.parametrize("queue", QUEUES)
def test_a_dead_letter_queue_is_for_its_queue_alone(queue: str) -> None:
    dead_letters = QUEUES[queue]["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"].removesuffix(".Arn")
    policy = resources("AWS::SQS::Queue")[dead_letters]["RedriveAllowPolicy"]
    ((source,), name) = policy["sourceQueueArns"], plain(QUEUES[queue]["QueueName"])
    assert policy["redrivePermission"] == "byQueue"
    assert plain(source) == f"arn:${{AWS::Partition}}:sqs:${{AWS::Region}}:${{AWS::AccountId}}:{name}"


def test_bucket_names_have_no_dots() -> None:
    pattern = re.compile(load_template()["Parameters"]["BucketName"]["AllowedPattern"])
    assert pattern.fullmatch("")
    assert pattern.fullmatch("some-bucket")
    assert not pattern.fullmatch("some.bucket")


@pytest.mark.parametrize("env", ["prod", "dev"])
def test_tables_are_called_as_the_layout_calls_them(env: str) -> None:
    parts = load_template()
    wanted = Layout(env=env)
    for table, name in (("JobsTable", wanted.jobs_table), ("EventsTable", wanted.events_table)):
        named, given, by_environment = TABLES[table]["TableName"]["Fn::If"]
        first, of_first, of_others = by_environment["Fn::If"]
        assert parts["Conditions"][named] == {"Fn::Not": [{"Fn::Equals": [given, ""]}]}
        assert parts["Conditions"][first] == {"Fn::Equals": [{"Ref": "Env"}, "prod"]}
        assert (of_first if env == "prod" else plain(of_others).replace("${Env}", env)) == name


def test_servers_send_nothing_to_dead_letter_queues() -> None:
    (rights,) = (each for each in statements("ServerPolicy") if each["Sid"] == "DeadLetters")
    assert "sqs:SendMessage" not in rights["Action"]


def test_the_stream_is_for_servers_that_use_it() -> None:
    assert load_template()["Resources"]["ServerStreamPolicy"]["Condition"] == "HasStreams"
    reached = {
        action: plain(each["Resource"])
        for each in statements("ServerStreamPolicy")
        for action in listed(each["Action"])
    }
    named = {value for value in arguments(ast.parse(STREAMS.read_text())) if f"dynamodb:{value}" in reached}
    assert reached == {
        f"dynamodb:{name}": "EventsTable.Arn" if name == "DescribeTable" else "EventsTable.StreamArn"
        for name in named
    }
    assert len(named) == 4


def test_runners_may_not_touch_queues_tables_or_payloads() -> None:
    actions = {action for each in statements("RunnerPolicy") for action in listed(each["Action"])}
    assert actions == {"ssm:GetParameter", "logs:CreateLogStream", "logs:PutLogEvents"}


def test_no_right_is_for_everything() -> None:
    for name in POLICIES:
        for statement in statements(name):
            assert statement["Effect"] == "Allow"
            assert not [action for action in listed(statement["Action"]) if "*" in action]
            assert "*" not in map(plain, listed(statement["Resource"]))


def test_every_queue_is_in_the_output() -> None:
    urls = load_template()["Outputs"]["QueueUrls"]["Value"]["Fn::Sub"]
    named = dict(entry.split("=") for entry in urls.split(","))
    assert named == {
        properties["QueueName"]["Fn::Sub"].removeprefix("airunner-${Env}-"): f"${{{queue}}}"
        for queue, properties in QUEUES.items()
    }


def test_the_reading_of_operations_sees_the_store_and_what_it_calls() -> None:
    found = operations()
    assert {("sqs", "ReceiveMessage"), ("sqs", "SendMessageBatch")} <= found
    assert {("dynamodb", "TransactWriteItems"), ("dynamodb", "BatchGetItem")} <= found


def test_the_reading_of_operations_leaves_out_what_the_store_does_not_call() -> None:
    store = {name for file in STORE.rglob("*.py") for name in names(ast.parse(file.read_text()))}
    reached = {function.name for function in called_functions(store)}
    assert {"send", "_send", "_perform", "delete"} <= reached
    assert "cloudwatch" not in reached


def needed_rights() -> Iterator[str]:
    for service, operation in operations():
        if operation == "TransactWriteItems":
            yield from (f"dynamodb:{ACTIONS[action]}" for action in transaction_actions())
        else:
            yield f"{service}:{RIGHTS.get(operation, operation)}"


def operations() -> set[tuple[str, str]]:
    """The operations that the store names as arguments; provisioning is an operator's work, not its."""
    services = ("dynamodb", "sqs", "s3")
    known = {name: set(get_session().get_service_model(name).operation_names) for name in services}
    said = {value for tree in sources() for value in arguments(tree)}
    return {(service, name) for service in services for name in said & known[service]}


def transaction_actions() -> set[str]:
    nodes = [node for tree in sources() for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    keys = {key.value for node in nodes for key in node.keys if isinstance(key, ast.Constant)}
    return {action for action in ACTIONS if action in keys}


def sources() -> list[ast.AST]:
    """What every server of the store runs; its stream is an option, with a policy of its own.

    Of what everybody calls SQS and follows pages with, only the functions count that the store calls.
    """
    store: list[ast.AST] = [
        ast.parse(file.read_text()) for file in sorted(STORE.rglob("*.py")) if file != STREAMS
    ]
    return [*store, *called_functions({name for tree in store for name in names(tree)})]


def called_functions(called: set[str]) -> list[ast.AsyncFunctionDef]:
    """The functions and methods of SHARED that are called by these names, and those that they call."""
    functions: dict[str, list[ast.AsyncFunctionDef]] = {}
    for file in SHARED:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.AsyncFunctionDef):
                functions.setdefault(node.name, []).append(node)
    reached: set[str] = set()
    waiting = called & functions.keys()
    while waiting:
        name = waiting.pop()
        reached.add(name)
        followed = {inner for function in functions[name] for inner in names(function)}
        waiting |= followed & functions.keys() - reached
    return [function for name in reached for function in functions[name]]


def names(tree: ast.AST) -> Iterator[str]:
    """The last part of each name that is used."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id


def arguments(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (
                arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            )


def watched_by(alarm: dict[str, Any]) -> tuple[str, str]:
    (dimension,) = alarm["Dimensions"]
    return alarm["MetricName"], dimension["Value"]["Fn::GetAtt"]


def metrics_of(alarm: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, table, and the operation or index, of each metric that an alarm adds up."""
    for entry in alarm["Metrics"]:
        if "MetricStat" in entry:
            metric = entry["MetricStat"]["Metric"]
            by_name = {dimension["Name"]: dimension["Value"] for dimension in metric["Dimensions"]}
            table = by_name.pop("TableName")["Ref"]
            yield metric["MetricName"], table, next(iter(by_name.values()), "")


def statements(policy: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = POLICIES[policy]["PolicyDocument"]["Statement"]
    return found


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def plain(value: Any) -> str:
    """The text of a reference."""
    return str(next(iter(value.values()))) if isinstance(value, dict) else str(value)
