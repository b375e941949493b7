"""What a choice says: its text, how it ends, and what is counted."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.protocol import Delta, Finished, Sampling, Started
from tests.contract.engine_driver import Answer, Clock, Drive, ScriptedBackend, job

PROMPT = "tell me"


def drive(script: bytes | str) -> Drive:
    data = script.encode() if isinstance(script, str) else script
    return Drive(backend=ScriptedBackend(data, prompt_tokens=len(PROMPT), clock=Clock()))


def say(script: bytes | str, **asked: Any) -> Answer:
    return drive(script).submit(job("a", PROMPT, **asked)).drain()["a", 0]


def deltas(script: bytes | str, **asked: Any) -> list[Delta]:
    driven = drive(script).submit(job("a", PROMPT, **asked))
    driven.drain()
    return [event for event in driven.events["a", 0] if isinstance(event, Delta)]


def test_a_choice_starts_says_its_text_a_token_a_step_and_finishes() -> None:
    driven = drive("hey").submit(job("a", PROMPT))
    driven.drain()
    assert driven.events["a", 0] == [
        Started(choice=0, prompt_tokens=7, cached_tokens=0, queue_s=0.0),
        Delta(0, "h", 1),
        Delta(0, "e", 1),
        Delta(0, "y", 1),
        Finished(0, "stop", 4),  # the end token is a token too
    ]


def test_a_model_that_ends_at_once_says_nothing() -> None:
    assert say("") == Answer("", "stop", 1, ())


def test_max_tokens_of_one_is_one_token() -> None:
    assert say("hello", max_tokens=1) == Answer("h", "length", 1, ())


def test_the_limit_on_tokens_ends_with_length() -> None:
    assert say("hello", max_tokens=4) == Answer("hell", "length", 4, ())


def test_an_end_token_in_the_last_place_is_a_stop() -> None:
    assert say("hell", max_tokens=5) == Answer("hell", "stop", 5, ())


def test_a_full_context_ends_with_length() -> None:
    backend = ScriptedBackend(b"x" * 99, prompt_tokens=60, clock=Clock(), context_tokens=64)
    answers = Drive(backend=backend).submit(job("a", "p" * 60, max_tokens=None)).drain()
    assert answers["a", 0] == Answer("xxxx", "length", 4, ())


def test_a_prompt_one_token_short_of_the_context_gets_one_token() -> None:
    backend = ScriptedBackend(b"xyz", prompt_tokens=63, clock=Clock(), context_tokens=64, kv_tokens=64)
    answers = Drive(backend=backend).submit(job("a", "p" * 63, max_tokens=50)).drain()
    assert answers["a", 0] == Answer("x", "length", 1, ())


def test_a_prompt_of_one_token_is_enough() -> None:
    backend = ScriptedBackend(b"xyz", prompt_tokens=1, clock=Clock())
    assert Drive(backend=backend).submit(job("a", "p")).drain()["a", 0].text == "xyz"


def test_min_tokens_bans_the_end_until_then() -> None:
    answer = say("", min_tokens=3)
    assert (answer.reason, answer.completion_tokens, len(answer.text)) == ("stop", 4, 3)


def test_ignore_eos_goes_on_to_the_limit() -> None:
    answer = say("ab", ignore_eos=True, max_tokens=20)
    assert answer.text.startswith("ab")
    assert (answer.reason, answer.completion_tokens, len(answer.text)) == ("length", 20, 20)


@pytest.mark.parametrize("script", ["héllo wörld", "🙂🙂", "日本語", "e\u0301"])
def test_characters_cut_across_tokens_come_whole(script: str) -> None:
    parts = deltas(script, max_tokens=99, logprobs=0)
    assert "".join(delta.text for delta in parts) == script
    assert all("�" not in delta.text for delta in parts)
    for delta in parts:
        assert b"".join(entry.token for entry in delta.logprobs).decode() == delta.text
    assert sum(len(delta.logprobs) for delta in parts) == len(script.encode())


@pytest.mark.parametrize(
    ("script", "asked", "text"),
    [
        (b"ok\xff!", {}, "ok�!"),
        (b"cut \xf0\x9f", {}, "cut �"),  # an end token in the middle of a character
        ("cut 🙂".encode(), {"max_tokens": 6}, "cut �"),  # the limit in the middle of a character
    ],
)
def test_bytes_that_never_become_a_character_are_replaced(script: bytes, asked: dict[str, Any], text: str) -> None:
    answer = say(script, logprobs=0, **asked)
    assert answer.text == text
    visible = answer.completion_tokens - (answer.reason == "stop")
    assert len(answer.logprobs) == visible


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_stop_string_across_tokens_is_never_shown(data: st.DataObject) -> None:
    script = data.draw(st.text("abé", min_size=3, max_size=14))
    stops = tuple(data.draw(st.lists(st.text("abé", min_size=1, max_size=4), min_size=1, max_size=3)))
    end = next((i for i in range(len(script) + 1) if any(script[:i].endswith(stop) for stop in stops)), None)
    wanted = script
    if end is not None:
        wanted = script[: end - max(len(stop) for stop in stops if script[:end].endswith(stop))]
    driven = drive(script).submit(job("a", PROMPT, max_tokens=99, stop=stops, logprobs=0))
    driven.drain()
    shown = ""
    for event in driven.events["a", 0]:
        if isinstance(event, Delta):
            shown += event.text
            assert wanted.startswith(shown)
    answer = driven.answers()["a", 0]
    used = script if end is None else script[:end]
    assert answer == Answer(wanted, "stop", len(used.encode()) + (end is None), answer.logprobs)
    assert b"".join(entry.token for entry in answer.logprobs).decode() == wanted


def test_what_was_held_back_for_a_stop_is_shown_when_the_text_ends_without_it() -> None:
    assert say("the EN", stop=("END",)).text == "the EN"
    assert say("the ENxx", stop=("END",), max_tokens=6) == Answer("the EN", "length", 6, ())


def test_a_stop_string_in_the_last_token_wins_over_the_limit() -> None:
    assert say("one.two", stop=(".",), max_tokens=4) == Answer("one", "stop", 4, ())


def test_a_stop_string_as_the_first_token_leaves_nothing() -> None:
    assert say("xyz", stop=("x",), logprobs=1) == Answer("", "stop", 1, ())


@pytest.mark.parametrize("top", [0, 1, 5])
def test_logprobs_come_with_the_tokens_whose_text_is_shown(top: int) -> None:
    for delta in deltas("hi there", max_tokens=99, logprobs=top, stop=("zz",)):
        assert [entry.token.decode() for entry in delta.logprobs] == list(delta.text)
        assert len(delta.logprobs) == delta.tokens
        assert all(len(entry.top) == top for entry in delta.logprobs)
        for entry in delta.logprobs:
            assert not top or entry.top[0].token_id == entry.token_id  # the script is the likeliest
            assert entry.logprob <= 0


def test_the_model_s_own_probabilities_are_told_whatever_the_sampling() -> None:
    plain = say("abc", logprobs=2)
    biased = say("abc", logprobs=2, sampling=Sampling(temperature=0.5, top_k=1, logit_bias=((97, 5.0),)))
    assert biased.logprobs == plain.logprobs


def test_each_choice_of_a_seeded_request_is_drawn_for_itself_and_repeats() -> None:
    def texts(seed: int) -> list[str]:
        hot = Sampling(temperature=1.5, seed=seed)
        answers = Drive(end_every=None).submit(job("a", PROMPT, n=3, sampling=hot, max_tokens=30)).drain()
        return [answers["a", i].text for i in range(3)]

    assert texts(5) == texts(5)
    assert len({*texts(5), *texts(77)}) == 6


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, -(2**63)])
def test_any_integer_is_a_seed(seed: int) -> None:
    asked = {"sampling": Sampling(seed=seed), "max_tokens": 5, "n": 2}
    answers = Drive(end_every=None).submit(job("a", PROMPT, **asked)).drain()  # type: ignore[arg-type] # mixed keywords
    assert len(answers) == 2


def test_the_prompts_of_one_request_keep_their_choices_apart() -> None:
    parts = [replace(job("a", f"prompt {i}", n=2), first_choice=2 * i) for i in range(3)]
    answers = Drive(end_every=None).submit(*parts).drain()
    assert set(answers) == {("a", choice) for choice in range(6)}
    for i in range(3):
        alone = Drive(end_every=None).submit(job("a", f"prompt {i}")).drain()["a", 0]
        assert answers["a", 2 * i] == answers["a", 2 * i + 1] == alone


def test_neighbouring_seeds_share_no_choice() -> None:
    def texts(seed: int) -> set[str]:
        hot = Sampling(temperature=1.5, seed=seed)
        answers = Drive(end_every=None).submit(job("a", PROMPT, n=2, sampling=hot, max_tokens=30)).drain()
        return {answer.text for answer in answers.values()}

    assert not texts(1) & texts(2)


def test_usage_counts_prompt_and_completion() -> None:
    driven = drive("four").submit(job("a", PROMPT, n=2))
    driven.drain()
    stats = driven.engine.stats()
    assert stats.prompt_tokens == 2 * len(PROMPT)
    assert stats.generated_tokens == 2 * 5
    assert stats.computed_prompt_tokens + stats.cached_prompt_tokens == stats.prompt_tokens
