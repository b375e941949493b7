"""Random traffic through a small cache: every choice says what it would say alone, and nothing leaks."""

from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from appliance.protocol import Finished, Sampling
from runtimes.engine import Job
from tests.contract.engine_driver import Drive, alone, job

# Prompts that share long, short and no prefixes; some are equal.
PREFIXES = ["", "You are a terse assistant. ", "You are a terse assistant. Answer in one word, or in none: ", "p" * 70]
SUFFIXES = ["", "?", "a", "Name a colour.", "Name a city of the north.", "Name a river " * 3]
SAMPLINGS = [
    Sampling(temperature=0.0),
    Sampling(temperature=1.0, seed=11),
    Sampling(temperature=3.0, top_p=0.95, seed=12),  # hot enough for bytes that are no characters
    Sampling(temperature=0.8, top_k=20, presence_penalty=0.5, repetition_penalty=1.2, seed=13),
]


@st.composite
def jobs(draw: st.DrawFn, name: str) -> Job:
    prompt = draw(st.sampled_from(PREFIXES)) + draw(st.sampled_from(SUFFIXES))
    stopping: dict[str, Any] = {
        "max_tokens": draw(st.sampled_from([1, 3, 20, 100])),
        "min_tokens": draw(st.sampled_from([0, 0, 0, 3])),
        "ignore_eos": draw(st.sampled_from([False, True])),
        "stop": draw(st.sampled_from([(), (), ("e",), ("x1", "x"), ("~", "ab", "Q")])),
    }
    return job(
        name,
        prompt or "x",
        sampling=draw(st.sampled_from(SAMPLINGS)),
        n=draw(st.sampled_from([1, 1, 1, 2, 3])),
        logprobs=draw(st.sampled_from([None, 0, 2])),
        **stopping,
    )


@st.composite
def traffic(draw: st.DrawFn) -> list[Job | str | int]:
    """Jobs to submit, names to cancel, and numbers of steps between."""
    actions: list[Job | str | int] = []
    names: list[str] = []
    for i in range(draw(st.integers(1, 7))):
        names.append(f"job{i}")
        actions.append(draw(jobs(names[-1])))
        actions.append(draw(st.sampled_from([0, 0, 0, 1, 2, 5, 30])))
        if draw(st.integers(0, 4)) == 0:
            actions.append(draw(st.sampled_from(names)))
            actions.append(draw(st.integers(0, 3)))
    return actions


MACHINES = st.fixed_dictionaries(
    {
        "slots": st.sampled_from([1, 2, 3, 5, 16]),
        "kv_tokens": st.sampled_from([160, 200, 300, 2000]),
        "max_batch_tokens": st.sampled_from([32, 64, 256]),
        "spare_sequences": st.sampled_from([1, 2, 20]),
        "row_s": st.sampled_from([0.01, 0.001, 1e-6]),
    }
)


def run(actions: list[Job | str | int], *, slots: int, spare_sequences: int, **options: Any) -> tuple[Drive, list[Job]]:
    drive = Drive(slots=slots, max_sequences=slots + spare_sequences, context_tokens=160, end_every=80, **options)
    submitted: list[Job] = []
    for action in actions:
        if isinstance(action, Job):
            drive.submit(action)
            submitted.append(action)
        elif isinstance(action, str):
            drive.cancel(action)
        else:
            for _ in range(action):
                drive.step()
    drive.drain()
    return drive, submitted


@settings(max_examples=60, deadline=None)
@given(traffic(), MACHINES)
def test_every_choice_says_what_it_says_alone_and_nothing_leaks(
    actions: list[Job | str | int], machine: dict[str, Any]
) -> None:
    drive, submitted = run(actions, **machine)
    note(f"{drive.engine.stats()}")
    answers = drive.answers()
    for each in submitted:
        expected = alone(each, context_tokens=160, end_every=80)
        for key, wanted in expected.items():
            if each.id in drive.cancelled and key not in answers:
                continue
            assert answers[key] == wanted
    drive.check_nothing_is_held()


@settings(max_examples=25, deadline=None)
@given(traffic(), MACHINES)
def test_logprobs_spell_the_text(actions: list[Job | str | int], machine: dict[str, Any]) -> None:
    drive, submitted = run(actions, **machine)
    for each in submitted:
        for choice in range(each.n):
            answer = drive.answers().get((each.id, choice))
            if answer is None or each.logprobs is None:
                assert answer is None or answer.logprobs == ()
                continue
            spelled = b"".join(entry.token for entry in answer.logprobs).decode(errors="replace")
            # A stop string may begin inside the last token's text: no token begins after it.
            assert spelled.startswith(answer.text)
            assert each.stopping.stop or spelled == answer.text


@settings(max_examples=25, deadline=None)
@given(traffic(), MACHINES)
def test_usage_adds_up(actions: list[Job | str | int], machine: dict[str, Any]) -> None:
    drive, submitted = run(actions, **machine)
    stats = drive.engine.stats()
    rows = sum(len(batch) for batch in drive.backend.batches)
    assert stats.steps == len(drive.backend.batches)
    ends = [event for events in drive.events.values() for event in events if isinstance(event, Finished)]
    if not drive.cancelled:
        assert len(ends) == sum(each.n for each in submitted)
        assert stats.generated_tokens == sum(end.completion_tokens for end in ends)
        assert stats.prompt_tokens == sum(len(each.prompt) * each.n for each in submitted)
        # Each token but a choice's last is computed once, or shared, or computed again after a preemption.
        needed = stats.prompt_tokens - stats.cached_prompt_tokens + stats.generated_tokens - len(ends)
        assert rows >= needed
        if not stats.preemptions:
            assert rows == needed
            assert stats.computed_prompt_tokens == stats.prompt_tokens - stats.cached_prompt_tokens
