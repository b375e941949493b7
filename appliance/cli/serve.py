"""`appliance serve`: the daemon in the foreground."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli import CommandError

if TYPE_CHECKING:
    from appliance.engines import ServedModel
    from appliance.settings import Loaded


def serve(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="TCP port; 0 takes a free one.", min=0, max=65535)] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Model to serve: a stored one's name, or a .gguf file. Repeatable.")
    ] = None,
    *,
    offline: Annotated[bool, typer.Option("--offline", help="Never leave this machine.")] = False,
) -> None:
    """Serve the models until stopped."""
    # Before NumPy is loaded. Threads of its library would stop the process for good: when another thread computes while
    # this one forks for a new worker, each waits for the other.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"

    from appliance.curves import Curves  # noqa: PLC0415 - only the daemon needs it
    from appliance.engines import Engines  # noqa: PLC0415 - only the daemon needs it
    from appliance.frontier_setup import prices_of  # noqa: PLC0415 - only the daemon needs it
    from appliance.hardware_setup import trace_of  # noqa: PLC0415 - only the daemon needs it
    from appliance.security.keys import KeyStore, KeyStoreError  # noqa: PLC0415 - only the daemon needs it
    from appliance.service.daemon import run  # noqa: PLC0415 - only the daemon needs it
    from appliance.settings import load  # noqa: PLC0415 - only the daemon needs it
    from appliance.telemetry import logs  # noqa: PLC0415 - only the daemon needs it

    options = {"server.host": host, "server.port": port, "models.serve": model, "server.offline": offline or None}

    def configured() -> "Loaded":
        given = {key: value for key, value in options.items() if value is not None}
        loaded: Loaded = load(ctx.obj.config, os.environ).with_options(given)
        return loaded

    loaded = configured()
    logs.configure(loaded.settings.telemetry.log_format, loaded.settings.telemetry.log_level)
    state_dir: Path = ctx.obj.state_dir
    models = [_model(name, state_dir) for name in loaded.settings.models.serve]
    keys = KeyStore(state_dir / "keys.db", time.time)
    prices_of(loaded.settings)  # better now than when the first request is to be paid for
    trace_of(loaded.settings)

    def engines() -> "Engines":
        return Engines(models, loaded.settings.engine, loaded.settings.slo, Curves(state_dir))

    try:
        run(loaded, engines, keys, configured, state_dir)
    except KeyStoreError as error:
        raise CommandError(str(error)) from error


def _model(name: str, state_dir: Path) -> "ServedModel":
    from appliance.engines import served_model  # noqa: PLC0415 - only the daemon needs it
    from appliance.settings import ConfigError  # noqa: PLC0415 - only the daemon needs it
    from runtimes.models import ModelStore  # noqa: PLC0415 - only the daemon needs it

    store = ModelStore(state_dir / "models", offline=True)  # nothing is fetched here
    if name.endswith(".gguf") or "/" in name:
        path = Path(name).expanduser()
        if not path.is_file():
            raise ConfigError("models.serve", f"there is no file {name}")
        return served_model(path.name.removesuffix(".gguf"), path.absolute())
    stored = store.resolve(name)
    if stored is None:
        raise ConfigError("models.serve", f"{name!r} is not in the model store: fetch it with `appliance pull {name}`")
    return served_model(name, stored.path)
