"""What is known of a provider: where it is, what it can express, and where its key is kept.

A key is read when it is needed, so that a replaced file counts from the next request on. It is shown to nobody:
it has no place in any text that this module makes.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

Kind = Literal["openai", "azure", "anthropic"]
# What not every provider can be asked for; the reason that a request is kept from one.
Feature = Literal[
    "chat_template_kwargs",
    "ignore_eos",
    "images",
    "json_object",
    "json_schema",
    "logprobs",
    "min_p",
    "min_tokens",
    "n",
    "penalties",
    "reasoning_effort",
    "repetition_penalty",
    "seed",
    "structured_outputs",
    "thinking_token_budget",
    "tools",
    "top_k",
]
FEATURES: Final[frozenset[str]] = frozenset(get_args(Feature))

_OPENAI: Final[frozenset[str]] = frozenset(
    {"images", "json_object", "json_schema", "logprobs", "n", "penalties", "reasoning_effort", "seed", "tools"}
)
_EXPRESSES: Final[Mapping[Kind, frozenset[str]]] = {
    "openai": _OPENAI,
    "azure": _OPENAI,
    "anthropic": frozenset({"images", "json_schema", "reasoning_effort", "thinking_token_budget", "tools", "top_k"}),
}
_LONGEST_KEY: Final = 8192


class KeyUnavailable(Exception):
    """A provider's key cannot be read. The message names where it should be, never what is there."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """`env:NAME`, `file:PATH`, `credential:NAME` (systemd's) or `none`."""

    text: str

    def __post_init__(self) -> None:
        kind, _, name = self.text.partition(":")
        if self.text != "none" and (kind not in ("env", "file", "credential") or not name.strip()):
            # What stands there may be the key itself: it is not repeated.
            raise ValueError("should be env:NAME, file:PATH, credential:NAME or none, and never the key itself")

    def read(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """The key; None: the provider asks for none. Raises `KeyUnavailable`."""
        kind, _, name = self.text.partition(":")
        if kind == "none":
            return None
        if kind == "env":
            key = environ.get(name, "")
        else:
            folder = environ.get("CREDENTIALS_DIRECTORY")
            if kind == "credential" and not folder:
                raise KeyUnavailable(f"{self.text}: the service manager has passed no credentials")
            try:
                path = Path(folder or "", name) if kind == "credential" else Path(name).expanduser()
                if not path.is_file():  # a pipe would be waited for
                    raise KeyUnavailable(f"{self.text}: there is no such file")
                key = path.read_text(encoding="utf-8")
            except (OSError, RuntimeError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is no text, or there is no such home"
                raise KeyUnavailable(f"{self.text}: {why}") from None
        key = key.strip()
        if not key:
            raise KeyUnavailable(f"{self.text}: there is nothing")
        if not key.isascii() or not key.isprintable() or len(key) > _LONGEST_KEY:
            raise KeyUnavailable(f"{self.text}: what is there cannot be a key")
        return key


def fingerprint(key: str | None) -> str:
    """Tells one key from the next without telling either."""
    return hashlib.sha256((key or "").encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Provider:
    name: str
    kind: Kind
    base_url: str  # what comes before /chat/completions or /messages; its query is kept
    model: str  # as the provider calls it
    key: KeySource = field(default_factory=lambda: KeySource("none"))
    max_tokens: int = 8192  # of an answer, where the client sets no limit
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    also: frozenset[str] = frozenset()  # features beyond those of its kind
    cannot: frozenset[str] = frozenset()  # of its kind, but not here
    attempts: int = 3
    connect_timeout_s: float = 5.0
    first_byte_timeout_s: float = 60.0
    chunk_timeout_s: float = 30.0

    @property
    def features(self) -> frozenset[str]:
        return (_EXPRESSES[self.kind] | self.also) - self.cannot
