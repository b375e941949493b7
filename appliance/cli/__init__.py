"""The `appliance` command: its global options, its commands, and how a failure reaches the shell.

Exit codes: 0 done, 1 failed, 2 usage, 78 bad configuration (EX_CONFIG of sysexits.h), 130 interrupted.
Commands live in modules of their own and say what went wrong by raising; only this module prints it.
What takes long to import is imported by the command that needs it: `--help` and completion stay quick.
"""

import os
import sys
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance import __version__

if TYPE_CHECKING:
    from appliance.settings import Loaded, Settings

EXIT_FAILED = 1
EXIT_CONFIG = 78
EXIT_INTERRUPTED = 130


class CommandError(Exception):
    """A command cannot do what it was asked to. The message says why and what to do; it is printed."""


@dataclass(frozen=True)  # no slots: what is read lazily is kept in the instance
class Context:
    """What every command is given as `ctx.obj`. A wrong configuration is raised by what first needs it."""

    config: Path | None  # --config
    state_dir_option: Path | None = None  # --state-dir
    url_option: str | None = None  # --url

    @cached_property
    def loaded(self) -> "Loaded":
        from appliance.settings import load  # noqa: PLC0415 - slow to import, and --help needs none of it

        return load(self.config, os.environ)

    def settings(self) -> "Settings":
        return self.loaded.settings

    @cached_property
    def state_dir(self) -> Path:
        from appliance.settings import state_dir  # noqa: PLC0415 - slow to import, and --help needs none of it

        return state_dir(self.state_dir_option, os.environ)

    @cached_property
    def url(self) -> str:
        """Where the daemon answers, without a slash at the end."""
        if self.url_option is not None:
            return self.url_option.rstrip("/")
        server = self.settings().server
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # noqa: S104 - it is read here, not bound
        return f"http://[{host}]:{server.port}" if ":" in host else f"http://{host}:{server.port}"

    @property
    def offline(self) -> bool:
        from appliance.offline import OfflineSwitch  # noqa: PLC0415 - slow to import, and --help needs none of it

        return OfflineSwitch(self.state_dir, pinned=self.settings().server.offline).is_on


app = typer.Typer(
    name="appliance",
    help="Run small language models on this machine behind an OpenAI-compatible endpoint.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain text: it can be piped, searched and read aloud
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer passes the option's value
    if value:
        typer.echo(f"appliance {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    ctx: typer.Context,
    *,
    config: Annotated[Path | None, typer.Option(help="Configuration file (TOML).", metavar="FILE")] = None,
    state_dir: Annotated[Path | None, typer.Option(help="Folder of models, databases and keys.", metavar="DIR")] = None,
    url: Annotated[
        str | None, typer.Option(help="Daemon to talk to; default: the configuration's.", metavar="URL")
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if url is not None and not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{url!r} is no URL: write it as http://127.0.0.1:8484", param_hint="--url")
    ctx.obj = Context(config=config, state_dir_option=state_dir, url_option=url)


# Command -> module; the module's function of the same name is the command.
_COMMANDS = {
    "serve": "serve",
    "pull": "models",
    "models": "models",
    "status": "status",
    "chat": "chat",
    "doctor": "doctor",
    "route": "route",
    "calibrate": "calibrate",
}
_GROUPS = {
    "keys": "Make, list and revoke API keys.",
    "config": "Show and check the configuration.",
    "offline": "Go offline, or back.",
    "breaker": "Hold the breaker open, or let it go by load again.",
    "cache": "See, empty and question the cache of answers.",
}


def _register() -> None:
    for command, module in _COMMANDS.items():
        app.command(command)(getattr(import_module(f"{__name__}.{module}"), command))
    for group, summary in _GROUPS.items():
        app.add_typer(import_module(f"{__name__}.{group}").app, name=group, help=summary)


_register()


def main() -> None:
    """Run the command line; ends the process."""
    try:
        app(prog_name="appliance")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise  # a fault of ours: the traceback is what helps
        typer.echo(f"appliance: {_line(error)}", err=True)
        sys.exit(code)


def _exit_code(error: Exception) -> int | None:
    """The exit code of an error whose message is meant for the user; None for any other."""
    from appliance.errors import ApplianceError  # noqa: PLC0415 - slow to import, and --help needs none of it
    from appliance.settings import ConfigError  # noqa: PLC0415 - slow to import, and --help needs none of it
    from fallback import EgressRefused  # noqa: PLC0415 - slow to import, and --help needs none of it
    from runtimes.models import ModelError  # noqa: PLC0415 - slow to import, and --help needs none of it

    if isinstance(error, ConfigError):
        return EXIT_CONFIG
    if isinstance(error, CommandError | ApplianceError | EgressRefused | ModelError | OSError):
        return EXIT_FAILED
    return None


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror is not None:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error)
