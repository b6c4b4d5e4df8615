"""`airunner server`."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from airunner.cli.event_loop import run_on_uvloop
from airunner.cli.metrics import collected_metrics, server_instruments
from airunner.cli.options import ConfigFile, DataDir, LogFormat, LogLevel, load
from airunner.cli.printing import announce
from airunner.cli.signals import on_shutdown_signals

if TYPE_CHECKING:
    from airunner.config import Settings, TlsSettings
    from airunner.server.run import Server


def server(
    *,
    listen: Annotated[
        str | None,
        Parameter(help="HOST:PORT to bind; port 0 lets the system choose. Default: 127.0.0.1:8080"),
    ] = None,
    store: Annotated[str | None, Parameter(help="memory, sqlite or aws. Default: sqlite")] = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    services: Annotated[
        str | None, Parameter(help="Services to offer: jobs, events, generations. Default: jobs,events")
    ] = None,
    no_auth: Annotated[bool | None, Parameter(help="Serve without API keys; on loopback only.")] = None,
    tls_cert: Annotated[str | None, Parameter(help="PEM certificate chain.")] = None,
    tls_key: Annotated[str | None, Parameter(help="PEM private key of the certificate.")] = None,
    insecure_plaintext: Annotated[
        bool | None,
        Parameter(help="Serve other machines without TLS: anyone on the network path can read keys."),
    ] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Serve the API until SIGTERM or SIGINT; a second signal does not wait for open calls.

    When it is ready, it prints `airunner server listening on URL` on standard error.
    """
    flags = {
        "listen": listen,
        "store.type": store,
        "data_dir": data_dir,
        "services": services,
        "no_auth": no_auth,
        "tls.cert_file": tls_cert,
        "tls.key_file": tls_key,
        "server.insecure_plaintext": insecure_plaintext,
        "log_level": log_level,
        "log_format": log_format,
    }
    loaded = load(config_file, flags, with_database=None)
    if loaded.settings.generation.start_worker or loaded.settings.outbox.start_relay:
        from airunner.config import check_handler_origins

        check_handler_origins(loaded)
    _serve(loaded.settings)


def check_certificate(tls: TlsSettings) -> None:
    """Refuse certificate files that cannot be served with, before anything is started."""
    from airunner.config import ConfigError

    if tls.cert_file is None or tls.key_file is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert_file, tls.key_file)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError([f"tls: cannot use {tls.cert_file} with {tls.key_file}: {reason}"]) from None


def _serve(settings: Settings) -> None:
    """Run the server that the settings describe."""
    from airunner import telemetry
    from airunner.app import build_server

    check_certificate(settings.tls)
    telemetry.set_up_logs(settings.log_level, settings.log_format)
    with collected_metrics("airunner-server", server_instruments(settings)):
        run_on_uvloop(_run(build_server(settings, exports_metrics=True)))


async def _run(server: Server) -> None:
    def on_ready(url: str) -> None:
        # Not before: a start that hangs can still be ended by any signal.
        on_shutdown_signals(server.stop, server.stop)
        announce(f"airunner server listening on {url}")

    await server.run(on_ready=on_ready)
