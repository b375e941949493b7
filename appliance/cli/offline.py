"""`appliance offline`: whether anything may leave this machine. Without a running daemon it is noted for the next."""

from typing import TYPE_CHECKING, Any

import typer

from appliance.cli import CommandError

if TYPE_CHECKING:
    from appliance.offline import OfflineSwitch

app = typer.Typer(help="Go offline, or back.", no_args_is_help=True)


@app.command()
def on(ctx: typer.Context) -> None:
    """Let nothing leave this machine, also after a restart."""
    _set(ctx, offline=True)


@app.command()
def off(ctx: typer.Context) -> None:
    """Let requests and downloads out again."""
    _set(ctx, offline=False)


@app.command()
def status(ctx: typer.Context) -> None:
    """Say whether it is offline."""
    answer = _ask(ctx, "GET", "/admin/v1/status", None)
    switch = _switch(ctx)
    is_offline = answer["offline"] if answer is not None else switch.is_on
    pinned = " (by the configuration)" if switch.pinned else ""
    where = "" if answer is not None else "; no daemon is running"
    typer.echo(("offline" + pinned if is_offline else "online") + where)


def _set(ctx: typer.Context, *, offline: bool) -> None:
    answer = _ask(ctx, "PUT", "/admin/v1/offline", {"offline": offline})
    if answer is None:
        _switch(ctx).set(offline=offline)
        typer.echo(("offline" if offline else "online") + ", from the daemon's next start on")
        return
    typer.echo("offline" if answer["offline"] else "online")


def _ask(ctx: typer.Context, method: str, path: str, body: object) -> dict[str, Any] | None:
    """The daemon's answer; None when there is no daemon."""
    from appliance.cli.daemon import NoDaemon, check, connected, parsed  # noqa: PLC0415 - httpx is slow to import

    try:
        with connected(ctx.obj.url) as client:
            response = client.request(method, path, json=body)
            check(response)
            answer = parsed(response.text)
    except NoDaemon:
        if ctx.obj.url_option is not None:  # a daemon was named, so its absence is news
            raise
        return None
    if not isinstance(answer, dict):
        raise CommandError("what answers there is no inference appliance. Check --url")
    return answer


def _switch(ctx: typer.Context) -> "OfflineSwitch":
    from appliance.offline import OfflineSwitch  # noqa: PLC0415 - slow to import

    return OfflineSwitch(ctx.obj.state_dir, pinned=ctx.obj.settings().server.offline)
