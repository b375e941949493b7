"""What the owner may set, where it is read from, and what is wrong with it.

One frozen model for each section of the configuration file. `load` merges, from weakest to strongest: the
defaults, one TOML file, the environment (`APPLIANCE_SECTION__KEY`). Command line options are the commands'
own business and come on top. Knows the one file and the mapping it is given; not what a setting does.
"""

import difflib
import ipaddress
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import (
    AfterValidator,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from appliance.admission_settings import AdmissionSettings, SloSettings
from appliance.cache_settings import CacheSettings
from appliance.frontier_settings import EconomicsSettings, FrontierSettings, RoutingSettings
from appliance.section import Names, Section

ENV_PREFIX = "APPLIANCE_"
SYSTEM_CONFIG = Path("/etc/appliance/appliance.toml")

_MIB = 1024 * 1024


class ConfigError(Exception):
    """A configuration that cannot be used. `key` is the dotted setting, or None when it is about a file."""

    def __init__(self, key: str | None, message: str) -> None:
        super().__init__(message if key is None else f"{key}: {message}")
        self.key = key
        self.message = message


def _host_name(text: str) -> str:
    """A name or address as a Host header has it, without its port."""
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        if not re.fullmatch(r"(\*\.)?[A-Za-z0-9._-]+", text):
            raise ValueError(
                f"{text!r} is no host name: write it without scheme, port and path, such as 'gpu-box.lan' or '*.lan'"
            ) from None
    return text


def _origin(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s?#]+", text):
        raise ValueError(f"{text!r} is no origin: write scheme and host, such as 'https://gpu-box.lan:3000'")
    return text


_HostNames = Annotated[tuple[Annotated[str, AfterValidator(_host_name)], ...], Strict(strict=False)]
_Origins = Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], Strict(strict=False)]


