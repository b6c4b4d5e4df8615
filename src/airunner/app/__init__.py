"""The composition root: the only package that names concrete backends.

What is built is imported when it is built, and so is what builds it: a client command does not load a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from airunner.app.exporters import (
        build_export_loop,
        build_exporter,
        build_exporters,
        build_fleet_exporter,
    )
    from airunner.app.fleet import build_fleet_connection, build_fleet_process, run_fleet_task
    from airunner.app.provisioning import provision_aws, provision_fleet, provision_generation
    from airunner.app.server import build_generations, build_server
    from airunner.app.services import build_services
    from airunner.app.signers import build_signer
    from airunner.app.stores import back_up_store, build_store, locate_store, open_store_beside, restore_store
    from airunner.app.workers import build_client, build_generation_worker, build_outbox_relay, build_worker

__all__ = [
    "back_up_store",
    "build_client",
    "build_export_loop",
    "build_exporter",
    "build_exporters",
    "build_fleet_connection",
    "build_fleet_exporter",
    "build_fleet_process",
    "build_generation_worker",
    "build_generations",
    "build_outbox_relay",
    "build_server",
    "build_services",
    "build_signer",
    "build_store",
    "build_worker",
    "locate_store",
    "open_store_beside",
    "provision_aws",
    "provision_fleet",
    "provision_generation",
    "restore_store",
    "run_fleet_task",
]

_HOMES = {
    "airunner.app.exporters": (
        "build_export_loop",
        "build_exporter",
        "build_exporters",
        "build_fleet_exporter",
    ),
    "airunner.app.fleet": (
        "build_fleet_connection",
        "build_fleet_process",
        "run_fleet_task",
    ),
    "airunner.app.provisioning": (
        "provision_aws",
        "provision_fleet",
        "provision_generation",
    ),
    "airunner.app.server": (
        "build_generations",
        "build_server",
    ),
    "airunner.app.services": ("build_services",),
    "airunner.app.signers": ("build_signer",),
    "airunner.app.stores": (
        "back_up_store",
        "build_store",
        "locate_store",
        "open_store_beside",
        "restore_store",
    ),
    "airunner.app.workers": (
        "build_client",
        "build_generation_worker",
        "build_outbox_relay",
        "build_worker",
    ),
}

# Hidden from type checkers, which would take every name for one that exists.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a name from the module that builds it, and keep it."""
        from airunner.domain import import_late

        found = globals()[name] = import_late(__name__, name, _HOMES)
        return found
