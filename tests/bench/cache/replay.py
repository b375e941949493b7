"""Scenario: agents at work on a daemon with its default cache: the prompt tokens it ingests, and what it gets wrong.

`python -m tests.bench.cache.replay`: the trace of `trace.py`, one request after the other, on a fresh daemon with the
real models. A server without cache and without prefix reuse ingests all prompt tokens of all requests, which is the sum
of their `usage`; what this one ingests is its engine's own count, checks of hits in idle time included. Each hit is
judged (`judging.py`).

--seed N       another trace
--tasks N      more of it, or less
--quick        16 tasks: two minutes instead of five
--missed       list the paraphrases that were computed
--threads N    of the engine
--json FILE    every request with its answer, as data
"""

import argparse
import dataclasses
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from appliance.settings import Settings, state_dir
from runtimes.models import ModelStore
from tests.bench import peers, report
from tests.bench.cache.judging import Answered, Hit, as_data, by_category, hits, missed, saved_tokens
from tests.bench.cache.trace import Step, trace
from tests.bench.claims import Claim
from tests.bench.errors import BadResponseError, BenchError, NotReadyError
from tests.bench.processes import free_port, serving

MODEL: Final = "smollm2-135m-instruct"
TASKS: Final = 48
QUICK_TASKS: Final = 16
PATIENCE_S: Final = 60.0
QUIET_S: Final = 3.0  # without work: hits are checked within a second of idleness
POLL_S: Final = 0.2
# Two texts of one meaning, until the second gets the first's answer: then the embedding model has loaded.
READY_TEXTS: Final = ("Name the capital of France in one word.", "Please name France's capital in one word.")
OWN_STEP: Final = "transform"  # no step of the trace


@dataclass(frozen=True, slots=True)
class Replay:
    seed: int
    answered: tuple[Answered, ...]
    hits: tuple[Hit, ...]
    computed_tokens: int  # prompt tokens that the engine ingested, for whatever reason
    wall_s: float
    cache: Mapping[str, Any]  # its status at the end

    @property
    def prompt_tokens(self) -> int:
        return sum(answer.prompt_tokens for answer in self.answered)

    @property
    def wrong(self) -> list[Hit]:
        return [hit for hit in self.hits if hit.is_wrong]

    @property
    def recall(self) -> float:
        """Of the paraphrases, those that were answered from the cache."""
        routes = [answer.is_hit for answer in self.answered if answer.step.category == "paraphrase"]
        return sum(routes) / len(routes) if routes else 0.0


def run(setup: peers.Setup, embedding: Path, seed: int, tasks: int) -> Replay:
    """`embedding` is the folder of the embedding model. BenchError when the daemon does not answer as it should."""
    with tempfile.TemporaryDirectory(prefix="appliance-bench-") as scratch:
        shutil.copytree(embedding, Path(scratch) / "state" / "models" / embedding.name)
        peer = peers.appliance(setup, free_port(), Path(scratch))
        settings = {**peer.environment, "APPLIANCE_CACHE__ENABLED": "true"}
        with (
            serving(dataclasses.replace(peer, environment=settings)) as server,
            httpx.Client(base_url=f"http://{server.address.host}:{server.address.port}", timeout=PATIENCE_S) as client,
        ):
            return _replayed(client, seed, tasks)


def _replayed(client: httpx.Client, seed: int, tasks: int) -> Replay:
    _until_semantic(client)
    before, began_s = _computed_tokens_when_quiet(client), time.monotonic()
    answered = tuple(_answered(client, step) for step in trace(seed, tasks))
    wall_s = time.monotonic() - began_s
    computed = _computed_tokens_when_quiet(client) - before
    return Replay(seed, answered, tuple(hits(answered)), computed, wall_s, _json(client.get("/admin/v1/cache")))


def _answered(client: httpx.Client, step: Step) -> Answered:
    response = client.post("/v1/chat/completions", json=step.body, headers=dict(step.headers))
    body, headers = _json(response), response.headers
    (choice,), usage = body["choices"], body["usage"]
    age_s, similarity = (headers.get(f"x-appliance-cache-{name}") for name in ("age-s", "similarity"))
    return Answered(
        step=step,
        route=headers["x-appliance-route"],
        finish=choice["finish_reason"],
        answer=choice["message"]["content"] or "",
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
        came_s=time.monotonic(),
        age_s=None if age_s is None else float(age_s),
        similarity=None if similarity is None else float(similarity),
    )


def _json(response: httpx.Response) -> dict[str, Any]:
    if response.status_code != httpx.codes.OK:
        raise BadResponseError(f"status {response.status_code}: {response.text}")
    body: dict[str, Any] = response.json()
    return body


