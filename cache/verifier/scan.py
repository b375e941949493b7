"""A text as pieces: words, numbers, dates, times, literals. Pure.

A literal is what must be the same to the letter: quoted text, code, paths, identifiers, versions, addresses.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from cache.verifier.quantities import clock_value, date_value, number_value
from cache.verifier.stems import stem

Kind = Literal["word", "number", "date", "literal", "break"]


@dataclass(frozen=True, slots=True)
class Piece:
    kind: Kind
    value: str  # of a word in lower case; of a number, a date or a time in one form for all spellings
    is_name: bool = False  # a capital letter where a common word has none
    is_title: bool = False  # capitals only, in a text that has others: "vitamin A"


_MONTH: Final = (
    r"(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY: Final = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"
_YEAR: Final = r"(?:1[0-9]|20|21)\d\d"
# Words that have a digit in them and are no identifiers.
_WORDS_WITH_DIGITS: Final = (
    "2fa|mfa2|3d|2d|4k|5g|4g|k8s|i18n|l10n|a11y|b2b|b2c|p2p|s3|ec2|mp3|mp4|co2|401k|web3|h2o|gpt4|o365"
)

# "GitHub", "Node.js"
_PRODUCT: Final = r"[A-Z][A-Za-z]*[a-z][A-Z][A-Za-z]*|[ie][A-Z][a-z]+|macOS|[A-Z]?[a-z]+\.(?:js|io|ai|net|com|org)"
_OPERATOR: Final = (
    r"\b[A-Za-z][+#]{1,2}(?!\w)|[<>=!]=|->|=>|::|&&|\|\||(?<=\s)[<>=*^|/](?=\s)|[{}\[\]<>=^|\\*]+"  # "C++" is one
    r"|(?<=\d) ?[*/^x+](?= ?\d)"
)
_IDENTIFIER: Final = (
    r"\$\{?[A-Za-z_]\w*\}?|@\w[\w/.-]*|#[A-Za-z]\w*|\b[A-Za-z0-9]*_\w+|\b[a-z]+[a-z0-9]*[A-Z]\w*"
    r"|\b(?:[A-Z][a-z0-9]+){2,}\b|\b[A-Za-z][\w-]*(?:\.[A-Za-z][\w-]+)+\b|(?<!\w)\.[a-z][a-z0-9]{1,5}\b"
    r"|\b[A-Z]{2,}-\d+\b|\b[A-Za-z]+-?\d[\w-]*"
)
_NUMBER: Final = (
    r"(?<![\w.])[-+]?(?:[$€£¥] ?)?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)"
    r"(?: ?%|(?:st|nd|rd|th)\b| ?[kK]\b(?!\w)|(?:mn|bn|[mMbB])\b)?"
)

# The first that matches at a place wins.
_PIECE: Final = re.compile(
    "|".join(
        f"(?P<{name}>{pattern})"
        for name, pattern in (
            ("fence", r"```(?s:.*?)(?:```|\Z)"),
            ("tick", r"`[^`\n]+`"),
            ("quote", r'"[^"\n]{1,4000}"' + r"|(?<!\w)'[^'\n]{1,4000}'(?!\w)|«[^»]+»"),
            ("url", r"\b(?:https?://|www\.)[^\s<>\"']*[^\s<>\"'.,;:!?)]"),
            ("email", r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+"),
            ("iso", r"\b(?:1\d|20|21)\d\d[-/.](?:0?[1-9]|1[0-2])[-/.](?:0?[1-9]|[12]\d|3[01])\b"),
            ("dmy", rf"\b(?:the )?{_DAY} (?:of )?{_MONTH}(?:,? {_YEAR})?(?!\w)"),
            ("mdy", rf"\b{_MONTH} (?:the )?{_DAY}(?:,? {_YEAR})?(?![\w%:])"),
            ("my", rf"\b{_MONTH}(?: of)?,? {_YEAR}\b"),
            ("slashed", r"\b\d{1,2}[/.-]\d{1,2}[/.-](?:\d{4}|\d\d)\b"),
            ("clock", r"\b\d{1,2}(?::\d\d){1,2}(?: ?[aApP]\.?[mM]\b\.?)?|\b\d{1,2} ?[aApP]\.?[mM]\b"),
            ("quarter", rf"\b[Qq][1-4](?:[ -]?{_YEAR})?\b|\b[Ff][Yy] ?\d\d(?:\d\d)?\b|\b[Hh][12] {_YEAR}\b"),
            ("flag", r"(?<![\w-])--?[A-Za-z][\w-]*(?:=[^\s,;]+)?"),
            ("path", r"(?<![\w/])(?:~|\.{1,2})?/[\w.~*-][\w./~*-]*|\b[A-Za-z]:\\\S+|\b\w[\w.-]*/[\w./-]*\.\w+\b"),
            ("version", r"\bv?\d+(?:\.\d+){2,}[\w.-]*\b|\bv\d+(?:\.\d+)*\b"),
            ("call", r"\b[A-Za-z_][\w.]*\([^()\n]{0,80}\)"),
            ("name", rf"\b(?:{_PRODUCT})\b(?![\w(]|\.\w)"),
            ("spelt", rf"\b(?i:{_WORDS_WITH_DIGITS})\b"),
            ("operator", _OPERATOR),
            ("identifier", _IDENTIFIER),
            ("mixed", r"\b0x[0-9A-Fa-f]+\b|\b\d+[A-Za-z]+\d\w*\b"),
            ("number", _NUMBER),
            ("word", r"[^\W\d_]+(?:['-][^\W\d_]+)*"),
            ("break", r"[,;:.?!()\n]+|[\u2013\u2014-]+"),
            ("rest", r"[^\s\w]+|\w"),  # nothing is passed over but blanks
        )
    )
)  # fmt: skip
_LITERALS: Final = frozenset(
    (
        "fence",
        "tick",
        "quote",
        "url",
        "email",
        "flag",
        "path",
        "version",
        "call",
        "operator",
        "identifier",
        "mixed",
        "rest",
    )
)
_DATES: Final = frozenset(("iso", "dmy", "mdy", "my", "slashed", "quarter"))

_SPELLINGS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), meant)
    for pattern, meant in (
        (r"\bcan'?t\b|\bcannot\b", "can not"),
        (r"\bwon't\b", "will not"),
        (r"\bshan't\b", "shall not"),
        (r"\b(do|does|did|is|are|was|were|has|have|had|should|would|could|must|need|might)n'?t\b", r"\1 not"),
        (r"\b(what|who|where|when|how|why|that|there|here|it|he|she)'s\b", r"\1 is"),
        (r"\b(what|how|where|who)s\b", r"\1 is"),
        (r"\blet's\b", "let us"),
        (r"\bi'm\b", "i am"),
        (r"\b(i|you|we|they)'ve\b", r"\1 have"),
        (r"\b(i|you|we|they|he|she|it|what|who|how)'d\b", r"\1 would"),
        (r"\b(i|you|we|they|he|she|it|what|who|that)'ll\b", r"\1 will"),
        (r"\b(you|we|they|what|who)'re\b", r"\1 are"),
        (r"\b(long|much|many|often|what|who|where|how|why|could|should|would|must)'ve\b", r"\1 have"),
        (r"\b(where|why|when)'d\b", r"\1 did"),
        (r"\bgonna\b", "going to"),
        (r"\bwanna\b", "want to"),
        (r"\bpl[sz]s?\b", "please"),
        (r"\bhow ?2\b", "how to"),
        (r"\bthx\b|\bty\b", "thanks"),
        (r"\bw/o\b", "without"),
        (r"\bw/ ?(?=\w)", "with "),
        (r"\bvs\b\.?(?! code\b)|(?<= )v\.(?= )", "versus"),
        (r"\be\.g\.,?", "for example"),
        (r"\bi\.e\.,?", "that is"),
        (r"\b([a-z])\.([a-z])\.(?:([a-z])\.)?(?!\w)", r"\1\2\3"),
        (r"(?<=\w) ?& ?(?=\w)", " and "),
        (r"(?<=\d) ?per ?cent\b", "%"),
        (r"\b(a|an|the|in the|my) us\b", r"\1 usa"),
    )
)
_QUOTES: Final = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e", '"'),
        "\u2026": "...",
        "\u00a0": " ",
        "\u2212": "-",
    }
)
_US: Final = re.compile(r"\bU\.?S\.?(?=[\s?!,')]|\.?$)")  # in capitals: else it is the pronoun
_INITIAL: Final = re.compile(r"\b([A-Z])\.(?= ?[A-Z])")  # of a name
_MEANT: Final = {"WHO": "World Health Organization", "IT": "information technology"}
_INITIALS: Final = re.compile(r"\b(?:WHO|IT)\b")  # in small letters they are other words
_LOUD: Final = frozenset(
    ("NOT", "ONLY", "ALL", "AND", "OR", "NO", "NEVER", "MUST", "ANY", "EVERY", "EACH", "BOTH", "THE", "THIS")
)
_PAIR: Final = 2
_OF_TWO: Final = frozenset(
    ("am", "an", "as", "at", "be", "by", "do", "go", "he", "hi", "if", "in", "is", "it", "me", "my", "no", "of", "oh",
     "ok", "on", "or", "so", "to", "up", "us", "we")
)  # fmt: skip
_POSSESSIVE: Final = re.compile(r"'s?$")


def pieces(text: str) -> list[Piece]:
    """Of a whole text, in order."""
    return list(_scanned(text))


@functools.lru_cache(64)  # two texts are looked at from many sides
def _scanned(text: str) -> tuple[Piece, ...]:
    text = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    if not text.isupper():
        text = _INITIALS.sub(lambda match: _MEANT[match.group()], text)
    text = _INITIAL.sub(r"\1", _US.sub("USA", text))
    for pattern, meant in _SPELLINGS:
        text = pattern.sub(meant, text)
    found: list[Piece] = []
    begins = True
    for match in _PIECE.finditer(text):
        name, said = match.lastgroup or "", match.group()
        found.extend(_pieces(name, said, begins=begins))
        begins = name == "break" and bool(set(said) & set(".?!\n:"))
    if text.upper() == text or text.istitle():
        found = [replace(piece, is_title=False) for piece in found]
    return tuple(found)


def _pieces(name: str, said: str, *, begins: bool) -> Iterator[Piece]:
    if name in _LITERALS:
        yield Piece("literal", _literal(name, said))
    elif name in _DATES:
        yield Piece("date", date_value(name, said))
    elif name == "clock":
        yield Piece("date", clock_value(said))
    elif name == "number":
        value, unit = number_value(said)
        yield Piece("number", value)
        if unit:
            yield Piece("word", unit)
    elif name == "name":
        yield Piece("word", said.lower(), is_name=True)
    elif name == "break":
        yield Piece("break", said.strip() or "\n")
    else:
        yield from _words(said, begins=begins)


def _literal(name: str, said: str) -> str:
    if name == "fence":
        return "`" + " ".join(said.removeprefix("```").removesuffix("```").split())
    if name in ("tick", "quote"):
        mark = said[0] if "$" in said or "\\" in said else "`"  # to a shell they are not alike
        return mark + " ".join(said[1:-1].split()).rstrip(".,")
    if name == "operator" and said[0].isalpha():
        return said.upper()  # "C#"
    return said.strip().rstrip("/") if name == "url" else said.strip()


def _words(said: str, *, begins: bool) -> Iterator[Piece]:
    """A hyphen joins what some write as two words; a possessive is a word of its own."""
    owner = _POSSESSIVE.search(said)
    plain = said[: owner.start()] if owner else said
    parts = plain.split("-")
    for i, part in enumerate(parts):
        if (
            len(part) == _PAIR
            and part[0].isupper()
            and part[1].islower()
            and not begins
            and part.lower() not in _OF_TWO
        ):
            yield Piece("literal", part)  # "Aa" is not "aa"
            continue
        capital = part[:1].isupper() and (part[1:].islower() or len(part) == 1 or part.isupper())
        is_name = capital and not (begins and i == 0) and part != "I"
        if part:
            yield Piece("word", part.lower(), is_name, is_title=is_name and part.isupper() and part not in _LOUD)
    if owner and owner.group() == "'s":
        yield Piece("word", "'s")


def stems_of(found: Sequence[Piece]) -> list[str]:
    """Of words; "" for all else."""
    return [stem(piece.value) if piece.kind == "word" else "" for piece in found]
