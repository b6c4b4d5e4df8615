"""`airunner aws`: what the store on AWS is made of."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from airunner.cli.options import AsJson, ConfigFile, load
from airunner.cli.printing import print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airunner.aws.provision import Resource
    from airunner.config import Settings

aws = App(name="aws", help="Create or update the queues, tables and bucket on AWS.")


@aws.command
def provision(
    *,
    env: Annotated[
        str | None, Parameter(help="Environment that names the queues and tables and owns them. Default: dev")
    ] = None,
    queue: Annotated[
        tuple[str, ...], Parameter(help="A queue to create. Repeatable. Default: those of the settings")
    ] = (),
    jobs_table: Annotated[
        str | None, Parameter(help="Table of jobs. Default: airunner_ENV_jobs, for prod airunner_jobs")
    ] = None,
    events_table: Annotated[
        str | None,
        Parameter(help="Table of events. Default: airunner_ENV_job_events, for prod airunner_job_events"),
    ] = None,
    bucket: Annotated[str | None, Parameter(help="Bucket for large payloads. Default: none")] = None,
    streams: Annotated[bool | None, Parameter(help="Add a stream to the table of events.")] = None,
    deletion_protection: Annotated[bool, Parameter(help="Protect the tables from deletion.")] = False,
    generation: Annotated[
        bool, Parameter(help="Create the message queue of generation instead of a store.")
    ] = False,
    fleet: Annotated[
        bool, Parameter(help="Create the queues and tables of a fleet instead of a store.")
    ] = False,
    max_receive_count: Annotated[
        int | None, Parameter(help="With --generation: how many tries a message has. Default: 5")
    ] = None,
    config_file: ConfigFile = None,
    env_file: Annotated[
        Path | None,
        Parameter(help="Write the variables that a server needs to this file, which only you can read."),
    ] = None,
    dry_run: Annotated[bool, Parameter(help="Print what would be done, and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create missing resources, update those that differ, and print all of them.

    It deletes nothing. It refuses a table of another environment, or with other keys. The SDK finds the
    credentials.
    """
    from airunner import telemetry

    flags = {
        "store.aws.env": env,
        "store.sqs.queues": list(queue) or None,
        "store.dynamodb.jobs_table": jobs_table,
        "store.dynamodb.events_table": events_table,
        "store.s3.bucket": bucket,
        "store.dynamodb.streams": streams,
        "generation.max_receive_count": max_receive_count,
    }
    subject = _subject(flags, generation=generation, fleet=fleet, deletion_protection=deletion_protection)
    settings = load(config_file, flags).settings
    telemetry.set_up_logs(settings.log_level, settings.log_format)
    made = asyncio.run(
        _provision(subject, settings, deletion_protection=deletion_protection, dry_run=dry_run)
    )
    _show(made, as_json=as_json)
    if dry_run:
        say("nothing was changed: this is what would be done")
    elif env_file:
        _WRITERS[subject](env_file, settings, made)


async def _provision(
    subject: str, settings: Settings, *, deletion_protection: bool, dry_run: bool
) -> list[Resource]:
    from airunner.app import provision_aws, provision_fleet, provision_generation

    if subject == "generation":
        return await provision_generation(settings, dry_run=dry_run)
    provision = provision_fleet if subject == "fleet" else provision_aws
    return await provision(settings, deletion_protection=deletion_protection, dry_run=dry_run)


def _subject(flags: Mapping[str, object], *, generation: bool, fleet: bool, deletion_protection: bool) -> str:
    """Return what is to be made; options of a store together with those of something else are refused."""
    from airunner.config import ConfigError

    count = "generation.max_receive_count"
    if not generation and flags[count] is not None:
        raise ConfigError(["--max-receive-count: needs --generation"])
    if generation and fleet:
        raise ConfigError(["--generation: cannot be combined with --fleet; run the command once for each"])
    subject = "generation" if generation else "fleet" if fleet else "store"
    of_store = [path for path, value in flags.items() if path not in {"store.aws.env", count} and value]
    if generation and (of_store or deletion_protection):
        raise ConfigError(["--generation: takes no option of a store except --env"])
    if fleet and of_store:
        raise ConfigError(["--fleet: takes no options of a store except --env and --deletion-protection"])
    return subject


