"""Strings that remember who wrote each of their characters.

A prompt is the template's text mixed with the client's. Two questions need to know which is which: may this
`<|im_end|>` become a control token, and did every message reach the prompt? Markers in the text cannot answer them:
a template that trims, splits, measures or compares a message would see the markers. So a client's text is a `str`
whose operations carry its origin along, and a template cannot tell it from any other string.

A plain `str` is the template's own text. Operations that keep characters whole (slices, splits, joins, replacements,
concatenation, `%s`) keep their origins exactly; any other operation gives a result that is the client's as a whole,
which errs on the safe side. This module knows no template, no tokens and no messages.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self, SupportsIndex

UNKNOWN = -1  # offset of a run whose characters do not map one to one onto their source's


class Run(NamedTuple):
    """Neighbouring characters of one origin."""

    length: int
    sources: tuple[int, ...] | None  # None: the template's own; a number names a text the client sent
    offset: int  # of the first character within its only source, or UNKNOWN


class Traced(str):
    """A string that holds characters of the client: all of them, from no known source, when made without runs."""

    __slots__ = ("_runs",)
    _runs: tuple[Run, ...]

    def __new__(cls, text: str = "", runs: tuple[Run, ...] | None = None) -> Self:
        self = super().__new__(cls, text)
        self._runs = (Run(len(self), (), UNKNOWN),) if runs is None else runs
        return self

    def __str__(self) -> str:  # `str(x)` in compiled templates keeps the origin
        return self

    def __iter__(self) -> Iterator[str]:
        position = 0
        for run in self._runs:
            for step in range(run.length):
                yield Traced(str.__getitem__(self, position), (_part(run, step, step + 1),))
                position += 1

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        text = str.__getitem__(self, key)
        if isinstance(key, slice):
            start, _, step = key.indices(len(self))
            return cut(self, start, start + len(text)) if step == 1 else opaque(text, self)
        start = key.__index__()
        return cut(self, start % len(self), start % len(self) + 1)

    def __add__(self, other: str) -> str:
        return splice((self, other)) if isinstance(other, str) else str.__add__(self, other)

    def __radd__(self, other: str) -> str:
        return splice((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> str:
        return opaque(str.__mul__(self, count), self)

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> str:
        return _percent(self, values)

    def __rmod__(self, other: Any) -> str:
        return _percent(of_template(other), self) if isinstance(other, str) else NotImplemented

    def join(self, items: Iterable[str], /) -> str:
        pieces: list[str] = []
        for item in items:
            pieces += (self, item)
        return splice(pieces[1:])

    def strip(self, chars: str | None = None, /) -> str:
        start = len(self) - len(str.lstrip(self, chars))
        return cut(self, start, start + len(str.strip(self, chars)))

    def lstrip(self, chars: str | None = None, /) -> str:
        return cut(self, len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> str:
        return cut(self, 0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> str:
        return cut(self, len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> str:
        return cut(self, 0, len(str.removesuffix(self, suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return _located(self, str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return _located(self, str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:  # noqa: FBT001, FBT002 - the signature of `str`
        lines = _located(self, str.splitlines(self, keepends=True), "")
        return lines if keepends else [cut(line, 0, len(str.splitlines(line)[0])) for line in lines]

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        head, middle, tail = _located(self, list(str.partition(self, sep)), "")
        return head, middle, tail

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        head, middle, tail = _located(self, list(str.rpartition(self, sep)), "")
        return head, middle, tail

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        if not old:
            return opaque(str.replace(self, old, new, count), (self, new))
        parts = self.split(old, count)
        return of_template(new).join(parts)


def _whole(name: str) -> Callable[..., str]:
    method = getattr(str, name)

    def transformed(self: Traced, *args: Any, **kwargs: Any) -> str:
        return opaque(method(self, *args, **kwargs), (self, args))

    transformed.__name__ = name
    return transformed


for _name in ("capitalize", "casefold", "center", "expandtabs", "ljust", "lower", "rjust", "swapcase",
              "title", "translate", "upper", "zfill"):  # fmt: skip
    setattr(Traced, _name, _whole(_name))


def from_client(text: str, source: int) -> Traced:
    """Text the client sent, under a number of the caller's choice."""
    return Traced(text, (Run(len(text), (source,), 0),))


