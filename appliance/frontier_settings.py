"""The sections that decide what leaves the machine: [frontier], [routing] and [economics]."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self, get_args
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field, Strict, model_validator

from appliance.protocol import Privacy, Private, StepKind
from appliance.section import Names, Section
from fallback import FEATURES, BudgetLimits, KeySource, Provider

Treatment = Literal["local", "frontier", "local-then-escalate"]

_SECRET_PARAMETER = re.compile(r"key|token|secret|passw|^sig", re.IGNORECASE)


def _key_source(text: str) -> str:
    KeySource(text)
    return text


def _address(text: str) -> str:
    """http or https, with a host that can be one. What is wrong is said without the text, which may hold a key."""
    parts = urlsplit(text)
    if not text.isascii() or any(c.isspace() or not c.isprintable() for c in text):
        raise ValueError("should hold no blank and nothing but ASCII")
    if parts.scheme not in ("http", "https") or not re.fullmatch(r"[\w.:-]+", parts.hostname or ""):
        raise ValueError("should be http:// or https:// with the name of a host")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("should have a port below 65536, or none") from None
    return text


def _base_url(text: str) -> str:
    parts = urlsplit(_address(text))
    if parts.username or parts.password or any(_SECRET_PARAMETER.search(name) for name, _ in parse_qsl(parts.query)):
        raise ValueError("should hold no password and no key: a key has its own setting")
    return text


def _features(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in FEATURES:
            raise ValueError(f"{name!r} is none of {', '.join(sorted(FEATURES))}")
    return names


_Features = Annotated[Names, AfterValidator(_features)]


class ProviderSettings(Section):
    """A table of [[frontier.providers]]."""

    name: str = Field(min_length=1, max_length=64, pattern=r"^[\w.-]+$")
    kind: Literal["openai", "azure", "anthropic"]
    base_url: Annotated[str, AfterValidator(_base_url)]
    model: str = Field(min_length=1)
    key: Annotated[str, AfterValidator(_key_source)] = "none"
    max_tokens: int = Field(8192, ge=1)
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    also: _Features = ()
    cannot: _Features = ()
    attempts: int = Field(3, ge=1, le=10)
    connect_timeout_s: float = Field(5.0, gt=0)
    first_byte_timeout_s: float = Field(60.0, gt=0)
    chunk_timeout_s: float = Field(30.0, gt=0)

    def provider(self) -> Provider:
        return Provider(
            name=self.name,
            kind=self.kind,
            base_url=self.base_url,
            model=self.model,
            key=KeySource(self.key),
            max_tokens=self.max_tokens,
            max_tokens_field=self.max_tokens_field,
            also=frozenset(self.also),
            cannot=frozenset(self.cannot),
            attempts=self.attempts,
            connect_timeout_s=self.connect_timeout_s,
            first_byte_timeout_s=self.first_byte_timeout_s,
            chunk_timeout_s=self.chunk_timeout_s,
        )


class FrontierSettings(Section):
    """The remote models, in the order in which they are asked."""

    providers: Annotated[tuple[ProviderSettings, ...], Strict(strict=False)] = Field(
        (),
        description="tables of name, kind (openai, azure, anthropic), base_url, model, key, and more: see the README",
    )
    proxy: Annotated[str, AfterValidator(_address)] | None = Field(
        None, description="HTTP proxy of outgoing requests; the environment's is not used"
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        names = [provider.name for provider in self.providers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two providers are called {name!r}")
        return self


def _treatment(default: Treatment, step: str) -> Treatment:
    field: Treatment = Field(default, description=f"steps of kind {step}: local, frontier or local-then-escalate")
    return field


class RoutingSettings(Section):
    """Where each kind of step is answered."""

    plan: Treatment = _treatment("local", "plan")
    extract: Treatment = _treatment("local-then-escalate", "extract")
    classify: Treatment = _treatment("local-then-escalate", "classify")
    summarize: Treatment = _treatment("local", "summarize")
    transform: Treatment = _treatment("local", "transform")
    code: Treatment = _treatment("local-then-escalate", "code")
    chat: Treatment = _treatment("local", "chat")
    synthesize: Treatment = _treatment("frontier", "synthesize")
    unsure: Treatment = _treatment("local-then-escalate", "nobody can tell which")
    min_confidence: float = Field(0.5, ge=0, le=1, description="a guess of the step below this counts as unsure")
    min_margin: float = Field(
        0.0, ge=0, description="a local answer whose tokens lead by less on average (in logits) escalates; 0: never"
    )
    escalating_stream: Literal["hold", "at-once"] = Field(
        "hold", description="a stream that may escalate: held until its checks pass, or sent at once and not checked"
    )
    offline: Literal["local", "refuse"] = Field(
        "local", description="frontier steps while offline: answered here and marked as degraded, or refused (503)"
    )
    frontier_failed: Literal["local", "refuse"] = Field(
        "local", description="frontier steps of `auto` that no provider answers: answered here, or refused (502)"
    )
    saturated: Literal["frontier", "wait"] = Field(
        "frontier",
        description="normal steps of `auto` that this machine has no room for: answered by the frontier where there is "
        "one, within its budget, or left to wait",
    )
    privacy: Privacy = Field("any", description="local-only: no request leaves this machine, whatever it asks")
    redact: Names = Field((), description="taken out of what leaves: secret, email, phone, card; keys may add")

    @property
    def patterns(self) -> frozenset[Private]:
        return frozenset(pattern for pattern in get_args(Private) if pattern in self.redact)

    def treatment(self, step: StepKind | None) -> Treatment:
        chosen: Treatment = self.unsure if step is None else getattr(self, step)
        return chosen

    @model_validator(mode="after")
    def _known_patterns(self) -> Self:
        for name in self.redact:
            if name not in get_args(Private):
                raise ValueError(f"redact: {name!r} is none of {', '.join(get_args(Private))}")
        return self


class EconomicsSettings(Section):
    """What the frontier may cost. Days and months are UTC's."""

    day_budget_usd: float | None = Field(None, ge=0, description="all requests of a day; null: no limit")
    month_budget_usd: float | None = Field(None, ge=0, description="all requests of a month; null: no limit")
    key_day_budget_usd: float | None = Field(None, ge=0, description="one key's requests of a day; null: no limit")
    key_month_budget_usd: float | None = Field(None, ge=0, description="one key's requests of a month; null: no limit")
    at_limit: Literal["refuse", "local"] = Field(
        "refuse", description="frontier steps that a budget forbids: refused (429), or answered here"
    )
    prices: str | None = Field(None, description="a price file of your own, over the one that is shipped")

    @property
    def limits(self) -> BudgetLimits:
        return BudgetLimits(
            day_usd=self.day_budget_usd,
            month_usd=self.month_budget_usd,
            key_day_usd=self.key_day_budget_usd,
            key_month_usd=self.key_month_budget_usd,
        )

    @property
    def prices_path(self) -> Path | None:
        return None if self.prices is None else Path(self.prices).expanduser()
