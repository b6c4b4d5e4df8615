"""Whose account the credentials are of, before anything is made in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from airunner.aws.calls import Aws


async def check_account(aws: Aws, account_id: str) -> None:
    """Refuse the credentials of another account with FailedPrecondition."""
    found = str((await aws.sts("GetCallerIdentity"))["Account"])
    if found != account_id:
        raise FailedPrecondition(
            f"these credentials are of account {found}, and store.aws.account_id (AWS_ACCOUNT_ID) is "
            f"{account_id}: nothing was created"
        )
