"""Keeps text that a client sent from being read as the model's control tokens.

Pure; it knows the spelling of the tokens and the origin of each character (`provenance`), but no tokenizer.
"""

import re
from collections.abc import Iterable, Iterator

from runtimes.templates.provenance import Run, plain, runs_of
from runtimes.templates.result import Segment


class ControlTokens:
    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(text for text in texts if text)
        lengths: dict[str, set[int]] = {}
        for text in self._texts:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(found) for first, found in lengths.items()}
        # Two characters narrow the search down to few places, in C: of tags in a page, `</` when there is a `</s>`.
        starts = sorted({(text[0], text[1:2]) for text in self._texts})
        self._start = re.compile("|".join(f"{re.escape(a)}(?={re.escape(b)})" for a, b in starts) or r"(?!)")

    def segments(self, text: str) -> tuple[Segment, ...]:
        """The prompt cut so that no control token is spelled, wholly or in part, by the client.

        Of each occurrence, the characters that the client sent go into a segment where none is read; an occurrence
        that is the template's alone stays whole.
        """
        spelled = _merged(self._spelled_by_client(text))
        text = plain(text)
        segments: list[Segment] = []
        position = 0
        for start, stop in spelled:
            segments.append(Segment(text[position:start], parse_special=True))
            segments.append(Segment(text[start:stop], parse_special=False))
            position = stop
        segments.append(Segment(text[position:], parse_special=True))
        return tuple(segment for segment in segments if segment.text)

    def _spelled_by_client(self, text: str) -> Iterator[tuple[int, int]]:
        spans = list(_client_spans(runs_of(text)))
        text = plain(text)
        nearest = 0  # the first span that does not lie wholly before the match
        for match in self._start.finditer(text):
            start = match.start()
            while nearest < len(spans) and spans[nearest][1] <= start:
                nearest += 1
            for length in self._lengths[match[0]]:
                stop = start + length
                if text[start:stop] not in self._texts:
                    continue
                index = nearest
                while index < len(spans) and spans[index][0] < stop:
                    yield max(spans[index][0], start), min(spans[index][1], stop)
                    index += 1


def _client_spans(runs: Iterable[Run]) -> Iterator[tuple[int, int]]:
    position = 0
    for run in runs:
        if run.sources is not None:
            yield position, position + run.length
        position += run.length


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Overlapping and touching spans as one."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return merged
