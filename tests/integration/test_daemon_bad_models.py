"""Model files that are damaged or hostile: the daemon stays up and says why it cannot answer, or answers."""

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import Daemon, appliance, chat_body, wait_until
from tests.integration.daemon_gguf import damage, rewrite, tensor_data_offset, truncate
from tests.integration.test_daemon_openai_client import SURE

CHAT = "/v1/chat/completions"
TEMPLATE = "tokenizer.chat_template"

UNLOADABLE: dict[str, Callable[[Path, Path], Path]] = {
    "cut in its tensors": lambda source, target: truncate(source, target, source.stat().st_size // 2),
    "cut in its metadata": lambda source, target: truncate(source, target, 100_000),
    "cut in its header": lambda source, target: truncate(source, target, 10),
    "empty": lambda source, target: truncate(source, target, 0),
    "not a GGUF": lambda source, target: damage(source, target, 0, b"PK\x03\x04"),
    "of a version to come": lambda source, target: damage(source, target, 4, struct.pack("<I", 99)),
    "claiming 2^63 tensors": lambda source, target: damage(source, target, 8, struct.pack("<Q", 2**63)),
    "claiming 2^40 metadata pairs": lambda source, target: damage(source, target, 16, struct.pack("<Q", 2**40)),
    "with a key of 2^62 bytes": lambda source, target: damage(source, target, 24, struct.pack("<Q", 2**62)),
    "with no architecture": lambda source, target: rewrite(source, target, {"general.architecture": None}),
    "with an unknown architecture": lambda source, target: rewrite(
        source, target, {"general.architecture": "perpetuum"}
    ),
    "with wrong tensor places": lambda source, target: damage(
        source, target, tensor_data_offset(source) - 40, b"\xff" * 32
    ),
}


@pytest.fixture(scope="module")
def beside_bad_models(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon that is told to serve the real model and every file that cannot be loaded."""
    folder = tmp_path_factory.mktemp("bad")
    files = [make(model_path, folder / f"{name.replace(' ', '-')}.gguf") for name, make in UNLOADABLE.items()]
    home = tmp_path_factory.mktemp("home")
    serve = [str(model_path), *map(str, files)]
    daemon = Daemon(model_path, tmp_path_factory.mktemp("state"), home, {}, more_models=serve[1:])
    try:
        daemon.wait_listening()
        wait_until(
            lambda: all(model["state"] != "starting" for model in daemon.status()["models"].values()),
            "every model is loaded or given up",
            timeout_s=60,
        )
        yield daemon
    finally:
        daemon.close()
        for file in files:
            file.unlink()


@pytest.mark.parametrize("name", UNLOADABLE)
def test_a_file_that_cannot_be_loaded_is_refused_with_the_reason(beside_bad_models: Daemon, name: str) -> None:
    model = name.replace(" ", "-")
    state = beside_bad_models.status()["models"][model]
    assert state["state"] in {"failed", "restarting"}
    assert state["problem"]
    with beside_bad_models.client() as client:
        began_s = time.monotonic()
        answer = client.post(CHAT, json=chat_body(model=model))
        assert time.monotonic() - began_s < 20  # a file that no retry can mend is refused at once
    assert answer.status_code == 503, answer.text
    assert answer.json()["error"]["code"] == "model_loading"
    assert int(answer.headers["retry-after"]) >= 1


def test_a_good_model_answers_beside_bad_ones(beside_bad_models: Daemon) -> None:
    with beside_bad_models.client() as client:
        assert client.post(CHAT, json=chat_body()).status_code == 200
        assert client.get("/healthz").status_code == 200
        assert len(client.get("/v1/models").json()["data"]) == 3 + 1 + len(UNLOADABLE)


def test_readiness_names_every_model_that_cannot_answer(beside_bad_models: Daemon) -> None:
    with beside_bad_models.client() as client:
        readiness = client.get("/readyz")
    assert readiness.status_code == 503
    assert int(readiness.headers["retry-after"]) >= 1
    error = readiness.json()["error"]
    assert error["code"] == "model_loading"
    for name in UNLOADABLE:
        assert name.replace(" ", "-") in error["message"]


def test_a_worker_is_not_started_again_and_again_for_a_file_that_no_retry_mends(beside_bad_models: Daemon) -> None:
    children = {process.pid for process in beside_bad_models.processes()}
    models = beside_bad_models.status()["models"].values()
    assert sum(model["worker_pid"] is not None for model in models) == 1
    assert {model["worker_pid"] for model in models} - {None} <= children


def test_a_model_file_that_is_not_there_is_a_configuration_error(model_path: Path, tmp_path: Path) -> None:
    ended = appliance("--state-dir", tmp_path, "serve", "--model", tmp_path / "none.gguf", "--port", "0", home=tmp_path)
    assert ended.returncode == 78
    assert "none.gguf" in ended.stderr
    assert "Traceback" not in ended.stderr


HOSTILE_TEMPLATES = {
    "loops for ever": "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "recurses": "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    "writes without end": "{% for a in range(9999) %}{% for b in range(999) %}{{ 'x' * 999 }}{% endfor %}{% endfor %}",
    "asks for a huge text": "{{ 'x' * 10000000000 }}",
    "raises": "{{ raise_exception('no conversation is good enough') }}",
}


@pytest.mark.parametrize("template", HOSTILE_TEMPLATES.values(), ids=HOSTILE_TEMPLATES.keys())
def test_a_hostile_template_cannot_hang_or_end_the_daemon(
    launch: Launch, model_path: Path, tmp_path: Path, template: str
) -> None:
    model = rewrite(model_path, tmp_path / "hostile.gguf", {TEMPLATE: template})
    daemon = launch(model=model).wait_ready()
    worker_pid = daemon.worker_pid()
    with daemon.client(timeout_s=20) as client:
        answer = client.post(CHAT, json=chat_body())
        assert answer.status_code in {200, 400}, answer.text  # by another template, or with the model's fault named
        if answer.status_code == 400:
            assert answer.json()["error"]["code"] == "invalid_request"
            assert "template" in answer.json()["error"]["message"]
        text = client.post("/v1/completions", json={"model": "auto", "prompt": "Hi", "max_tokens": 2})
        assert text.status_code == 200, text.text  # needs no template
        assert client.get("/readyz").status_code == 200
    assert daemon.worker_pid() == worker_pid


def test_a_looping_template_does_not_stall_a_running_stream(launch: Launch, model_path: Path, tmp_path: Path) -> None:
    model = rewrite(model_path, tmp_path / "hostile.gguf", {TEMPLATE: HOSTILE_TEMPLATES["loops for ever"]})
    daemon = launch(model=model).wait_ready()
    answered = []
    with daemon.client() as client, daemon.client() as other:
        body: dict[str, Any] = {"model": "auto", "prompt": "Hi", "stream": True, "max_tokens": 400, "ignore_eos": True}
        with client.stream("POST", "/v1/completions", json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            answered.append(_answer(other, daemon))
            gaps, last_s = [], time.monotonic()
            for _ in lines:
                gaps.append(time.monotonic() - last_s)
                last_s = time.monotonic()
    assert answered[0].status_code in {200, 400}
    assert max(gaps) < 2.0


def _answer(client: httpx.Client, daemon: Daemon) -> httpx.Response:
    return client.post(CHAT, json=chat_body())


def test_a_model_without_a_template_says_so_to_a_chat_and_completes_text(
    launch: Launch, model_path: Path, tmp_path: Path
) -> None:
    model = rewrite(model_path, tmp_path / "plain.gguf", {TEMPLATE: None})
    daemon = launch(model=model).wait_ready()
    with daemon.client() as client:
        answer = client.post(CHAT, json=chat_body())
        assert answer.status_code in {200, 400}
        assert answer.status_code == 200 or "template" in answer.json()["error"]["message"]
        assert (
            client.post("/v1/completions", json={"model": "auto", "prompt": "Hi", "max_tokens": 2}).status_code == 200
        )


def test_a_rewritten_model_that_is_not_hostile_answers_as_the_original(
    daemon: Daemon, launch: Launch, model_path: Path, tmp_path: Path
) -> None:
    """The rewriting is right: what the hostile files show is the template's doing."""
    same = launch(model=rewrite(model_path, tmp_path / "same.gguf", {"general.name": "Same"})).wait_ready()
    with daemon.client() as client, same.client() as other:
        body = chat_body(
            messages=SURE, max_tokens=12
        )  # where rounding, which differs with what is cached, decides nothing
        expected = client.post(CHAT, json=body).json()["choices"]
        assert other.post(CHAT, json=body).json()["choices"] == expected
