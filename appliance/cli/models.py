"""`appliance pull` and `appliance models`: bring models to this machine, and say which there are and which suit it.

What a command finds out goes to standard output; progress goes to standard error, as a bar on a terminal and as a
line now and then elsewhere.
"""

import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from runtimes.models import CatalogueEntry, Memory, ModelStore, Recommendation, Step, StoredModel

FOLDER = "models"  # of the state directory
_COLUMNS = 80  # of the narrowest terminal that tables and texts are made for
_NAME_COLUMNS = 40
_LINE_EVERY_S = 5.0  # of progress, where it is not a terminal that reads along
_PHASES = {"waiting": "waiting for another pull", "transfer": "fetching", "checking": "checking"}

Row = tuple[str, ...]


def pull(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="A name of the catalogue, hf:ORG/REPO/FILE.gguf, hf:ORG/REPO:Q4_K_M, or the path of a .gguf file.",
        ),
    ] = None,
    *,
    configured: Annotated[bool, typer.Option("--configured", help="The models that the configuration serves.")] = False,
) -> None:
    """Bring models into the store; those that are there already are left alone."""
    from runtimes.models import ModelError  # noqa: PLC0415 - slow to import, and --help needs none of it

    if bool(names) == configured:
        raise typer.BadParameter("say which models to pull: either names, or --configured", param_hint="NAME")
    store = _store(ctx)
    served = ctx.obj.settings().models
    wanted = [*served.serve, *filter(None, [served.embedding])] if configured else names or []
    try:
        for name in wanted:
            _pull(store, name, in_place=configured)
    except ModelError as error:
        raise _failure(error) from None
    except KeyboardInterrupt:
        _explain("Interrupted. What came so far is kept: the same command goes on from there.")
        raise


