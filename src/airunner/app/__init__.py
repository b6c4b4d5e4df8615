"""The composition root: the only package that names concrete backends.

What is built is imported when it is built, so that a client command does not load a server.
"""

from airunner.app.exporters import build_export_loop, build_exporter, build_exporters, build_fleet_exporter
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
