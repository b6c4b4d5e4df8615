"""AdminService on the wire: messages in, messages out, nothing decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.codec import dead_letters, fleet, settings

if TYPE_CHECKING:
    from connectrpc.request import RequestContext

    from airunner.codec.gen.job.v1 import job_pb2 as pb
    from airunner.services.admin import AdminService
    from airunner.services.fleet import FleetService
    from airunner.services.settings.service import RunTimeSettings


class AdminServiceEndpoint:
    """Implements the generated AdminService."""

    def __init__(self, service: AdminService, settings: RunTimeSettings, fleet: FleetService) -> None:
        self._service = service
        self._settings = settings
        self._fleet = fleet

    async def list_dead_letters(
        self,
        request: pb.ListDeadLettersRequest,
        _: RequestContext[pb.ListDeadLettersRequest, pb.ListDeadLettersResponse],
    ) -> pb.ListDeadLettersResponse:
        """Look into a dead-letter queue."""
        page = await self._service.list_dead_letters(**dead_letters.list_from_pb(request))
        return dead_letters.page_to_pb(page)

    async def redrive_dead_letters(
        self,
        request: pb.RedriveDeadLettersRequest,
        _: RequestContext[pb.RedriveDeadLettersRequest, pb.RedriveDeadLettersResponse],
    ) -> pb.RedriveDeadLettersResponse:
        """Send dead letters back to their queue."""
        redriven = await self._service.redrive_dead_letters(dead_letters.redrive_from_pb(request))
        return dead_letters.redriven_to_pb(redriven)

    async def purge_dead_letters(
        self,
        request: pb.PurgeDeadLettersRequest,
        _: RequestContext[pb.PurgeDeadLettersRequest, pb.PurgeDeadLettersResponse],
    ) -> pb.PurgeDeadLettersResponse:
        """Delete dead letters."""
        purged = await self._service.purge_dead_letters(**dead_letters.purge_from_pb(request))
        return dead_letters.purged_to_pb(purged)

    async def list_settings(
        self,
        _request: pb.ListSettingsRequest,
        _: RequestContext[pb.ListSettingsRequest, pb.ListSettingsResponse],
    ) -> pb.ListSettingsResponse:
        """Return the run-time settings."""
        return settings.settings_to_pb(await self._settings.list_settings())

    async def set_setting(
        self,
        request: pb.SetSettingRequest,
        _: RequestContext[pb.SetSettingRequest, pb.SetSettingResponse],
    ) -> pb.SetSettingResponse:
        """Set a run-time setting."""
        setting = await self._settings.set_setting(**settings.set_from_pb(request))
        return settings.set_answer_to_pb(setting)

    async def unset_setting(
        self,
        request: pb.UnsetSettingRequest,
        _: RequestContext[pb.UnsetSettingRequest, pb.UnsetSettingResponse],
    ) -> pb.UnsetSettingResponse:
        """Unset a run-time setting."""
        setting = await self._settings.unset_setting(settings.unset_from_pb(request))
        return settings.unset_answer_to_pb(setting)

    async def list_housekeeping_runs(
        self,
        request: pb.ListHousekeepingRunsRequest,
        _: RequestContext[pb.ListHousekeepingRunsRequest, pb.ListHousekeepingRunsResponse],
    ) -> pb.ListHousekeepingRunsResponse:
        """Return the last runs of housekeeping."""
        return fleet.runs_to_pb(await self._fleet.list_runs(fleet.list_from_pb(request)))

    async def get_pool_report(
        self,
        request: pb.GetPoolReportRequest,
        _: RequestContext[pb.GetPoolReportRequest, pb.GetPoolReportResponse],
    ) -> pb.GetPoolReportResponse:
        """Return what the pools have and cost."""
        return fleet.report_to_pb(await self._fleet.report(fleet.report_request_from_pb(request)))

    async def run_housekeeping(
        self,
        request: pb.RunHousekeepingRequest,
        _: RequestContext[pb.RunHousekeepingRequest, pb.RunHousekeepingResponse],
    ) -> pb.RunHousekeepingResponse:
        """Ask for a run of housekeeping."""
        return fleet.run_answer_to_pb(await self._fleet.request_run(**fleet.run_from_pb(request)))