def models(
    ctx: typer.Context,
    *,
    recommend: Annotated[bool, typer.Option("--recommend", help="Read the machine and say what suits it.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="The whole catalogue, not only what is here.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the models that are here."""
    if recommend:
        _recommend(_store(ctx), as_json=as_json)
    elif everything:
        _catalogue(_store(ctx), as_json=as_json)
    else:
        _here(_store(ctx), as_json=as_json)


def _pull(store: "ModelStore", name: str, *, in_place: bool) -> None:
    found = store.resolve(name) if in_place else None
    if found is None:
        with _progress() as progress:
            found = store.pull(name, progress)
    typer.echo(f"{found.name}  {found.path}")


def _store(ctx: typer.Context) -> "ModelStore":
    from runtimes.models import ModelStore  # noqa: PLC0415 - slow to import, and --help needs none of it

    def gate(target: str) -> None:
        from fallback import EgressGate  # noqa: PLC0415 - slow to import, and what is here needs none of it

        EgressGate(offline=ctx.obj.offline).check_download(target)  # it may have been switched meanwhile

    state_dir: Path = ctx.obj.state_dir
    return ModelStore(state_dir / FOLDER, offline=ctx.obj.offline, gate=gate)


def _failure(error: Exception) -> Exception:
    from appliance.cli import CommandError  # noqa: PLC0415 - it imports this module

    return CommandError(str(error))


def _here(store: "ModelStore", *, as_json: bool) -> None:
    stored = store.list()
    if as_json:
        typer.echo(json.dumps([_stored_as_json(model) for model in stored], indent=2))
        return
    if not stored:
        _explain("No model is here yet: `appliance pull smollm2-135m-instruct` brings the default one,")
        _explain("`appliance models --recommend` says what suits this machine.")
        return
    rows = [("NAME", "SIZE", "LICENCE", "PULLED")]
    rows += [
        (model.name, _size(model.size_bytes), model.licence or "-", (model.pulled_at or "-")[:10]) for model in stored
    ]
    _table(rows)


def _catalogue(store: "ModelStore", *, as_json: bool) -> None:
    here = {model.name for model in store.list()}
    entries = [entry for entry in store.catalogue if entry.kind != "test"]
    if as_json:
        typer.echo(json.dumps([_entry_as_json(entry, here=entry.name in here) for entry in entries], indent=2))
        return
    rows = [("NAME", "PARAMS", "QUANT", "SIZE", "16 SLOTS", "LICENCE", "HERE")]
    rows += [
        (
            entry.name,
            _parameters(entry.parameters),
            entry.quantisation,
            _size(entry.size_bytes),
            _slots_memory(entry),
            _licence(entry),
            "yes" if entry.name in here else "",
        )
        for entry in entries
    ]
    _table(rows)
    typer.echo("")
    _paragraph("16 SLOTS is the memory for the model with 16 requests of 2,048 tokens at a time.")
    for entry in {entry.licence: entry for entry in entries if entry.licence_note}.values():
        _paragraph(f"* {entry.licence}: {entry.licence_note}.")


def _recommend(store: "ModelStore", *, as_json: bool) -> None:
    from runtimes.models import read_memory, recommend  # noqa: PLC0415 - slow to import, and --help needs none of it

    memory = read_memory()
    found = recommend(memory, store.catalogue)
    if as_json:
        machine = {"ram_bytes": memory.ram_bytes, "gpu_bytes": memory.gpu_bytes, "gpu_name": memory.gpu_name}
        suggestions = [_recommendation_as_json(recommendation) for recommendation in found]
        typer.echo(json.dumps({"machine": machine, "recommended": suggestions}, indent=2))
        return
    typer.echo(_machine(memory))
    if not found:
        typer.echo("No model of the catalogue fits with 16 slots. smollm2-135m-instruct runs with fewer.")
        return
    rows = [("", "NAME", "QUANT", "SIZE", "KV TOKENS", "EACH OF 16", "LICENCE")]
    rows += [
        (
            "*" if index == 0 else "",
            recommendation.entry.name,
            recommendation.entry.quantisation,
            _size(recommendation.entry.size_bytes),
            f"{recommendation.kv_tokens:,}",
            f"{recommendation.tokens_per_slot:,}",
            _licence(recommendation.entry).rstrip("*"),
        )
        for index, recommendation in enumerate(found)
    ]
    _table(rows)
    best = found[0]
    typer.echo("")
    _paragraph(f"* {best.entry.name}: {best.reason}. {best.entry.note}")
    typer.echo(f"  appliance pull {best.entry.name}")


def _machine(memory: "Memory") -> str:
    if memory.gpu_bytes:
        return f"{memory.gpu_name} with {memory.gpu_bytes / (1 << 30):.0f} GiB:"
    return f"No GPU that NVML knows; {memory.ram_bytes / (1 << 30):.0f} GiB of memory for the CPU:"


@contextmanager
def _progress() -> Iterator[Callable[["Step"], None]]:
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _line_by_line(time.monotonic)
        return
    from rich.console import Console  # noqa: PLC0415 - only where a bar is drawn
    from rich.progress import (  # noqa: PLC0415 - only where a bar is drawn
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[tuple[str, str], Any] = {}

        def draw(step: "Step") -> None:
            key = (step.phase, step.file)
            if key not in tasks:
                tasks[key] = bars.add_task(f"{_PHASES[step.phase]} {step.file}", total=step.total_bytes)
            bars.update(tasks[key], completed=step.done_bytes, total=step.total_bytes)

        yield draw


def _line_by_line(clock: Callable[[], float]) -> Callable[["Step"], None]:
    """A line when something begins, and every few seconds while it lasts."""
    last_key: tuple[str, str] | None = None
    last_s = 0.0

    def write(step: "Step") -> None:
        nonlocal last_key, last_s
        key = (step.phase, step.file)
        if key == last_key and clock() - last_s < _LINE_EVERY_S:
            return
        last_key, last_s = key, clock()
        share = f" {step.done_bytes / step.total_bytes:.0%} of {_size(step.total_bytes)}" if step.total_bytes else ""
        _explain(f"{_PHASES[step.phase]} {step.file}{share}")

    return write


def _table(rows: Sequence[Row]) -> None:
    """Columns as wide as they must be; a name too long for one stands on a line of its own."""
    widths = [max(len(cell) for cell in column if len(cell) <= _NAME_COLUMNS) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = list(row)
        for index, cell in enumerate(cells):
            if len(cell) > widths[index]:
                typer.echo(cell)
                cells[index] = ""
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


def _paragraph(text: str) -> None:
    typer.echo(textwrap.fill(text, width=_COLUMNS, subsequent_indent="  "))


def _explain(text: str) -> None:
    typer.echo(text, err=True)


def _size(size_bytes: int) -> str:
    if size_bytes < 1e6:
        return f"{size_bytes / 1e3:.0f} kB"
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.0f} MB"


def _parameters(count: int) -> str:
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


def _slots_memory(entry: "CatalogueEntry") -> str:
    return f"{entry.memory_bytes(2_048) / 1e9:.1f} GB" if entry.kind == "chat" else "-"


def _licence(entry: "CatalogueEntry") -> str:
    short = entry.licence.removesuffix(" Community License").removesuffix(" Terms of Use")
    return f"{short}*" if entry.licence_note else short


def _stored_as_json(model: "StoredModel") -> dict[str, Any]:
    return {
        "name": model.name,
        "path": str(model.path),
        "size_bytes": model.size_bytes,
        "sha256": model.sha256,
        "source": model.source,
        "licence": model.licence,
        "pulled_at": model.pulled_at,
    }


def _entry_as_json(entry: "CatalogueEntry", *, here: bool) -> dict[str, Any]:
    return {
        "name": entry.name,
        "family": entry.family,
        "kind": entry.kind,
        "parameters": entry.parameters,
        "quantisation": entry.quantisation,
        "licence": entry.licence,
        "commercial": entry.commercial,
        "licence_note": entry.licence_note,
        "source": str(entry.files[0].source),
        "size_bytes": entry.size_bytes,
        "context_tokens": entry.context_tokens,
        "kv_bytes_per_token": entry.kv_bytes_per_token,
        "memory_bytes_16_slots": entry.memory_bytes(2_048) if entry.kind == "chat" else None,
        "here": here,
    }


def _recommendation_as_json(recommendation: "Recommendation") -> dict[str, Any]:
    return {
        "name": recommendation.entry.name,
        "reason": recommendation.reason,
        "size_bytes": recommendation.entry.size_bytes,
        "kv_tokens": recommendation.kv_tokens,
        "tokens_per_slot": recommendation.tokens_per_slot,
        "licence": recommendation.entry.licence,
        "commercial": recommendation.entry.commercial,
    }
