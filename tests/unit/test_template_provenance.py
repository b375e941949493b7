"""Strings that remember their origin behave as any other string, and remember it rightly."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.templates.provenance import (
    UNKNOWN,
    Run,
    cut,
    from_client,
    holds_client_text,
    of_template,
    opaque,
    plain,
    runs_of,
    sources_in,
    splice,
)

ALPHABET = "ab <|\n\t\r\u2028é😀\0"
words = st.text(ALPHABET, max_size=12)
pieces = st.lists(st.tuples(words, st.booleans()), max_size=5)

# Operations on one string that keep characters whole, and so their exact origin.
EXACT: dict[str, Callable[[str], Any]] = {
    "slice": lambda s: s[1:-2],
    "index": lambda s: s[0] if s else s,
    "last": lambda s: s[-1] if s else s,
    "strip": lambda s: s.strip(),
    "strip chars": lambda s: s.strip("ab"),
    "lstrip": lambda s: s.lstrip(),
    "rstrip": lambda s: s.rstrip("\n "),
    "removeprefix": lambda s: s.removeprefix("a"),
    "removesuffix": lambda s: s.removesuffix("b"),
    "split": lambda s: s.split(),
    "split once": lambda s: s.split(None, 1),
    "split at": lambda s: s.split("<"),
    "rsplit": lambda s: s.rsplit(None, 1),
    "rsplit at": lambda s: s.rsplit("|", 2),
    "splitlines": lambda s: s.splitlines(),
    "splitlines with ends": lambda s: s.splitlines(keepends=True),
    "partition": lambda s: s.partition("|"),
    "rpartition": lambda s: s.rpartition("|"),
    "replace": lambda s: s.replace("a", "-"),
    "replace one": lambda s: s.replace("a", "-", 1),
    "remove": lambda s: s.replace(" ", ""),
    "join": lambda s: s.join(["x", "y", s]),
    "joined": lambda s: ", ".join([]) + s.join([s]),
    "iterate": list,
    "add": lambda s: s + "x" + s,
    "add before": lambda s: "x" + s,
    "percent": lambda s: of_template("%s and %s%%") % (s, s),
    "percent by name": lambda s: of_template("%(a)s %(b)s") % {"a": s, "b": "x"},
    "percent template": lambda s: (s.replace("%", "") + "%%%s!") % "x",
    "str": str,
}
WHOLE: dict[str, Callable[[str], Any]] = {
    "upper": lambda s: s.upper(),
    "title": lambda s: s.title(),
    "casefold": lambda s: s.casefold(),
    "center": lambda s: s.center(20, "."),
    "expandtabs": lambda s: s.expandtabs(3),
    "translate": lambda s: s.translate({97: "xy"}),
    "reverse": lambda s: s[::-1],
    "repeat": lambda s: s * 3,
    "repeat before": lambda s: 2 * s,
    "replace nothing": lambda s: s.replace("", "."),
    "pad": lambda s: of_template("%-20s|") % s,
}
PLAIN: dict[str, Callable[[str], Any]] = {
    "length": len,
    "contains": lambda s: "a" in s,
    "equal": lambda s: s == "ab",
    "hash": lambda s: {s: 1} == {plain(s): 1},
    "find": lambda s: s.find("|"),
    "starts": lambda s: s.startswith(("a", " ")),
    "json": json.dumps,
    "order": lambda s: sorted([s, "b"]),
}


def mixed(parts: list[tuple[str, bool]]) -> tuple[str, dict[int, str]]:
    """A string of template and client pieces, and the text of each source."""
    made: list[str] = []
    sources: dict[int, str] = {}
    for number, (text, is_client) in enumerate(parts):
        made.append(from_client(text, number) if is_client else text)
        sources[number] = text
    return of_template(splice(made)), sources


def strings_in(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [text for item in value for text in strings_in(item)]


def bare(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    return type(value)(map(bare, value)) if isinstance(value, (list, tuple)) else value


def check_runs(text: str, sources: dict[int, str]) -> None:
    position = 0
    for run in runs_of(text):
        if run.sources and run.offset != UNKNOWN:
            (source,) = run.sources
            assert text[position : position + run.length] == sources[source][run.offset : run.offset + run.length]
        position += run.length
    assert position == len(text)


@pytest.mark.parametrize("name", EXACT)
@given(parts=pieces)
def test_what_keeps_characters_keeps_their_exact_origin(name: str, parts: list[tuple[str, bool]]) -> None:
    text, sources = mixed(parts)
    result = EXACT[name](text)
    assert bare(result) == EXACT[name](plain(text))
    for made in strings_in(result):
        check_runs(made, sources)
        assert all(run.offset != UNKNOWN for run in runs_of(made))


@pytest.mark.parametrize("name", WHOLE)
@given(parts=pieces)
def test_what_transforms_characters_makes_all_of_them_the_clients(name: str, parts: list[tuple[str, bool]]) -> None:
    text, _ = mixed(parts)
    result = WHOLE[name](text)
    assert bare(result) == WHOLE[name](plain(text))
    assert all(run.sources is not None for run in runs_of(result))
    assert sources_in(result) == sources_in(text)


@pytest.mark.parametrize("name", PLAIN)
@given(parts=pieces)
def test_what_looks_at_a_string_sees_no_difference(name: str, parts: list[tuple[str, bool]]) -> None:
    text, _ = mixed(parts)
    assert bare(PLAIN[name](text)) == PLAIN[name](plain(text))


def test_a_plain_format_string_with_client_text_on_its_right_knows_it() -> None:
    assert runs_of("<%s>" % from_client("x", 0)) == (Run(1, None, 0), Run(1, (0,), 0), Run(1, None, 0))  # noqa: UP031 - the operator is what is tested


def test_neighbours_of_one_origin_melt_into_one_run() -> None:
    text = from_client("hello", 7)
    assert runs_of(splice((text[:2], text[2:], "a", "b"))) == (Run(5, (7,), 0), Run(2, None, 0))
    assert runs_of(splice((text[2:], text[:2]))) == (Run(3, (7,), 2), Run(2, (7,), 0))


def test_pieces_of_the_template_alone_stay_plain() -> None:
    assert type(splice(("a", "b"))) is str


def test_another_kind_of_string_is_the_clients() -> None:
    class Foreign(str):
        __slots__ = ()

    assert runs_of(splice((Foreign("x"), "y"))) == (Run(1, (), UNKNOWN), Run(1, None, 0))


def test_adding_what_is_no_string_fails_as_with_any_string() -> None:
    with pytest.raises(TypeError):
        from_client("a", 0) + None  # type: ignore[operator] # what a template may do
    with pytest.raises(TypeError):
        None + from_client("a", 0)  # type: ignore[operator] # what a template may do


def test_client_text_is_found_inside_containers() -> None:
    traced = from_client("x", 3)
    assert holds_client_text({"a": [1, ("b", traced)]})
    assert holds_client_text({traced: 1})
    assert holds_client_text(iter(["hidden"]))
    assert not holds_client_text({"a": [1, 2.0, None, True, ("b",)]})
    assert sources_in({"a": [1, ("b", traced)], from_client("y", 4): 1}) == {3, 4}


def test_an_opaque_string_names_all_it_was_made_from() -> None:
    made = opaque("whatever", [from_client("x", 3), {"k": from_client("y", 1)}])
    assert runs_of(made) == (Run(8, (1, 3), UNKNOWN),)


def test_a_cut_through_several_runs_keeps_each_part() -> None:
    text = splice(("ab", from_client("cdef", 0), "gh"))
    assert runs_of(cut(text, 1, 7)) == (Run(1, None, 0), Run(4, (0,), 0), Run(1, None, 0))
    assert runs_of(cut(text, 3, 5)) == (Run(2, (0,), 1),)