class ServerSettings(Section):
    """The HTTP server: where it listens and how long it waits."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on; any but loopback needs an API key")
    port: int = Field(8484, ge=0, le=65535, description="TCP port; 0 takes a free one")
    offline: bool = Field(default=False, description="never leave this machine: no download, no remote model")
    max_body_bytes: int = Field(10 * _MIB, ge=1024, description="largest request body")
    max_held_body_bytes: int = Field(
        256 * _MIB, ge=1024, description="bodies of all requests at a time; one more is refused (503)"
    )
    header_timeout_s: float = Field(10.0, gt=0, description="a request's head must have come by then")
    body_timeout_s: float = Field(30.0, gt=0, description="a request's body may pause no longer")
    idle_timeout_s: float = Field(75.0, gt=0, description="a kept-alive connection without a request is closed")
    drain_timeout_s: float = Field(20.0, ge=0, description="at a stop, requests in flight get this long to finish")
    max_connections: int = Field(4096, ge=1, description="connections open at a time")
    request_timeout_s: float = Field(600.0, gt=0, description="deadline of a request that sets none")
    broken_history: Literal["refuse", "repair"] = Field(
        "refuse", description="tool results without their call, and arguments that are no JSON, in a conversation"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.max_held_body_bytes < self.max_body_bytes:
            raise ValueError(
                f"max_held_body_bytes ({self.max_held_body_bytes}) is less than max_body_bytes "
                f"({self.max_body_bytes}), so that a body as large as allowed would always be refused: raise "
                "max_held_body_bytes or lower max_body_bytes"
            )
        return self


class ModelsSettings(Section):
    """What is served."""

    serve: Names = Field(
        ("smollm2-135m-instruct",),
        min_length=1,
        description="catalogue names or paths of .gguf files; the first also answers as `auto` and `local`",
    )

    embedding: str | None = Field(
        "all-minilm-l6-v2", description="the catalogue's embedding model, for routing; null: words alone decide there"
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        seen: set[str] = set()
        for name in self.serve:
            if not name.strip():
                raise ValueError("a model's name is empty")
            if name in seen:
                raise ValueError(f"{name!r} is listed twice")
            seen.add(name)
        return self


class EngineSettings(Section):
    """How a model is run. Null means: measured or taken from the model."""

    slots: int = Field(16, ge=1, le=256, description="sequences generated at a time (llama.cpp knows 256 at most)")
    context_tokens: int | None = Field(
        None, ge=64, description="prompt and answer of one request; null: the model's own, at most 8192"
    )
    kv_tokens: int | None = Field(None, ge=64, description="KV cells for all sequences together; null: derived")
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads; null: one for each physical core")
    gpu_layers: int = Field(-1, ge=-1, description="layers held by the GPU; -1: all, 0: none")
    step_target_ms: float = Field(
        200.0, gt=0, description="a step that mixes prefill with running streams should take no longer"
    )
    max_waiting: int = Field(512, ge=0, description="requests that may wait for a slot; one more is refused (503)")
    hang_timeout_s: float = Field(30.0, gt=0, description="a worker without token progress is replaced after this")
    load_timeout_s: float = Field(300.0, gt=0, description="a model must have loaded by then")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.context_tokens is not None and self.kv_tokens is not None and self.kv_tokens < self.context_tokens:
            raise ValueError(
                f"kv_tokens ({self.kv_tokens}) is less than context_tokens ({self.context_tokens}), so "
                "that a request as long as allowed could never run: raise kv_tokens or lower context_tokens"
            )
        if self.hang_timeout_s * 1000 < 2 * self.step_target_ms:
            raise ValueError(
                f"hang_timeout_s ({self.hang_timeout_s:g} s) is less than two steps of step_target_ms "
                f"({self.step_target_ms:g} ms), so that a busy worker would be taken for a hung one"
            )
        return self


class SecuritySettings(Section):
    """Who may ask, and how much. Loopback names are always allowed."""

    allowed_hosts: _HostNames = Field((), description="further Host header names that are answered")
    allowed_origins: _Origins = Field((), description="web origins whose pages may call the daemon")
    max_requests_per_minute: int | None = Field(None, ge=1, description="for a key that sets none; null: no limit")
    max_concurrent: int | None = Field(None, ge=1, description="for a key that sets none; null: no limit")


class TelemetrySettings(Section):
    """What the daemon says about itself."""

    log_format: Literal["auto", "json", "text"] = Field("auto", description="auto: text on a terminal, else JSON lines")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severe level logged")
    hardware_trace: str | None = Field(
        None,
        min_length=1,
        description="a recorded trace of the hardware to replay instead of reading this machine; for tests and drills",
    )

    @property
    def hardware_trace_path(self) -> Path | None:
        return None if self.hardware_trace is None else Path(self.hardware_trace).expanduser()


class Settings(BaseSettings):
    """Every setting. Built from its arguments alone; `load` is what reads files and the environment."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    server: ServerSettings = ServerSettings()
    models: ModelsSettings = ModelsSettings()
    engine: EngineSettings = EngineSettings()
    cache: CacheSettings = CacheSettings()
    routing: RoutingSettings = RoutingSettings()
    frontier: FrontierSettings = FrontierSettings()
    admission: AdmissionSettings = AdmissionSettings()
    slo: SloSettings = SloSettings()
    economics: EconomicsSettings = EconomicsSettings()
    security: SecuritySettings = SecuritySettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings names them
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - replaced: it ignores unknown variables
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - a file found by chance in the working directory
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - there are none
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


@dataclass(frozen=True, slots=True)
class Loaded:
    settings: Settings
    path: Path | None  # the file that was read; None: there is none
    origins: Mapping[str, str]  # dotted key -> where its value came from; a key that has its default is absent

    def with_options(self, options: Mapping[str, Any]) -> "Loaded":
        """The same with command line options, by dotted key, on top. Raises `ConfigError`."""
        values = self.settings.model_dump()
        for name, value in options.items():
            _put(values, name, value)
        origins = {**self.origins, **dict.fromkeys(options, "the command line")}
        return Loaded(settings=_validated(values, origins), path=self.path, origins=MappingProxyType(origins))


