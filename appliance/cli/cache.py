"""`appliance cache`: what the cache holds and has saved, taking answers out of it, and why it would answer or not."""

import asyncio
import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli import CommandError
from appliance.cli.lines import lines

if TYPE_CHECKING:
    from appliance.cache_explain import CacheExplainer

app = typer.Typer(help="See, empty and question the cache of answers.", no_args_is_help=True)


@app.command()
def stats(ctx: typer.Context, *, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show hits by tier, tokens saved, near-misses and measured false hits."""
    found = _ask(ctx, "GET", {})
    if as_json:
        typer.echo(json.dumps(found))
        return
    saved, hits = found["prompt_tokens_saved"], found["hits"]
    typer.echo(f"entries    {found['entries']} ({found['bytes'] / 2**20:.1f} MiB)")
    for tier in ("exact", "semantic"):
        typer.echo(f"{tier:<9}  {hits[tier]} hits, {saved[tier]} prompt tokens saved")
    if found["near_misses"]:
        refused = ", ".join(f"{name} {count}" for name, count in found["near_misses"].items())
        typer.echo(f"refused    {refused}")
    for measured in found["false_hits"]:
        rate = "nothing checked yet" if measured["rate"] is None else f"{measured['rate']:.2%} wrong"
        whose = " ".join(filter(None, (measured["namespace"], measured["step"])))
        typer.echo(f"{measured['state']:<9}  {whose or 'all'}: {rate}, at most {measured['upper_bound']:.2%}")
    if found["problem"]:
        typer.echo(f"problem    {found['problem']}")


@app.command()
def evict(
    ctx: typer.Context,
    *,
    namespace: Annotated[str | None, typer.Option(help="The id of a key.")] = None,
    older_than_s: Annotated[float | None, typer.Option(min=0, help="Age in seconds.")] = None,
    entry: Annotated[int | None, typer.Option("--id", min=1, help="One entry.")] = None,
) -> None:
    """Take answers out: those that all of the options hold for."""
    given = {"namespace": namespace, "older_than_s": older_than_s, "id": entry}
    chosen = {name: value for name, value in given.items() if value is not None}
    if not chosen:
        raise typer.BadParameter("say which answers, or use `appliance cache clear`", param_hint="--namespace")
    typer.echo(f"{_ask(ctx, 'DELETE', chosen)['evicted']} answers evicted")


@app.command()
def clear(ctx: typer.Context) -> None:
    """Take all answers out."""
    typer.echo(f"{_ask(ctx, 'DELETE', {})['evicted']} answers evicted")


@app.command()
def explain(
    ctx: typer.Context,
    a: Annotated[str | None, typer.Argument(metavar="TEXT", help="A question whose answer is known.")] = None,
    b: Annotated[str | None, typer.Argument(metavar="TEXT", help="The question that comes now.")] = None,
    *,
    pairs: Annotated[
        Path | None,
        typer.Option(help='JSON lines with "a" and "b", texts or request bodies; - is standard input.', metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain whether one question would get the answer to another. Nothing is stored."""
    from appliance.cache_explain import CacheExplainer  # noqa: PLC0415 - slow to import
    from appliance.errors import ApplianceError  # noqa: PLC0415 - slow to import

    if (a is None or b is None) == (pairs is None) or (pairs is not None and a is not None):
        raise typer.BadParameter("give either two texts or --pairs FILE", param_hint="TEXT")
    explainer = CacheExplainer(ctx.obj.settings(), ctx.obj.state_dir)
    if pairs is not None:
        asyncio.run(_explain_all(explainer, lines(pairs)))
        return
    try:
        (shown,) = asyncio.run(_explained(explainer, [(a, b)]))
    except ApplianceError as error:
        raise CommandError(error.message) from None
    if as_json:
        typer.echo(json.dumps(shown))
        return
    typer.echo(f"hit         {'yes' if shown['hit'] else 'no'}")
    typer.echo(f"similarity  {'-' if shown['similarity'] is None else shown['similarity']}")
    typer.echo(f"guards      {', '.join(shown['guards']) or '-'}")
    typer.echo(f"judge       {'-' if shown['judge'] is None else shown['judge']}")


async def _explained(explainer: "CacheExplainer", pairs: Iterable[tuple[Any, Any]]) -> list[dict[str, Any]]:
    async with explainer:
        return [dataclasses.asdict(await explainer.explain(a, b)) for a, b in pairs]


async def _explain_all(explainer: "CacheExplainer", requests: Iterable[bytes]) -> None:
    from appliance.errors import ApplianceError  # noqa: PLC0415 - slow to import

    async with explainer:
        for line in requests:
            try:
                pair = json.loads(line)
                if isinstance(pair, dict) and all(isinstance(pair.get(side), str | dict) for side in "ab"):
                    shown = dataclasses.asdict(await explainer.explain(pair["a"], pair["b"]))
                else:
                    shown = {"error": 'not a pair: an object with "a" and "b", each a text or a request body'}
            except (ValueError, RecursionError) as error:
                shown = {"error": f"not JSON: {error}"}
            except ApplianceError as error:
                shown = {"error": error.message}
            typer.echo(json.dumps(shown))


def _ask(ctx: typer.Context, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    from appliance.cli.daemon import check, connected, parsed  # noqa: PLC0415 - httpx is slow to import

    with connected(ctx.obj.url) as client:
        response = client.request(method, "/admin/v1/cache", params=parameters)
        check(response)
        answer = parsed(response.text)
    if not isinstance(answer, dict):
        raise CommandError("what answers there is no inference appliance. Check --url")
    return answer
