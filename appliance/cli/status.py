"""`appliance status`: the daemon's snapshot, for people or as JSON.

It shows whatever the snapshot holds, by the shape of the values and the unit in a field's name, so that a daemon which
tells more is shown more.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeGuard

import typer


def status(
    ctx: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the snapshot as it is.")] = False,
) -> None:
    """Show what the daemon is doing."""
    from appliance.cli.daemon import check, connected, parsed  # noqa: PLC0415 - httpx is slow to import

    with connected(ctx.obj.url) as client:
        response = client.get("/admin/v1/status")
        check(response)
        snapshot = parsed(response.text)
    if as_json:
        typer.echo(json.dumps(snapshot, indent=2))
        return
    for line in lines(snapshot):
        typer.echo(line)


def lines(snapshot: Mapping[str, Any]) -> Iterator[str]:
    """Plain values first, in one column; then each group under its name, indented."""
    yield from _group(snapshot, "")


def _group(group: Mapping[str, Any], indent: str) -> Iterator[str]:
    plain = {name: _shown(name, value) for name, value in group.items() if not _nested(value)}
    width = max((len(_label(name)) for name, text in plain.items() if text is not None), default=0)
    for name, text in plain.items():
        if text is not None:
            yield f"{indent}{_label(name):<{width}}  {text}"
    for name, value in group.items():
        if isinstance(value, Mapping) and _nested(value):
            if not indent:
                yield ""
            yield f"{indent}{_printable(name)}"
            yield from _group(value, indent + "  ")


def _nested(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping) and set(value) != {"used", "total"}


def _label(name: str) -> str:
    for unit in ("_s", "_ms", "_bytes", "_usd"):
        name = name.removesuffix(unit)
    return _printable(name).replace("_", " ")


def _shown(name: str, value: object) -> str | None:
    """None for what is not known or not there."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return f"{_shown(name, value['used'])} of {_shown(name, value['total'])}"
    if isinstance(value, int | float):
        return _number(name, value)
    if isinstance(value, list):
        return ", ".join(filter(None, (_item(name, item) for item in value))) or None
    return _printable(str(value))


def _item(name: str, value: object) -> str | None:
    """One of a list."""
    if not _nested(value):
        return _shown(name, value)
    parts = {key: _shown(key, part) for key, part in value.items()}
    return " ".join(f"{_label(key)} {text}" for key, text in parts.items() if text is not None)


def _number(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return _bytes(value)
    if name.endswith("_ms"):
        return f"{value:.1f} ms"
    if name.endswith("_s"):
        return _duration(value)
    if name.endswith("_usd"):
        return f"${value:.4f}"
    if name == "pid" or name.endswith("_pid"):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB"):
        if value < 1000:  # the decimal units that file sizes and GPU memory are sold in
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _printable(text: str) -> str:
    """A daemon is trusted, the terminal is not to be steered by what clients called their models and tasks."""
    return "".join(char if char.isprintable() else " " for char in text)
