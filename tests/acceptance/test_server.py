"""`airunner server` and `airunner config`: start, refuse to start, and go away."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import trustme

from tests.acceptance.command_line import CommandLine, serving


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_with_0(person: CommandLine, number: signal.Signals) -> None:
    with serving(person, "--no-auth") as (server, url):
        assert person.text("queues", "--server", url) == ""
        server.send(number)
        assert server.ended() == 0
        assert '"event": "server.stopped"' in server.err


def test_a_signal_ends_the_server_while_jobs_are_watched(person: CommandLine) -> None:
    with serving(person, "--no-auth") as (server, url):
        job_id = person.text("submit", "--server", url, "--", "true")
        with (
            person.start("monitor", "--server", url, job_id) as watching,
            person.start("worker", "--server", url, "--queue", "other") as idle,
        ):
            idle.wait_for("airunner worker serves")
            server.send(signal.SIGTERM)
            assert server.ended() == 0
            assert watching.process.poll() is None


def test_a_second_server_on_the_same_folder_says_so(person: CommandLine) -> None:
    with serving(person, "--no-auth"):
        done = person.run("server", "--no-auth", "--listen", "127.0.0.1:0", "--data-dir", "data")
    assert done.returncode == 1
    [line] = done.stderr.decode().splitlines()
    assert line == "airunner: another server uses data: stop it, or choose another folder with --data-dir"


def test_an_address_in_use_is_one_clear_line(person: CommandLine) -> None:
    with serving(person, "--no-auth") as (_, url):
        address = url.removeprefix("http://")
        done = person.run("server", "--no-auth", "--listen", address, "--data-dir", "other")
    assert done.returncode == 1
    [line] = done.stderr.decode().splitlines()
    assert line == (
        f"airunner: cannot listen on {address}: Address already in use; choose another address with --listen"
    )


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        (("--listen", "127.0.0.1:99999"), 2, "--listen"),
        (("--store", "paper"), 2, "--store"),
        (("--tls-cert", "nowhere.pem"), 2, "key_file is missing"),
        (("--tls-cert", "nowhere.pem", "--tls-key", "nowhere.key"), 2, "nowhere.pem"),
        (("--config", "missing.yaml"), 2, "missing.yaml"),
        (("--lisen", "127.0.0.1:0"), 2, "Did you mean --listen"),
        (("--listen", "0.0.0.0:0"), 1, "server.behind_proxy"),
        (("--listen", "0.0.0.0:0", "--insecure-plaintext"), 1, "no API keys"),
        (("--listen", "0.0.0.0:0", "--no-auth"), 1, "loopback"),
    ],
)
def test_what_cannot_be_served_is_refused(
    person: CommandLine, options: tuple[str, ...], code: int, named: str
) -> None:
    done = person.run("server", *options)
    assert done.returncode == code
    assert named in done.stderr.decode()
    assert all(line.startswith(b"airunner: ") for line in done.stderr.splitlines())


def test_a_typo_in_the_file_is_named(person: CommandLine) -> None:
    (person.folder / "airunner.yaml").write_text("defaults:\n  max_atempts: 3\n")
    done = person.run("server", "--no-auth")
    assert done.returncode == 2
    assert b"airunner.yaml: unknown key defaults.max_atempts" in done.stderr
    assert b"did you mean defaults.max_attempts?" in done.stderr


def test_config_show_tells_the_proxy_on_the_way_to_a_server(person: CommandLine) -> None:
    variables = {
        "AIRUNNER_SERVER": "http://127.0.0.1:1,https://jobs.example,https://near.example",
        "AIRUNNER_EVENTS_SERVER": "https://jobs.example",
        "HTTPS_PROXY": "http://me:geheim@proxy.example:3128",
        "NO_PROXY": "near.example",
    }
    told = "airunner: calls to https://jobs.example go through the proxy http://********@proxy.example:3128\n"
    assert person.run("config", "show", **variables).stderr.decode() == told
    shown = json.loads(person.run("config", "show", "--json", **variables).stdout)
    assert shown["proxies"] == [
        {"server": "https://jobs.example", "proxy": "http://********@proxy.example:3128"}
    ]
    assert json.loads(person.run("config", "show", "--json").stdout)["proxies"] == []


def test_config_show_tells_where_values_come_from(person: CommandLine) -> None:
    (person.folder / "airunner.yaml").write_text("worker:\n  concurrency: 4\n")
    done = person.run("config", "show", AIRUNNER_LISTEN="127.0.0.1:9000", AIRUNNER_API_KEY="airk_do_not_show")
    rows = {row[0]: row[1:] for row in (line.split("\t") for line in done.stdout.decode().splitlines())}
    assert rows["worker.concurrency"] == ["4", "file airunner.yaml"]
    assert rows["listen"] == ["127.0.0.1:9000", "environment AIRUNNER_LISTEN"]
    assert rows["client.api_key"] == ["********", "environment AIRUNNER_API_KEY"]
    assert rows["data_dir"] == [".airunner", "default"]
    assert json.loads(person.run("config", "show", "--json").stdout)["type"] == "config"


def test_tls_is_served_and_verified(person: CommandLine) -> None:
    certificate, key, trusted = _certificates(person.folder)
    options = ("--no-auth", "--tls-cert", certificate, "--tls-key", key)
    with serving(person, *options) as (_, url):
        assert url.startswith("https://127.0.0.1:")
        person.text("submit", "--server", url, "--ca-file", trusted, "--", "true")
        assert len(person.objects("list", "--server", url, "--ca-file", trusted)) == 2
        untrusted = person.run("list", "--server", url)
        assert untrusted.returncode == 125
        assert b"its certificate is not trusted" in untrusted.stderr


def test_a_memory_server_works_too(person: CommandLine) -> None:
    with serving(person, "--no-auth", "--store", "memory") as (_, url):
        job_id = person.text("submit", "--server", url, "--", "true")
        assert person.objects("get", job_id, "--server", url)[0]["state"] == "SCHEDULED"
    assert not (person.folder / "data").exists()


def _certificates(folder: Path) -> tuple[Path, Path, Path]:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key, trusted = folder / "server.pem", folder / "server.key", folder / "ca.pem"
    issued.private_key_pem.write_to_path(key)
    for part in issued.cert_chain_pems:
        part.write_to_path(certificate, append=True)
    authority.cert_pem.write_to_path(trusted)
    return certificate, key, trusted
