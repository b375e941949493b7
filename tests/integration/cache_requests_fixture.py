"""What keys may ask of a cache, and what they may try to get at another key's answers, as hypothesis strategies.

Knows the public interface only.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Key:
    id: str
    name: str
    secret: str = field(repr=False)

    @property
    def bearer(self) -> Headers:
        return (("authorization", f"Bearer {self.secret}"),)


@dataclass(frozen=True)
class Asked:
    """A request that everyone may send: its answers are stored, and end by themselves."""

    path: str
    body: dict[str, Any]
    text: str
    same: str  # in other words
    mode: str | None  # of the cache
    hints: Headers
    is_semantic: bool  # other words will do
    is_random: bool  # no two generations are alike

    def of(self, text: str) -> dict[str, Any]:
        """The body, for a text."""
        if self.path == COMPLETIONS:
            return {**self.body, "prompt": text}
        return {**self.body, "messages": [*self.body["messages"], {"role": "user", "content": text}]}


# What is asked

TEXTS = (
    ("Name the capital of France in one word.", "Hi, could you please name France's capital in one word?"),
    ("How do I enable 2FA?", "How do I turn on two-factor authentication?"),
)
FORMS: tuple[dict[str, Any], ...] = (
    {"structured_outputs": {"choice": ["Paris"]}},
    {"structured_outputs": {"regex": "[0-9]{12}"}},
    {
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "city",
                "schema": {"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"]},
            },
        }
    },
)
SAMPLINGS: tuple[dict[str, Any], ...] = ({"temperature": 0}, {"temperature": 0.7, "seed": 7}, {"temperature": 2})
CHAT_FIELDS: tuple[dict[str, Any], ...] = (
    {"safety_identifier": "ann"},
    {"prompt_cache_key": "ann"},
    {"store": True},
    {"verbosity": "low"},
    {"prediction": {"type": "content", "content": "Paris"}},
    {"reasoning_effort": "none"},
    {"modalities": ["text"]},
)
FIELDS: tuple[dict[str, Any], ...] = (
    {"user": "ann"},
    {"metadata": {"tenant": "ann", "namespace": "ann"}},
    {"service_tier": "priority"},
    {"stop": ["\n\n"]},
    {"top_k": 40},
    {"top_p": 0.9},
    {"min_p": 0.01},
    {"presence_penalty": 0.1},
    {"repetition_penalty": 1.1},
    {"logit_bias": {"5": -1}},
    {"n": 1},
)
BEFORE: tuple[list[dict[str, Any]], ...] = (
    [],
    [{"role": "system", "content": "You are terse."}],
    [{"role": "developer", "content": [{"type": "text", "text": "You are terse."}]}],
    [{"role": "user", "content": "Hello.", "name": "ann"}, {"role": "assistant", "content": "Hello!"}],
)
STEPS = (None, "plan", "classify", "extract", "code", "chat", "summarize", "transform")  # others want the frontier


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    path = draw(st.sampled_from((CHAT, CHAT, COMPLETIONS)))
    form, sampling = draw(st.sampled_from(FORMS)), draw(st.sampled_from(SAMPLINGS))
    is_random = sampling == SAMPLINGS[2]
    mode = draw(st.sampled_from(("exact", "semantic") if is_random else (None, "exact", "semantic")))
    step = draw(st.sampled_from(STEPS))
    body: dict[str, Any] = {"model": draw(st.sampled_from(("auto", "local"))), "max_tokens": 40, **form, **sampling}
    for fields in draw(st.lists(st.sampled_from(FIELDS + (CHAT_FIELDS if path == CHAT else ())), max_size=4)):
        body.update(fields)
    before = draw(st.sampled_from(BEFORE)) if path == CHAT else []
    if path == CHAT:
        body["messages"] = before
    text, same = draw(st.sampled_from(TEXTS))
    is_single = all(message["role"] in ("system", "developer") for message in before)
    return Asked(
        path,
        body,
        text,
        same,
        mode,
        () if step is None else (("x-appliance-step", step),),
        is_semantic=path == CHAT and mode != "exact" and (is_single or mode == "semantic"),
        is_random=is_random and form == FORMS[1],
    )


# What is tried to get at another's


@dataclass(frozen=True)
class Attempt:
    """{id}, {name} and {secret} are those of the key that is attacked."""

    headers: Headers = ()
    fields: dict[str, Any] = field(default_factory=dict)
    query: str = ""
    mode: str | None = None  # of the cache, in the place of the request's own
    by_api_key: bool = False
    stream: bool = False


NAMES = (
    *("x-appliance-namespace", "X-Appliance-Tenant", "X-APPLIANCE-PRINCIPAL", "x-appliance-owner", "namespace"),
    *("organization", "OpenAI-Organization", "OpenAI-Project", "X-OpenAI-User", "x-user-id", "X-Tenant-ID"),
    *("X-Forwarded-User", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "X-Remote-User", "From", "Cookie"),
    *("X-Request-ID", "X-Original-Authorization", "Proxy-Authorization", "x-appliance-task", "X-Amzn-Oidc-Identity"),
)
VALUES = ("{id}", "{name}", "local", "admin", "127.0.0.1", "Bearer {secret}", "namespace={id}")
CREDENTIALS: Headers = (  # after one's own
    ("Authorization", "Bearer {secret}"),
    ("Authorization", "Bearer {id}"),
    ("authorization", "Basic {secret}"),
    ("X-Api-Key", "{secret}"),
    ("x-api-key", "{id}"),
)
ATTEMPTS: tuple[dict[str, Any], ...] = (
    {"user": "{id}"},
    {"metadata": {"namespace": "{id}", "key": "{id}", "tenant": "{name}", "task": "{id}"}},
    {"metadata": {"criticality": "critical", "privacy": "local-only", "timeout_s": "500"}},
    {"metadata": {"cache": "semantic", "task": "{name}"}},
    {"service_tier": "flex"},
)
QUERIES = ("", "?namespace={id}", "?key={id}&api_key={secret}", "?id=1")
ATTEMPT = st.builds(
    Attempt,
    headers=st.lists(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)) | st.sampled_from(CREDENTIALS),
        max_size=4,
        unique_by=lambda header: header[0].lower(),
    ).map(tuple),
    fields=st.sampled_from(({}, *ATTEMPTS)),
    query=st.sampled_from(QUERIES),
    mode=st.sampled_from((*(None,) * 6, "exact", "semantic", "refresh", "off")),
    by_api_key=st.booleans(),
    stream=st.booleans(),
)


def aimed(value: Any, at: Key) -> Any:
    """With the victim's names in it."""
    if isinstance(value, dict):
        return {name: aimed(one, at) for name, one in value.items()}
    return value.format(id=at.id, name=at.name, secret=at.secret) if isinstance(value, str) else value
