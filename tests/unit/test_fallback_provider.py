"""A key is read where it is kept, when it is needed, and shows in nothing that is printed, logged or answered."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from appliance.protocol import ChatPrompt, Message, Request, TextPart
from appliance.settings import ConfigError, load
from fallback.attempt import Attempt, AttemptFailed, Progress
from fallback.provider import FEATURES, KeySource, KeyUnavailable, Kind, Provider, fingerprint

KEY = "sk-live-0123456789abcdef"
REQUEST = Request("r", "frontier", (ChatPrompt((Message("user", (TextPart("Hi."),)),)),))


def provider(kind: Kind = "openai", **more: object) -> Provider:
    return dataclasses.replace(Provider("p", kind, "https://x.example/v1", "m"), **more)  # type: ignore[arg-type]


# Where a key is kept


def test_a_key_may_be_in_the_environment() -> None:
    assert KeySource("env:MY_KEY").read({"MY_KEY": f" {KEY}\n"}) == KEY


def test_a_key_may_be_in_a_file_and_counts_from_when_it_is_replaced(tmp_path: Path) -> None:
    file, source = tmp_path / "key", KeySource(f"file:{tmp_path / 'key'}")
    file.write_text(f"{KEY}\n", encoding="utf-8")
    assert source.read({}) == KEY
    file.write_text("another", encoding="utf-8")
    assert source.read({}) == "another"


def test_a_key_may_be_the_service_manager_s(tmp_path: Path) -> None:
    (tmp_path / "openai").write_text(KEY, encoding="utf-8")
    assert KeySource("credential:openai").read({"CREDENTIALS_DIRECTORY": str(tmp_path)}) == KEY
    with pytest.raises(KeyUnavailable, match="service manager"):
        KeySource("credential:openai").read({})


def test_a_provider_may_ask_for_none() -> None:
    assert KeySource("none").read({}) is None
    assert Provider("p", "openai", "http://127.0.0.1/v1", "m").key.read({}) is None


@pytest.mark.parametrize(
    "text", ["", KEY, "env:", "env: ", "file:", "credential:", ":x", f"key:{KEY}", "None", "ENV:X"]
)
def test_what_is_no_place_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="should be env:NAME") as caught:
        KeySource(text)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n",
        b"\xff\xfe",
        b"two\nlines",
        "sk-ключ".encode(),
        b"a\x00b",
        b"a\x1bb",
        b"x" * 10_000,
        b"\xef\xbb\xbfsk",
    ],
)
def test_what_is_no_key_is_not_sent_and_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(KeyUnavailable) as caught:
        KeySource(f"file:{tmp_path / 'key'}").read({})
    assert str(tmp_path) in str(caught.value)
    shown = content.decode("utf-8", "ignore").strip()
    assert not shown or shown not in str(caught.value)


@pytest.mark.parametrize("name", ["", "nothing", "nothing/there"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeyUnavailable, match="file:"):
        KeySource(f"file:{tmp_path / name}").read({})


def test_a_home_that_does_not_exist_is_a_key_that_cannot_be_read() -> None:
    with pytest.raises(KeyUnavailable, match="file:"):
        KeySource("file:~no-such-user-here/key").read({})


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(KeyUnavailable, match="env:MY_KEY"):
        KeySource("env:MY_KEY").read({})


def test_a_fingerprint_tells_keys_apart_and_tells_none_of_them() -> None:
    prints = {fingerprint(key) for key in (None, KEY, KEY + "x", KEY.upper())}
    assert len(prints) == 4
    assert not any(part in fingerprint(KEY) for part in (KEY[:8], KEY[-8:]))


# What a provider has


def test_features_of_a_kind_can_be_added_to_and_taken_from() -> None:
    assert "top_k" not in provider().features
    assert "top_k" in provider(also=frozenset({"top_k"})).features
    assert "seed" not in provider(cannot=frozenset({"seed"})).features
    assert all(provider(kind).features <= FEATURES for kind in ("openai", "azure", "anthropic"))


# Where it must not show


def test_a_provider_shows_where_its_key_is_and_not_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    found = provider(key=KeySource("env:MY_KEY"))
    assert found.key.read() == KEY
    assert KEY not in repr(found)
    assert "env:MY_KEY" in repr(found)


def test_an_attempt_does_not_show_its_key() -> None:
    assert KEY not in repr(Attempt(httpx.AsyncClient(), provider(), KEY))


@pytest.mark.parametrize(
    "table",
    [
        f'model = "m"\nkey = "{KEY}"',
        f'key = "{KEY}"',  # and the model is missing
        f'model = "m"\napi_key = "{KEY}"',
        f'api_key = "{KEY}"',
        f'model = "m"\nkey = ["{KEY}"]',
        f'model = "m"\nheaders = {{ authorization = "Bearer {KEY}" }}',
        f'model = "m"\nbase_url = "https://user:{KEY}@x.example/v1"',
    ],
)
def test_a_configuration_that_holds_the_key_itself_is_refused_without_repeating_it(tmp_path: Path, table: str) -> None:
    url = "" if "base_url" in table else 'base_url = "https://x.example/v1"\n'
    file = tmp_path / "appliance.toml"
    file.write_text(f'[[frontier.providers]]\nname = "p"\nkind = "openai"\n{url}{table}\n', encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file, {"HOME": str(tmp_path)}, system_config=tmp_path / "none")
    assert KEY not in str(caught.value)


Answering = Callable[[httpx.Request], httpx.Response]


async def failure(answer: Answering, kind: Kind = "openai") -> AttemptFailed:
    """Of one attempt with the key at a provider that answers so."""
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        attempt = Attempt(client, provider(kind), KEY)
        with pytest.raises(AttemptFailed) as caught:
            async for _ in attempt.events(REQUEST, b"{}", Progress(0.0)):
                pass
    assert KEY not in repr(caught.value)
    assert KEY not in caught.value.message
    assert caught.value.__cause__ is None
    return caught.value


@pytest.mark.parametrize("status", [400, 401, 403, 404, 418, 429, 500, 503, 529])
@pytest.mark.parametrize("kind", ["openai", "azure", "anthropic"])
async def test_a_provider_that_repeats_the_key_does_not_make_us_repeat_it(status: int, kind: Kind) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        sent = next(v for k, v in request.headers.items() if k in ("authorization", "api-key", "x-api-key"))
        assert KEY in sent
        return httpx.Response(status, json={"error": {"message": f"Incorrect API key: {sent}. " + "x" * 1000 + sent}})

    error = await failure(answer, kind)
    assert error.status == status
    assert str(status) in error.message
    assert len(error.message) < 500


async def test_a_provider_that_repeats_half_the_key_where_it_refuses_it_is_not_quoted() -> None:
    error = await failure(
        lambda _: httpx.Response(401, json={"error": {"message": f"Incorrect: {KEY[:8]}...{KEY[-4:]}"}})
    )
    assert error.kind == "key"
    assert KEY[-4:] not in error.message


async def test_an_error_in_the_middle_of_a_stream_does_not_repeat_it_either() -> None:
    event = json.dumps({"error": {"message": f"bad\nkey {KEY}"}})
    error = await failure(
        lambda _: httpx.Response(200, headers={"content-type": "text/event-stream"}, content=f"data: {event}\n\n")
    )
    assert error.kind == "failed"
    assert "\n" not in error.message


async def test_nor_does_an_answer_of_another_type() -> None:
    await failure(lambda _: httpx.Response(200, headers={"content-type": f"text/{KEY}"}, content=KEY))


async def test_nor_does_a_connection_that_fails() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(f"cannot connect with {request.headers['authorization']}")

    assert (await failure(answer)).retriable


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b"\xff", b'{"error": {"retry_after": 1' + b"0" * 400 + b"}}"]
)
@pytest.mark.parametrize("status", [429, 500])
async def test_an_error_that_is_no_sense_is_still_that_error(status: int, content: bytes) -> None:
    error = await failure(lambda _: httpx.Response(status, content=content))
    assert (error.status, error.retriable) == (status, True)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key")
    with pytest.raises(KeyUnavailable):
        KeySource(f"file:{tmp_path / 'key'}").read()
