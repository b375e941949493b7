"""The verifier on pairs of its own, one kind of difference at a time, and on what is made to break it."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache.verifier.lexicon import load
from cache.verifier.scan import pieces
from cache.verifier.verdict import Verifier

PAIRS = Path(__file__).parents[1] / "bench" / "cache" / "pairs.jsonl"
ALIKE = 0.95  # a similarity that would let all of them pass
SURE = 0.9
LEXICON = load()


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    return Verifier(LEXICON)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("How do I enable 2FA?", "how can I turn on two-factor authentication"),
        ("What's the capital of France?", "Hi! Could you please tell me France's capital? Thanks."),
        ("List the orders above $1,000 since March 5, 2024", "list the orders above 1000 dollars since 2024-03-05"),
        ("Compare Postgres and MySQL", "Compare MySQL and PostgreSQL"),
        ("In Python, how do I sort a list?", "How do I sort a list in Python?"),
        ("What is the GDP of Norway?", "What is the gross domestic product of Norway?"),
        ("Sum up this text:\nThe cat sat.", "Summarize the following text: The cat sat."),
        ("Which countries are not members?", "Which countries aren't members?"),
        ("How do I stop my cat from scratching the sofa?", "How do I make sure my cat doesn't scratch the sofa?"),
        ("Show the unpaid invoices", "Show the invoices that have not been paid"),
        ("What are some sugar-free desserts?", "What are some desserts without sugar?"),
        ("Why won't my car start?", "Why will my car not start?"),
        ("Which items are returnable?", "Which items can be returned?"),
        (
            "If I'm self-employed in the US, which expenses can I deduct?",
            "Which expenses can I deduct in the US if I'm self-employed?",
        ),
        ("I have eggs and feta. What can I make for dinner?", "What can I make for dinner? I have feta and eggs."),
        ("How are bond prices affected by a rise in rates?", "How does a rise in rates affect bond prices?"),
        ("How high is Mont Blanc in metres?", "What is the height of Mont Blanc in metres?"),
        ("Who wrote the novel Middlemarch?", "Name the writer of the novel Middlemarch."),
        (
            "How does a Roth IRA differ from a traditional IRA?",
            "Explain the difference between a Roth IRA and a traditional IRA.",
        ),
        ("The module requires which Python version?", "Which Python version does the module require?"),
        ("Is there any way to recover a deleted chat? If so, how?", "How can I recover a deleted chat?"),
        ("Reset the password for user jdoe.", "Good afternoon! Reset the password for user jdoe. Thanks a million!"),
        ("Please tell me: what is the capital of France?", "What is the capital of France?"),
        (
            "Extract the invoice date from the text below.\nInvoice 2207 issued 14 March 2024 to Harlow Ltd.",
            "Invoice 2207 issued 14 March 2024 to Harlow Ltd.\nPull the invoice date out of the text above.",
        ),
        ("Easy recipe for vegetarian lasagna with spinach", "Easy recipie for vegitarian lasanga with spinich"),
    ],
)
def test_the_same_in_other_words_is_the_same(verifier: Verifier, a: str, b: str) -> None:
    verdict = verifier.verdict(a, b, 0.8)
    assert (verdict.guards, verdict.score >= SURE) == ((), True)
    assert verifier.verdict(b, a, 0.8).score >= SURE


@pytest.mark.parametrize(
    ("guard", "a", "b"),
    [
        ("polarity", "Which cities have an airport?", "Which cities have no airport?"),
        ("antonym", "How do I enable logging?", "How do I disable logging?"),
        ("sibling", "What is the mean of 1, 2 and 6?", "What is the median of 1, 2 and 6?"),
        ("number", "Convert 10 USD to EUR", "Convert 100 USD to EUR"),
        ("number", "What is new in Python 3.1?", "What is new in Python 3.10?"),
        ("date", "What happened on 5 March 2023?", "What happened on March 5, 2024?"),
        ("entity", "What is the capital of Norway?", "What is the capital of Sweden?"),
        ("roles", "Did Alice pay Bob?", "Did Bob pay Alice?"),
        ("roles", "Convert USD to EUR", "Convert EUR to USD"),
        ("roles", "It is 3 pm in London; what time is it in Tokyo?", "It is 3 pm in Tokyo; what time is it in London?"),
        ("quantifier", "Delete the first line", "Delete the last line"),
        ("literal", "What does `git reset --hard` do?", "What does `git reset --soft` do?"),
        ("literal", "How do I fix error 0x80070005?", "How do I fix error 0x80070002?"),
        ("material", "Fix the grammar: He go home.", "Fix the grammar: He goes home."),
        ("constraint", "Explain gravity", "Explain gravity to a child"),
        ("modality", "Should I pay the fee?", "Must I pay the fee?"),
        ("relation", "Show the orders before Easter", "Show the orders after Easter"),
        ("question", "Why is the sky blue?", "When is the sky blue?"),
        ("relation", "Why do so many drivers stop to text?", "Why do so many drivers stop texting?"),
        ("modality", "Does a will have to be notarized in Texas?", "Can a will be notarized in Texas?"),
        ("wording", "How do you spell definitely?", "How do you spell definately?"),
        ("wording", "What is the plural of child?", "What is the plural of children?"),
        ("wording", "He go home. Fix the grammar of this sentence.", "He goes home. Fix the grammar of this sentence."),
        ("quantifier", "Find who passed every exam. SQL please.", "Find who passed any exam. SQL please."),
        ("language", "Wie heißt die Hauptstadt von Österreich?", "Wie groß ist die Hauptstadt von Österreich?"),
        ("language", "Wie alt ist der Mann?", "Wie alt ist denn der Mann?"),
        ("language", "Quelle est la capitale du Canada", "Quelle est la capitale canadienne"),
        ("language", "Cuando nieva en Madrid", "Cuando es que nieva en Madrid"),
        ("language", "Hoe oud is het huis", "Hoe oud is dat huis"),
        ("language", "日本の首都はどこですか", "日本の首都はどこか"),
    ],
)
def test_each_guard_sees_its_kind_of_difference(verifier: Verifier, guard: str, a: str, b: str) -> None:
    assert guard in verifier.verdict(a, b, ALIKE).guards
    assert guard in verifier.verdict(b, a, ALIKE).guards


def test_no_pair_that_was_made_to_deceive_gets_the_others_answer(verifier: Verifier) -> None:
    """Whatever their similarity. The held-out ones are in `tests.bench.cache.verifying`, with the real one."""
    rows = map(json.loads, PAIRS.read_text(encoding="utf-8").splitlines())
    wrong = [
        (row["a"], row["b"])
        for row in rows
        if row["split"] == "dev" and not row["hit"] and verifier.verdict(row["a"], row["b"], ALIKE).score >= SURE
    ]
    assert wrong == []


@given(st.text(max_size=80), st.text(max_size=80))
@settings(max_examples=150, deadline=None)
def test_it_has_a_word_on_any_two_texts_and_the_same_both_ways(a: str, b: str) -> None:
    verifier = Verifier(LEXICON)
    verdict, other = verifier.verdict(a, b, ALIKE), verifier.verdict(b, a, ALIKE)
    assert 0 <= verdict.judge <= 1
    assert (verdict.score >= SURE) == (other.score >= SURE)


@given(st.text(st.characters(codec="ascii", exclude_characters="-'.,;:!?()\n\r"), max_size=60))
@settings(max_examples=200, deadline=None)
def test_no_letter_of_a_text_is_passed_over(text: str) -> None:
    told = "".join(piece.value for piece in pieces(text))
    assert sum(character.isdigit() for character in text) == 0 or told != ""
    assert not text.split() or told


@pytest.mark.parametrize("unit", ["a\n", "a.", "1,", "a/", "u.s.", "a(", "'", "x: ", "not ", "a and ", "q1 "])
@pytest.mark.timeout(20)
def test_a_text_made_to_keep_it_busy_does_not(verifier: Verifier, unit: str) -> None:
    text = unit * (1200 // len(unit))
    verifier.verdict(text, text[:-1] + "z", ALIKE)


def test_no_two_words_are_alike_and_opposite() -> None:
    for pairs in (LEXICON.opposites, LEXICON.siblings):
        both = [pair for pair in pairs if len(pair) == 2 and frozenset.intersection(*map(_groups, pair))]
        assert both == []


def _groups(phrase: tuple[str, ...]) -> frozenset[int]:
    return LEXICON.groups.get(phrase, frozenset())