@dataclass(frozen=True, slots=True)
class Key:
    """One setting, for those who list them."""

    name: str  # dotted
    description: str
    default: Any
    field: FieldInfo


def load(config: Path | None, environ: Mapping[str, str], system_config: Path = SYSTEM_CONFIG) -> Loaded:
    """Settings from the file `config` (None: the first that exists of the usual places) and `environ`.

    Raises `ConfigError` for the first thing that is wrong, naming the key and where it was set.
    """
    path = _find(config, environ, system_config)
    values: dict[str, dict[str, Any]] = {}
    origins: dict[str, str] = {}
    if path is not None:
        for name, value in _from_file(path):
            _put(values, name, value)
            origins[name] = str(path)
    for name, value, variable in _from_environment(environ):
        _put(values, name, value)
        origins[name] = f"${variable}"
    return Loaded(settings=_validated(values, origins), path=path, origins=MappingProxyType(origins))


def state_dir(option: Path | None, environ: Mapping[str, str]) -> Path:
    """The absolute folder for models, databases and keys. It need not exist."""
    if option is not None:
        return option.expanduser().absolute()
    if given := environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0]).absolute()  # systemd joins several with colons; ours asks for one
    home = _home(environ)
    if home is None:
        raise ConfigError(None, "there is no home directory to keep state in: set HOME, or give --state-dir")
    return home / ".local/share/appliance"


def all_keys() -> tuple[Key, ...]:
    """Every setting there is, in the order of the file."""
    return tuple(
        Key(f"{section}.{name}", field.description or "", field.default, field)
        for section, model in _SECTIONS.items()
        for name, field in model.model_fields.items()
    )


def get(settings: Settings, name: str) -> Any:
    """The value of the setting with a dotted name."""
    section, _, key = name.partition(".")
    return getattr(getattr(settings, section), key)


_SECTIONS: dict[str, type[Section]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}


def _home(environ: Mapping[str, str]) -> Path | None:
    if home := environ.get("HOME"):
        return Path(home)
    try:
        return Path.home()
    except RuntimeError:
        return None


def _find(config: Path | None, environ: Mapping[str, str], system_config: Path) -> Path | None:
    named = ((config, "--config"), (environ.get("APPLIANCE_CONFIG") or None, "$APPLIANCE_CONFIG"))
    for given, by in named:
        if given is not None:
            path = Path(given).expanduser()
            if not path.is_file():
                raise ConfigError(None, f"there is no configuration file {path} (named by {by})")
            return path
    home = _home(environ)
    usual = [system_config] if home is None else [home / ".config/appliance/appliance.toml", system_config]
    return next((path for path in usual if path.is_file()), None)


