"""`appliance route`: where a request would be answered, and why, without asking any model for an answer."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli import CommandError
from appliance.cli.lines import lines

if TYPE_CHECKING:
    from appliance.routing.decision import Decision
    from appliance.routing.explain import Explainer


def route(
    ctx: typer.Context,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What a user would say.")] = None,
    *,
    step: Annotated[str | None, typer.Option(help="The kind of step, as an agent would name it.")] = None,
    model: Annotated[str, typer.Option(help="auto, local, frontier or a model's name.")] = "auto",
    requests: Annotated[
        Path | None, typer.Option(help="Bodies of chat completions, one a line; - is standard input.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain where a request would be answered, without running it."""
    from appliance.errors import ApplianceError  # noqa: PLC0415 - slow to import
    from appliance.routing.explain import Explainer  # noqa: PLC0415 - slow to import

    if (text is None) == (requests is None):
        raise typer.BadParameter("give either a text or --requests FILE", param_hint="TEXT")
    explainer = Explainer(ctx.obj.settings(), ctx.obj.state_dir, is_offline=ctx.obj.offline)
    if requests is not None:
        asyncio.run(_explain_all(explainer, lines(requests)))
        return
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    headers = {} if step is None else {"x-appliance-step": step}
    try:
        decision = asyncio.run(_explain_one(explainer, body, headers))
    except ApplianceError as error:
        raise CommandError(error.message) from None
    shown = _as_json(decision)
    if as_json:
        typer.echo(json.dumps(shown))
        return
    for name, value in shown.items():
        typer.echo(f"{name:<10}  {'-' if value is None else value}")


async def _explain_one(explainer: "Explainer", body: dict[str, Any], headers: dict[str, str]) -> "Decision":
    async with explainer:
        return await explainer.explain(body, headers)


async def _explain_all(explainer: "Explainer", requests: Iterable[bytes]) -> None:
    from appliance.errors import ApplianceError  # noqa: PLC0415 - slow to import

    async with explainer:
        for line in requests:
            try:
                body = json.loads(line)
                if isinstance(body, dict):
                    body.setdefault("model", "auto")
                shown = _as_json(await explainer.explain(body, {}))
            except (ValueError, RecursionError) as error:  # UnicodeDecodeError is one of the first
                shown = {"error": f"not JSON: {error}"}
            except ApplianceError as error:
                shown = {"error": error.message}
            typer.echo(json.dumps(shown))


def _as_json(decision: "Decision") -> dict[str, Any]:
    return {
        "step": decision.step,
        "route": decision.route,
        "reason": decision.reason,
        "confidence": round(decision.confidence, 3),
    }
