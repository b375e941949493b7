"""What kind of step a request seems to be, by its words. The whole figures are in the bench."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from appliance.api.openai.chat_request import parse_chat
from appliance.protocol import Request
from appliance.routing.classifier import EMBEDDED_CHARACTERS, Classifier, embedded_text
from appliance.routing.cue import cue_of, cue_of_texts
from appliance.routing.decision import Guess
from appliance.routing.exemplars import Vector, load_exemplars
from appliance.routing.lexicon import Lexicon, needed_text
from tests.routing.labelled import labelled

EXEMPLARS = load_exemplars()


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    made = Classifier(EXEMPLARS)
    made.fit()
    return made


def request(*messages: tuple[str, str], **fields: object) -> Request:
    said = [{"role": role, "content": text} for role, text in messages]
    return parse_chat({"model": "auto", "messages": said, **fields}, {}, "test")


def guess(classifier: Classifier, *messages: tuple[str, str]) -> Guess:
    return asyncio.run(classifier.guess(request(*messages)))


def test_every_kind_has_its_exemplars_and_none_of_them_is_a_held_out_prompt() -> None:
    counts = Counter(exemplar.step for exemplar in EXEMPLARS)
    assert len(counts) == 8
    assert max(counts.values()) - min(counts.values()) <= 5
    held_out = {cue_of(each.request).text for each in labelled("test")}
    assert not held_out & {exemplar.cue.text for exemplar in EXEMPLARS}


def test_most_held_out_prompts_are_told_by_their_words(classifier: Classifier) -> None:
    found = [(asyncio.run(classifier.guess(each.request)), each.step) for each in labelled("test")]
    assert len(found) >= 160
    right = sum(guess.step == step for guess, step in found)
    sure = [(guess, step) for guess, step in found if guess.confidence >= 0.5]
    assert right / len(found) >= 0.7
    assert sum(guess.step == step for guess, step in sure) / len(sure) >= 0.8, "the sure ones are right more often"
    assert len(sure) / len(found) >= 0.6, "and are most"


def test_the_material_does_not_say_what_is_to_be_done_with_it(classifier: Classifier) -> None:
    letter = "Please summarize the attached plan, translate it into French and write a Python script for it."
    wanted = f"Which category does this mail fall in: billing, technical or other?\n\n<document>{letter}</document>"
    assert guess(classifier, ("user", wanted)).step == "classify"


def test_the_system_prompt_gives_the_step_when_the_user_brings_only_material(classifier: Classifier) -> None:
    system = "You translate customer mails into German. Output only the translation."
    material = "The parcel has arrived on Tuesday, two days late, and the lamp in it is broken."
    assert guess(classifier, ("system", system), ("user", material)).step == "transform"


@pytest.mark.parametrize("text", ["", " ", "\n\n", "...", "12345", "\u4f60\u597d", "\U0001f600"])
def test_what_says_nothing_is_left_open(classifier: Classifier, text: str) -> None:
    assert guess(classifier, ("user", text)).confidence < 0.5


def test_a_request_of_half_a_megabyte_is_looked_at_in_part(classifier: Classifier) -> None:
    text = "Summarize this:\n\n" + "The committee met and spoke of many things. " * 12_000
    assert guess(classifier, ("user", text)).step == "summarize"


@pytest.mark.parametrize(
    ("system", "user", "embedded"),
    [
        ("", "Summarize this report in three lines.", "Summarize this report in"),
        ("You are a helpful assistant.", "Summarize this report in three lines.", "Summarize this report in"),
        (
            "Sort each ticket into one of: billing, technical, sales, other.",
            "My bill is wrong.",
            "Sort each ticket into one",
        ),
        ("Be brief.", "", "Be brief."),
        ("", "多" * 100, "多" * EMBEDDED_CHARACTERS),
    ],
)
def test_what_is_embedded_is_the_beginning_of_the_instruction(system: str, user: str, embedded: str) -> None:
    assert embedded_text(cue_of_texts(system, user)) == embedded


async def test_an_embedding_model_that_fails_leaves_the_guess_to_the_words() -> None:
    calls = 0

    async def embed(texts: Sequence[str]) -> Sequence[Vector]:
        nonlocal calls
        calls += 1
        if len(texts) == 1:
            raise RuntimeError("the worker is gone")
        return [np.full(4, 0.5, dtype=np.float32) for _ in texts]

    few = EXEMPLARS[::8] + EXEMPLARS[1::8]
    with_model, without = Classifier(few, embed), Classifier(few)
    await with_model.prepare()
    without.fit()
    asked = request(("user", "hm, and then what about it"))
    assert await with_model.guess(asked) == await without.guess(asked)
    assert calls > 1


async def test_embeddings_of_the_exemplars_are_kept_for_the_next_start(tmp_path: Path) -> None:
    calls = 0

    async def embed(texts: Sequence[str]) -> Sequence[Vector]:
        nonlocal calls
        calls += 1
        return [np.full(4, len(text) % 7, dtype=np.float32) for text in texts]

    cache = tmp_path / "exemplars.npz"
    few = EXEMPLARS[::10]
    await Classifier(few, embed).prepare(cache)
    first = calls
    await Classifier(few, embed).prepare(cache)
    assert calls == first
    await Classifier(EXEMPLARS[::11], embed).prepare(cache)  # other exemplars: what is kept does not fit
    assert calls > first
    second = calls
    cache.write_bytes(b"PK\x03\x04 broken")
    await Classifier(few, embed).prepare(cache)
    assert calls > second


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        (r"\btranslat", "translat"),
        (r"\bsum (?:it |this )?up\b", "sum "),
        (r"\btl;? ?dr\b", ""),
        (r"\bplanner\b", "planner"),
        (r"\bprioriti[sz]e", "prioriti"),
        (r"\bcompan(?:y|ies)\b", "compan"),
        (r"\bfields?\b", "field"),
        (r"(?-i:[A-Z_]{3,})", ""),
        (r"\b(?:next|single) (?:step|move)s?\b", ""),
        (r"\bno more than \d+", "no more than "),
        (r"Read\b.{0,60}\bgives", "gives"),
        (r"abc|def", ""),
    ],
)
def test_what_a_pattern_cannot_do_without(pattern: str, needed: str) -> None:
    assert needed_text(pattern) == needed


def test_looking_for_it_first_changes_nothing() -> None:
    lexicon = Lexicon()
    for each in labelled("dev"):
        text = cue_of(each.request).text
        plain = {step: 0.0 for step, _, _ in lexicon._groups}
        for step, weight, patterns in lexicon._groups:
            plain[step] += weight * any(pattern.expression.search(text) for pattern in patterns)
        assert lexicon.evidence(text) == {step: sum_ for step, sum_ in plain.items() if sum_}