def _show(made: Sequence[Resource], *, as_json: bool) -> None:
    if as_json:
        for resource in made:
            print_json("resource", asdict(resource))
        return
    rows = [
        (str(resource.change), str(resource.kind), resource.name, resource.arn, resource.url)
        for resource in made
    ]
    print_table(("change", "kind", "name", "ARN", "URL"), rows)


def _write_variables(path: Path, settings: Settings, made: Sequence[Resource]) -> None:
    import secrets

    from airunner.config import environment_file

    values = _variables(settings, made)
    old = environment_file.read(path)
    if "AIRUNNER_TOKEN_KEYS" not in environment_file.names(old):
        keys = [key.get_secret_value() for key in settings.token_keys]
        values["AIRUNNER_TOKEN_KEYS"] = ",".join(keys) or secrets.token_hex(32)
    environment_file.write(path, environment_file.with_variables(old, values))
    say(f"wrote {path}; all servers need the same AIRUNNER_TOKEN_KEYS")


def _write_generation(path: Path, settings: Settings, made: Sequence[Resource]) -> None:
    from airunner.aws.connect import find_region
    from airunner.config import environment_file

    dead_letters, queue = made
    values = {
        "AIRUNNER_STORE__AWS__REGION": find_region(settings),
        "AIRUNNER_STORE__AWS__ENDPOINT_URL": settings.store.aws.endpoint_url or "",
        "SQS_MAIN_QUEUE_URL": queue.url,
        "SQS_DLQ_QUEUE_URL": dead_letters.url,
    }
    given = {name: value for name, value in values.items() if value}
    environment_file.write(path, environment_file.with_variables(environment_file.read(path), given))
    say(f"wrote {path}, for relays and workers of generation")


def _write_fleet(path: Path, settings: Settings, made: Sequence[Resource]) -> None:
    from airunner.aws.connect import find_region
    from airunner.config import environment_file

    urls = {resource.queue: resource.url for resource in made if resource.kind == "queue"}
    table, pools_table = (resource.name for resource in made if resource.kind == "table")
    values = {
        "AIRUNNER_STORE__AWS__REGION": find_region(settings),
        "AIRUNNER_STORE__AWS__ENDPOINT_URL": settings.store.aws.endpoint_url or "",
        "AIRUNNER_STORE__AWS__ENV": settings.store.aws.env,
        "AIRUNNER_FLEET__TABLE": table,
        "AIRUNNER_FLEET__POOLS_TABLE": pools_table,
        "RUNS_FLEET_TERMINATION_QUEUE_URL": urls["termination"],
        "RUNS_FLEET_HOUSEKEEPING_QUEUE_URL": urls["housekeeping"],
    }
    given = {name: value for name, value in values.items() if value}
    environment_file.write(path, environment_file.with_variables(environment_file.read(path), given))
    say(f"wrote {path}, for servers and processors of a fleet")


def _variables(settings: Settings, made: Sequence[Resource]) -> dict[str, str]:
    """The settings that name what was made; those of the same name in a file are replaced."""
    from airunner.aws.connect import find_region

    store = settings.store
    jobs_table, events_table = (resource.name for resource in made if resource.kind == "table")
    queues = ",".join(f"{resource.queue}={resource.url}" for resource in made if resource.kind == "queue")
    values = {
        "AIRUNNER_STORE__TYPE": "aws",
        "AIRUNNER_STORE__AWS__REGION": find_region(settings),
        "AIRUNNER_STORE__AWS__ENDPOINT_URL": store.aws.endpoint_url or "",
        "AIRUNNER_STORE__AWS__ENV": store.aws.env,
        "AIRUNNER_STORE__SQS__QUEUES": queues,
        "AIRUNNER_STORE__DYNAMODB__JOBS_TABLE": jobs_table,
        "AIRUNNER_STORE__DYNAMODB__EVENTS_TABLE": events_table,
        "AIRUNNER_STORE__DYNAMODB__STREAMS": str(store.dynamodb.streams).lower(),
        "AIRUNNER_STORE__S3__BUCKET": store.s3.bucket,
        "AIRUNNER_STORE__LISTING_SHARDS": str(store.listing_shards),
    }
    return {name: value for name, value in values.items() if value}


_WRITERS: Final = {"store": _write_variables, "generation": _write_generation, "fleet": _write_fleet}
