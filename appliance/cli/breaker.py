"""`appliance breaker`: the owner's word over the breaker of a running daemon."""

import typer

from appliance.cli import CommandError

app = typer.Typer(help="Hold the breaker open, or let it go by load again.", no_args_is_help=True)


@app.command()
def trip(ctx: typer.Context) -> None:
    """Hold it open: branches that may be shed are refused, running ones are ended."""
    _ask(ctx, "trip")


@app.command()
def close(ctx: typer.Context) -> None:
    """Hold it closed: nothing is shed, whatever the load."""
    _ask(ctx, "close")


@app.command()
def reset(ctx: typer.Context) -> None:
    """Let it go by load again, from closed."""
    _ask(ctx, "reset")


def _ask(ctx: typer.Context, action: str) -> None:
    from appliance.cli.daemon import check, connected, parsed  # noqa: PLC0415 - httpx is slow to import

    with connected(ctx.obj.url) as client:
        response = client.post("/admin/v1/breaker", json={"action": action})
        check(response)
        answer = parsed(response.text)
    if not isinstance(answer, dict) or "state" not in answer:
        raise CommandError("what answers there is no inference appliance. Check --url")
    held = " (held by you, until `appliance breaker reset`)" if answer.get("held") else ""
    typer.echo(f"{answer['state']}{held}")