def of_template(text: str) -> Traced:
    """The same text with operations that carry origins. Only an exact `str` is the template's own: what other
    subclasses (jinja2's `Markup`) were made from is not known, so they are the client's."""
    if isinstance(text, Traced):
        return text
    return Traced(text, (Run(len(text), None, 0),) if type(text) is str else None)


def opaque(text: str, made_from: object) -> Traced:
    """A result whose characters cannot be told apart: all of it is the client's."""
    return Traced(text, (Run(len(text), tuple(sorted(sources_in(made_from))), UNKNOWN),))


def plain(text: str) -> str:
    """The characters alone."""
    return str.__str__(text)


def runs_of(text: str) -> tuple[Run, ...]:
    return of_template(text)._runs  # noqa: SLF001 - hidden from templates, not from this module


def splice(pieces: Iterable[str]) -> str:
    """Concatenation that keeps origins. The result is plain when every piece is."""
    pieces = list(pieces)
    text = "".join(pieces)
    if all(type(piece) is str for piece in pieces):
        return text
    runs: list[Run] = []
    for piece in pieces:
        for run in runs_of(piece):
            _append(runs, run)
    return Traced(text, tuple(runs))


def cut(text: str, start: int, stop: int) -> str:
    """`text[start:stop]` for 0 <= start, stop <= len(text)."""
    runs: list[Run] = []
    position = 0
    for run in runs_of(text):
        low, high = max(start - position, 0), min(stop - position, run.length)
        if low < high:
            runs.append(_part(run, low, high))
        position += run.length
        if position >= stop:
            break
    return Traced(str.__getitem__(text, slice(start, stop)), tuple(runs))


def holds_client_text(value: object) -> bool:
    """Whether a value may hold text of the client: anything but plain scalars and containers of them."""
    pending = [value]
    while pending:
        item = pending.pop()
        if type(item) in (str, int, float, bool, type(None)):
            continue
        if isinstance(item, Mapping):
            pending += (*item.keys(), *item.values())
        elif isinstance(item, (list, tuple)):
            pending += item
        else:
            return True
    return False


def sources_in(value: object) -> set[int]:
    """The sources of every string within nested containers."""
    found: set[int] = set()
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, Traced):
            for run in runs_of(item):
                found.update(run.sources or ())
        elif isinstance(item, Mapping):
            pending += (*item.keys(), *item.values())
        elif isinstance(item, (list, tuple)):
            pending += item
    return found


def _part(run: Run, low: int, high: int) -> Run:
    exact = run.sources is not None and run.offset != UNKNOWN
    return Run(high - low, run.sources, run.offset + low if exact else run.offset)


def _append(runs: list[Run], run: Run) -> None:
    """Adds a run; it is melted into the last one when that one goes on seamlessly."""
    if not run.length:
        return
    if runs and runs[-1].sources == run.sources:
        last = runs[-1]
        seam = last.offset + last.length if last.sources is not None and last.offset != UNKNOWN else last.offset
        if run.offset == seam:
            runs[-1] = Run(last.length + run.length, last.sources, last.offset)
            return
    runs.append(run)


def _located(text: Traced, parts: list[str], separator: str | None) -> list[str]:
    """Cuts `text` into the given parts, which stand in it in this order with `separator` (None: blanks) between."""
    found: list[str] = []
    position = 0
    for part in parts:
        start = str.find(text, part, position) if separator is None else position
        found.append(cut(text, start, start + len(part)))
        position = start + len(part) + len(separator or "")
    return found


_CONVERSION = re.compile(r"%(?:\(([^)]*)\))?s|%%")


def _percent(template: Traced, values: Any) -> str:
    """printf-style formatting: exact for `%s`, `%(name)s` and `%%`, the client's as a whole with any other."""
    text = str.__mod__(template, values)
    pieces: list[str] = []
    position = 0
    remaining = iter(values if isinstance(values, tuple) else (values,))
    for match in _CONVERSION.finditer(template):
        pieces.append(cut(template, position, match.start()))
        if match[0] == "%%":
            pieces.append(cut(template, match.start(), match.start() + 1))
        else:
            pieces.append(str(values[match[1]] if match[1] is not None else next(remaining, "")))
        position = match.end()
    pieces.append(cut(template, position, len(template)))
    result = splice(pieces)
    return result if result == text else opaque(text, (template, values))
