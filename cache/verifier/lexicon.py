"""What the verifier knows of English: words that mean the same, words that must not be confused, words of form."""

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from cache.verifier.stems import stem

FOLDER: Final = Path(__file__).parent
_OF_FORM: Final = ("empty", "weak", "strong", "negation", "quantifier", "modal", "other_person")
PARTICLES: Final = frozenset(("on", "off", "up", "out", "down", "in", "back", "away", "over", "apart"))

Phrase = tuple[str, ...]  # stems


class Phrases:
    """The longest of some phrases that begins at a place."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        self._phrases = frozenset(filter(None, phrases))
        lengths: dict[str, set[int]] = {}
        for phrase in self._phrases:
            lengths.setdefault(phrase[0], set()).add(len(phrase))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    def at(self, words: list[str], place: int) -> int:
        """How many words it has; 0 for none."""
        for length in self._lengths.get(words[place], ()) if place < len(words) else ():
            if place + length <= len(words) and tuple(words[place : place + length]) in self._phrases:
                return length
        return 0


@dataclass(frozen=True, slots=True)
class Lexicon:
    groups: dict[Phrase, frozenset[int]]  # of phrases that mean the same
    phrases: Phrases  # of these, the ones with several words
    separable: dict[tuple[str, str], Phrase]  # verb and particle, which other words may part
    opposites: frozenset[frozenset[Phrase]]
    siblings: frozenset[frozenset[Phrase]]
    polite: Phrases
    pointers: Phrases  # at a text that comes with the request
    measures: dict[str, str]  # the form "how high", by the stem of "tall"
    measured: dict[str, str]  # and by that of "height"
    doers: dict[str, str]  # "write" by "writer", both as stems
    frames: dict[Phrase, str]
    frame_phrases: Phrases
    words: dict[str, frozenset[str]]  # stems, by what they do
    form: dict[str, frozenset[str]]  # words of form, as they are written, by what they do
    common: frozenset[str]  # words of form, as they are written
    of_words: Phrases  # that are said of words, as they are written
    foreign: frozenset[str]  # and those of other languages that are no English words

    def is_known(self, word: str) -> bool:
        return (word,) in self.groups or any(word in words for words in self.words.values())


def load() -> Lexicon:
    grammar = _read("grammar.toml")
    same = [*grammar["same"], *_read("synonyms.toml")["same"], *_read("aliases.toml")["alias"]]
    groups: dict[Phrase, set[int]] = {}
    for number, group in enumerate(same):
        for member in group:
            groups.setdefault(_phrase(member), set()).add(number)
    frames = {_phrase(text): frame for frame, texts in grammar["frames"].items() for text in texts}
    classes = (
        *_OF_FORM,
        "constraint",
        "material",
        "courteous",
        "label",
        "makes",
        "transforms",
        "chatter",
        "greeting",
        "marks",
        "composes",
        "getting",
        "remaking",
        "composing",
        "faults",
        "mending",
        "sorts",
    )
    return Lexicon(
        groups={phrase: frozenset(numbers) for phrase, numbers in groups.items()},
        phrases=Phrases(phrase for phrase in groups if len(phrase) > 1),
        separable={(p[0], p[1]): p for p in groups if len(p) == 2 and p[1] in PARTICLES},
        opposites=_pairs(_read("antonyms.toml")["opposite"]),
        siblings=_pairs(_read("related.toml")["different"]),
        polite=Phrases(map(_phrase, grammar["polite"])),
        pointers=Phrases(map(_phrase, grammar["pointers"])),
        measures={stem(word): f"how_{form}" for word, form in grammar["measures"].items()},
        measured={stem(word): f"how_{form}" for word, form in grammar["measured"].items()},
        doers={stem(doer): stem(deed) for doer, deed in grammar["doers"].items()},
        frames=frames,
        frame_phrases=Phrases(frames),
        common=frozenset(
            word
            for texts in (*(grammar[name] for name in _OF_FORM), *grammar["frames"].values())
            for text in texts
            for word in _exact(text)
            if len(word) > 2
        ),
        of_words=Phrases(map(_exact, grammar["of_words"])),
        foreign=frozenset(grammar["foreign"]),
        form={name: frozenset(grammar[name]) for name in _OF_FORM},
        words={name: frozenset(map(stem if name != "modal" else str, grammar[name])) for name in classes},
    )


def _pairs(groups: Iterable[list[str]]) -> frozenset[frozenset[Phrase]]:
    return frozenset(frozenset(pair) for group in groups for pair in combinations(sorted(set(map(_phrase, group))), 2))


def _phrase(text: str) -> Phrase:
    return tuple(stem(word) for word in _exact(text))


def _exact(text: str) -> Phrase:
    return tuple(_split(text))


def _split(text: str) -> Iterator[str]:
    yield from text.lower().replace("-", " ").split()


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))
