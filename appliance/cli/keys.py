"""`appliance keys`: make, list and revoke API keys. Works on the file alone; a running daemon notices by itself.

A new secret is the only line on standard output, so that it can be piped; all that explains it goes to standard error.
"""

import json
import sys
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, get_args

import typer

from appliance.protocol import Private
from appliance.security.keys import ALL_SCOPES, KeyRecord, KeyStore, KeyStoreError

FILE_NAME = "keys.db"

app = typer.Typer(name="keys", help="Make, list and revoke API keys.", no_args_is_help=True)


class ScopeName(StrEnum):
    """`KeyScope` for typer, which cannot take a list of literals."""

    INFER = "infer"
    ADMIN = "admin"
    METRICS = "metrics"


class RedactName(StrEnum):
    """`Private`, likewise."""

    SECRET = "secret"  # noqa: S105 - the name of a pattern
    EMAIL = "email"
    PHONE = "phone"
    CARD = "card"


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def create(
    ctx: typer.Context,
    *,
    name: Annotated[str, typer.Option(help="Who or what the key is for.")] = "default",
    scope: Annotated[
        list[ScopeName] | None, typer.Option(help="What it may do (infer, if not given); repeat for several.")
    ] = None,
    rpm: Annotated[int | None, typer.Option(min=1, help="Requests a minute.")] = None,
    concurrent: Annotated[int | None, typer.Option(min=1, help="Requests at a time.")] = None,
    local_only: Annotated[bool, typer.Option("--local-only", help="Its requests never leave this machine.")] = False,
    redact: Annotated[
        list[RedactName] | None,
        typer.Option(help="Taken out of its requests when they leave this machine; repeat for several."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a key and print its secret, once."""
    if sys.stdout is None:
        raise _failure(KeyStoreError("standard output is closed, so nobody would see the secret; no key was made"))
    scopes = frozenset(known for known in ALL_SCOPES if known in (scope or [ScopeName.INFER]))
    try:
        record, secret = _store(ctx).create(
            name,
            scopes,
            requests_per_minute=rpm,
            max_concurrent=concurrent,
            local_only=local_only,
            redact=frozenset(pattern for pattern in get_args(Private) if pattern in (redact or ())),
        )
    except KeyStoreError as error:
        raise _failure(error) from None
    shown = secret.get_secret_value()
    try:
        typer.echo(json.dumps({**_as_json(record), "secret": shown}) if as_json else shown)
        sys.stdout.flush()
    except OSError as error:
        _store(ctx).revoke(record.id)
        raise _failure(
            KeyStoreError(f"the secret could not be written: {error.strerror}; the key was revoked")
        ) from None
    _explain(f"Key {record.id} ({record.name}): {_scopes(record)}. Keep the secret now: it cannot be shown again.")


@app.command("list")
def list_(ctx: typer.Context, *, as_json: Json = False) -> None:
    """Show every key, the revoked ones too; never a secret."""
    try:
        records = _store(ctx).list()
    except KeyStoreError as error:
        raise _failure(error) from None
    if as_json:
        typer.echo(json.dumps([_as_json(record) for record in records]))
        return
    if not records:
        _explain("No key was made yet: whoever can reach the daemon's loopback address may use it.")
        return
    rows = [("ID", "NAME", "SCOPES", "RPM", "CONCURRENT", "EGRESS", "CREATED", "REVOKED")]
    rows += [
        (
            record.id,
            record.name,
            _scopes(record),
            _or_dash(record.requests_per_minute),
            _or_dash(record.max_concurrent),
            _egress(record),
            _time(record.created_at) or "-",
            _time(record.revoked_at) or "-",
        )
        for record in records
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@app.command()
def revoke(ctx: typer.Context, id_or_name: Annotated[str, typer.Argument(metavar="ID_OR_NAME")]) -> None:
    """End a key: the daemon refuses it from the next request on."""
    store = _store(ctx)
    try:
        record = store.revoke(id_or_name)
        left = any(other.revoked_at is None for other in store.list())
    except KeyStoreError as error:
        raise _failure(error) from None
    _explain(f"Revoked {record.id} ({record.name}).")
    if not left:
        _explain(
            "No active key is left, so every request is refused: `appliance keys create` makes a new one. To serve "
            f"this machine without keys again, stop the daemon, delete {store.path} and start it."
        )


def _store(ctx: typer.Context) -> KeyStore:
    return KeyStore(ctx.obj.state_dir / FILE_NAME, time.time)


def _failure(error: KeyStoreError) -> typer.Exit:
    _explain(f"Error: {error}")
    return typer.Exit(1)


def _explain(text: str) -> None:
    typer.echo(text, err=True)


def _as_json(record: KeyRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "name": record.name,
        "scopes": sorted(record.scopes),
        "requests_per_minute": record.requests_per_minute,
        "max_concurrent": record.max_concurrent,
        "local_only": record.local_only,
        "redact": sorted(record.redact),
        "created_at": _time(record.created_at),
        "revoked_at": _time(record.revoked_at),
    }


def _scopes(record: KeyRecord) -> str:
    return ",".join(sorted(record.scopes))


def _egress(record: KeyRecord) -> str:
    """What may be done with its requests outside."""
    if record.local_only:
        return "never"
    return "without " + ",".join(sorted(record.redact)) if record.redact else "-"


def _or_dash(limit: int | None) -> str:
    return "-" if limit is None else str(limit)


def _time(unix_s: float | None) -> str | None:
    return None if unix_s is None else datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds")
