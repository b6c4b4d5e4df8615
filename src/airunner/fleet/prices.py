"""What instances cost, by a list that the operator gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class ListedPrices:
    """Implements Prices."""

    def __init__(self, hourly_usd: Mapping[str, float]) -> None:
        self._hourly_usd = hourly_usd

    def hourly_usd(self, instance_type: str) -> float | None:
        """Return the price of an hour; None if it is not listed."""
        return self._hourly_usd.get(instance_type)
