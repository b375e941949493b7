"""`appliance calibrate`: what a local model's yes or no on two questions is worth, measured and kept for the daemon."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli import CommandError

if TYPE_CHECKING:
    import httpx

    from cache.second_opinion import OpenPair, Worth

ASKED_TIMEOUT_S = 120.0


def calibrate(
    ctx: typer.Context, model: Annotated[str | None, typer.Option(help="A local model's name.")] = None
) -> None:
    """Measure whether a local model can tell if two questions have one answer.

    Asks the running daemon. Where the model is good enough, the cache asks it from the daemon's next start on about
    pairs that its rules leave open.
    """
    from appliance.cli.daemon import connected  # noqa: PLC0415 - httpx is slow to import
    from cache.second_opinion import CALIBRATION_FILE, open_pairs, worth, write_worth  # noqa: PLC0415 - slow to import

    with connected(ctx.obj.url, ASKED_TIMEOUT_S) as client:
        name, mark = _served(client, model)
        with typer.progressbar(open_pairs(), label=name) as pairs:
            measured = worth([(_opinion(client, name, pair), pair.hit) for pair in pairs])
    try:
        write_worth(ctx.obj.state_dir / CALIBRATION_FILE, mark, measured)
    except OSError as error:
        raise CommandError(f"the result cannot be kept: {error}") from None
    typer.echo(_said(measured))


def _served(client: "httpx.Client", wanted: str | None) -> tuple[str, str]:
    """A local model's name, and the mark of its file."""
    from appliance.cli.daemon import check  # noqa: PLC0415 - httpx is slow to import
    from appliance.engines import FRONTIER_ALIAS, LOCAL_ALIASES  # noqa: PLC0415 - slow to import
    from cache.second_opinion import mark_of  # noqa: PLC0415 - slow to import

    response = client.get("/v1/models")
    check(response)
    aliases = (*LOCAL_ALIASES, FRONTIER_ALIAS)
    created = {model["id"]: model["created"] for model in response.json()["data"] if model["id"] not in aliases}
    name = wanted or next(iter(created))
    if name not in created:
        raise typer.BadParameter(f"{name!r} is not served; there is {', '.join(created)}", param_hint="--model")
    return name, mark_of(name, created[name])


def _opinion(client: "httpx.Client", model: str, pair: "OpenPair") -> float | None:
    from appliance.cli.daemon import check  # noqa: PLC0415 - httpx is slow to import
    from cache.second_opinion import PROMPT, certainty  # noqa: PLC0415 - slow to import

    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": PROMPT.format(first=pair.a, second=pair.b)}],
        "temperature": 0,
        "max_tokens": 1,
        "logprobs": True,
        "top_logprobs": 20,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    response = client.post("/v1/chat/completions", json=body, headers={"x-appliance-cache": "off"})
    check(response)
    tokens = (response.json()["choices"][0]["logprobs"] or {}).get("content") or [{"top_logprobs": []}]
    return certainty((top["token"], top["logprob"]) for top in tokens[0]["top_logprobs"])


def _said(measured: "Worth") -> str:
    told = f"{measured.found} of {measured.pairs} pairs with one answer told from all of {measured.traps} traps"
    if measured.threshold is None:
        return f"not good enough: {told}. The cache goes by its rules alone."
    return (
        f"good enough: {told}, from a certainty of {measured.threshold:.3f} on. With 95 % confidence it is wrong about "
        f"{measured.upper_bound:.1%} of such traps at most, so that its hits are served once checks have proven them."
    )