def _from_file(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(None, f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(None, f"{path} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(None, f"{path} is not valid TOML: {error}") from None
    for section, table in document.items():
        if not isinstance(table, dict):
            hint = f"write [{section}]" if section in _SECTIONS else _suggest(section)
            raise ConfigError(section, f"stands outside a section in {path}; {hint}")
        if section not in _SECTIONS:
            raise ConfigError(section, f"there is no section [{section}] ({path}); {_suggest(section)}")
        for key, given in table.items():
            if key not in _SECTIONS[section].model_fields:
                raise ConfigError(f"{section}.{key}", f"there is no such key ({path}); {_suggest(f'{section}.{key}')}")
            yield f"{section}.{key}", given


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    """(dotted key, value, variable). An empty variable is not set: unit files leave such behind."""
    for variable in sorted(environ):
        rest = variable.removeprefix(ENV_PREFIX)
        if rest == variable or not environ[variable]:
            continue
        section, separator, key = rest.lower().partition("__")
        if not separator:
            # APPLIANCE_CONFIG and the like are not settings; APPLIANCE_SERVER_PORT was meant as one.
            section, _, key = rest.lower().partition("_")
            if section in _SECTIONS and key in _SECTIONS[section].model_fields:
                raise ConfigError(
                    f"{section}.{key}",
                    f"${variable} has one underscore too few; write {_variable(f'{section}.{key}')}",
                )
            continue
        name = f"{section}.{key}"
        if section not in _SECTIONS or key not in _SECTIONS[section].model_fields:
            raise ConfigError(name, f"there is no such key (${variable}); {_suggest(name, _variable)}")
        yield name, _from_text(environ[variable], _SECTIONS[section].model_fields[key].annotation), variable


def _from_text(text: str, annotation: Any) -> Any:
    """A variable's text as what the setting holds. Other text stays as it is, and validation refuses it."""
    text = text.strip()
    if get_origin(annotation) is tuple:
        if not text.startswith("["):
            return [item.strip() for item in text.split(",") if item.strip()]
        try:
            return json.loads(text)
        except ValueError:
            return text
    if get_origin(annotation) is UnionType and type(None) in get_args(annotation) and text.lower() == "null":
        return None
    try:
        return TypeAdapter(annotation).validate_strings(text)
    except ValidationError:
        return text


def _put(values: dict[str, dict[str, Any]], name: str, value: Any) -> None:
    section, _, key = name.partition(".")
    values.setdefault(section, {})[key] = value


def _variable(name: str) -> str:
    return ENV_PREFIX + name.replace(".", "__").upper()


def _suggest(name: str, spell: Callable[[str], str] = str) -> str:
    """What may have been meant by a dotted key, or by a name that stands where a section should."""
    section, _, leaf = name.partition(".")
    if not leaf:
        near = difflib.get_close_matches(section, _SECTIONS, 1)
        if near:
            return f"did you mean [{near[0]}]?"
        section, leaf = "", section
    by_leaf = {key.name.partition(".")[2]: key.name for key in all_keys()}
    here = _SECTIONS[section].model_fields if section in _SECTIONS else {}
    near = difflib.get_close_matches(leaf, here, 1) or difflib.get_close_matches(leaf, by_leaf, 1, 0.8)
    if near:
        return f"did you mean {spell(f'{section}.{near[0]}' if near[0] in here else by_leaf[near[0]])}?"
    return f"keys of [{section}] are {', '.join(here)}" if here else f"sections are {', '.join(_SECTIONS)}"


def _validated(values: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    try:
        return Settings(**values)
    except ValidationError as error:
        raise _explain(error, origins) from None


def _dotted(location: tuple[int | str, ...]) -> str:
    """`server.port`, of whatever in a list it is; `frontier.providers[0].kind` in a list of tables."""
    if len(location) <= 3:
        return ".".join(map(str, location[:2]))
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def _explain(error: ValidationError, origins: Mapping[str, str]) -> ConfigError:
    found = error.errors(include_url=False)
    names = [_dotted(entry["loc"]) for entry in found]
    first, name = found[0], names[0]
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    what = "tables: [[frontier.providers]]" if name == "frontier.providers" else "a list of names"
    message = message.replace("a valid tuple", what)
    message = message.replace("Extra inputs are not permitted", "there is no such key")
    # A check across a section names its keys itself; and anywhere in [frontier] a password may stand by mistake.
    if "." in name and not name.startswith("frontier."):
        message = f"{message}; got {first['input']!r}"
    origin = origins.get(name.partition("[")[0]) or ", ".join(
        sorted({at for key, at in origins.items() if key.startswith(f"{name}.")})
    )
    message = f"{message} ({origin})" if origin else message
    others = sorted(set(names[1:]) - {name})
    return ConfigError(name, message + (f". Also wrong: {', '.join(others)}" if others else ""))
