"""`appliance config`: the settings in force and where each comes from, and whether they can be used."""

import json
from typing import Any

import typer
from pydantic import BaseModel

app = typer.Typer(help="Show and check the configuration.", no_args_is_help=True)


@app.command()
def show(ctx: typer.Context) -> None:
    """Print every setting as a configuration file, with what it does and where its value comes from."""
    from appliance.settings import all_keys, get  # noqa: PLC0415 - slow to import

    loaded = ctx.obj.loaded
    section = None
    for key in all_keys():
        key_section, _, name = key.name.partition(".")
        if key_section != section:
            typer.echo(("" if section is None else "\n") + f"[{key_section}]")
            section = key_section
        typer.echo(f"# {key.description}")
        origin = loaded.origins.get(key.name, "default")
        value = get(loaded.settings, key.name)
        if value is None:  # TOML has no null: to leave it out is to say it
            typer.echo(f"# {name} is null  # {origin}")
        else:
            typer.echo(f"{name} = {_toml(value)}  # {origin}")


@app.command()
def check(ctx: typer.Context) -> None:
    """Read the configuration and say what is wrong with it.

    The exit code is 78 if anything is.
    """
    from appliance.frontier_setup import prices_of  # noqa: PLC0415 - slow to import
    from appliance.hardware_setup import trace_of  # noqa: PLC0415 - slow to import

    loaded = ctx.obj.loaded
    prices_of(loaded.settings)
    trace_of(loaded.settings)
    typer.echo(f"good: {loaded.path or 'no configuration file; defaults and the environment'}")


def _toml(value: Any) -> str:
    """JSON writes strings, numbers and booleans as TOML does; what is null is left out."""
    if isinstance(value, BaseModel):
        pairs = ((name, getattr(value, name)) for name in type(value).model_fields)
        return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in pairs if item is not None) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