def _until_semantic(client: httpx.Client) -> None:
    """Waits for the embedding model, and leaves the cache empty."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        routes = []
        for text in READY_TEXTS:
            body = {"model": "auto", "temperature": 0, "messages": [{"role": "user", "content": text}]}
            choice = {"structured_outputs": {"choice": ["Paris"]}}
            response = client.post("/v1/chat/completions", json=body | choice, headers={"x-appliance-step": OWN_STEP})
            _json(response)
            routes.append(response.headers["x-appliance-route"])
        _json(client.delete("/admin/v1/cache"))
        if routes[1] == "cache-semantic":
            return
        time.sleep(POLL_S)
    raise NotReadyError(f"the semantic tier answered nothing within {PATIENCE_S:.0f} s")


def _computed_tokens(client: httpx.Client) -> int:
    (model,) = _json(client.get("/admin/v1/status"))["models"].values()
    return int(model["counters"]["computed_prompt_tokens"])


def _computed_tokens_when_quiet(client: httpx.Client) -> int:
    seen, since_s = _computed_tokens(client), time.monotonic()
    while time.monotonic() < since_s + QUIET_S:
        time.sleep(POLL_S)
        if (now := _computed_tokens(client)) != seen:
            seen, since_s = now, time.monotonic()
    return seen


def claims(replay: Replay) -> Iterator[Claim]:
    share = 1 - replay.computed_tokens / replay.prompt_tokens
    yield Claim("trace of agents: share of prompt tokens that were not ingested", share, at_least=0.35)
    yield Claim("trace of agents: wrong answers from the cache", len(replay.wrong), at_most=0)


def lines(replay: Replay) -> list[str]:
    all_tokens, saved = replay.prompt_tokens, saved_tokens(replay.answered)
    again = replay.computed_tokens - (all_tokens - sum(saved.values()))
    tokens = {
        "all, as a server without cache and prefix reuse ingests them": all_tokens,
        "not ingested: the very same request": saved["exact"],
        "not ingested: the same in other words": saved["semantic"],
        "not ingested: a prefix that was there": saved["prefix"],
        "ingested": replay.computed_tokens,
        "  of them to check hits in idle time": again,
    }
    title = f"prompt tokens of {len(replay.answered)} requests, seed {replay.seed}, {replay.wall_s:.0f} s"
    counts = [
        (row.category, *map(str, (row.sent, row.exact, row.semantic, row.computed, row.wrong, row.cut)))
        for row in by_category(replay.answered, replay.wrong)
    ]
    total = ("all", *(str(sum(int(row[column]) for row in counts)) for column in range(1, 7)))
    unclear = sum(not hit.is_certain for hit in replay.hits)
    return [
        *report.table((title, "tokens", "share"), [(n, str(t), f"{t / all_tokens:.1%}") for n, t in tokens.items()]),
        "",
        *report.table(
            ("requests", "sent", "cache-exact", "cache-semantic", "computed", "wrong", "cut"), [*counts, total]
        ),
        f"paraphrases answered from the cache: {replay.recall:.1%}",
        f"hits: {len(replay.hits)}, of them {unclear} that may be another's answer, which reads the same",
        *(line for hit in replay.wrong for line in _wrong(hit)),
        "",
        *_tier(replay.cache),
    ]


def _wrong(hit: Hit) -> list[str]:
    step = hit.answered.step
    return [
        f"WRONG ({step.agent}, {step.category} {step.apart}): {step.text!r}",
        *(f"      the answer to {origin.step.text!r}: {origin.answer!r}" for origin in hit.origins),
        *([] if hit.origins else [f"      an answer that nobody was given: {hit.answered.answer!r}"]),
    ]


def _tier(cache: Mapping[str, Any]) -> list[str]:
    """The semantic tier at the end, one line for each kind of step that hits were checked of."""
    measured = [checks for checks in cache["false_hits"] if checks["step"] != OWN_STEP]
    return [
        f"{cache['entries']} answers kept; near-misses by what refused them: {_named(cache['near_misses'])}",
        f"not cached: {_named(cache['not_cached'])}",
        *(
            f"semantic tier, step {checks['step']}: {checks['state']}, threshold {checks['threshold']}, "
            f"{checks['wrong']} of {checks['checked']} checked wrong, at most {checks['upper_bound']:.1%}"
            for checks in measured
        ),
        *([] if measured else ["semantic tier: cold, no hit was checked"]),
    ]


def _named(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def missed_lines(replay: Replay) -> list[str]:
    found = list(missed(replay.answered))
    lines = [f"paraphrases that were computed: {len(found)}"]
    lines += [f"  {answer.step.agent}: {answer.step.text!r} after {there}" for answer, there in found]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cache.replay", description="Agents at work, replayed.")
    parser.add_argument("--seed", type=int, default=1, help="of the trace")
    parser.add_argument("--tasks", type=int, default=TASKS, help="how many the agents have")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_TASKS} tasks")
    parser.add_argument("--missed", action="store_true", help="list the paraphrases that were computed")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of the engine")
    parser.add_argument("--json", type=Path, help="write every request with its answer there")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the daemon is ended then too

    store = ModelStore(state_dir(None, os.environ) / "models", offline=True)
    names = (MODEL, Settings().models.embedding or "")
    model, embedding = map(store.resolve, names)
    if model is None or embedding is None:
        print(f"not both models are here: fetch them with `appliance pull {' '.join(names)}`", file=sys.stderr)
        return 2
    setup = peers.Setup(model.path, options.threads)
    try:
        replay = run(setup, embedding.path.parent, options.seed, QUICK_TASKS if options.quick else options.tasks)
    except BenchError as error:
        print(f"gave up: {error}", file=sys.stderr)
        return 1
    checked = list(claims(replay))
    shown = [*lines(replay), *(["", *missed_lines(replay)] if options.missed else []), "", *report.claims(checked)]
    print("\n".join(shown))
    if options.json is not None:
        data = {
            "seed": replay.seed,
            "answered": list(map(as_data, replay.answered)),
            "computed_tokens": replay.computed_tokens,
            "cache": replay.cache,
            "claims": [dataclasses.asdict(claim) | {"holds": claim.holds} for claim in checked],
        }
        options.json.write_text(json.dumps(data, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
