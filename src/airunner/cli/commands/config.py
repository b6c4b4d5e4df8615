"""`airunner config show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from airunner.cli.options import AsJson, ConfigFile, load
from airunner.cli.printing import print_json, print_table, say

if TYPE_CHECKING:
    from airunner.config import ClientSettings

config = App(name="config", help="Show the settings in effect.")


@config.command
def show(
    *,
    config_file: ConfigFile = None,
    given: Annotated[bool, Parameter(help="Print only settings that were set, and no defaults.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print every setting in effect and where it came from. Secrets are hidden.

    It also says which servers are called through a proxy of the environment.
    """
    from airunner.config import describe, to_jsonable

    loaded = load(config_file, {})
    proxies = _proxies(loaded.settings.client)
    if as_json:
        found = [{"server": address, "proxy": proxy} for address, proxy in proxies.items()]
        print_json("config", {**to_jsonable(loaded), "proxies": found})
        return
    lines = [line for line in describe(loaded) if not given or line.origin != "default"]
    print_table(("setting", "value", "origin"), [(line.path, line.value_text, line.origin) for line in lines])
    for address, proxy in proxies.items():
        say(f"calls to {address} go through the proxy {proxy}")


def _proxies(client: ClientSettings) -> dict[str, str]:
    """Return the proxy of each server that has one, without the secret to use it."""
    from airunner.client.transport import proxy_to
    from airunner.config import hide_credentials

    ways = {address: proxy_to(address) for address in (*client.server, *client.events_server)}
    return {address: hide_credentials(proxy) for address, proxy in ways.items() if proxy}
