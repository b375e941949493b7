"""Numbers, dates and times in one form for all their spellings. Pure."""

import re
from decimal import Decimal, InvalidOperation
from typing import Final

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CURRENCIES: Final = {"$": "usd", "€": "eur", "£": "gbp", "¥": "jpy"}
_SCALES: Final = {"k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9}
_NUMBER: Final = re.compile(r"([-+]?)([$€£¥]?) ?((?:[\d,]+(?:\.\d+)?)|\.\d+) ?(%|st|nd|rd|th|[a-z]+)?$")

_WORDS: Final = {
    word: value
    for value, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
         "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
    )
} | {
    word: value * 10
    for value, word in enumerate(("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"), 2)
}  # fmt: skip
MULTIPLES: Final = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ORDINALS: Final = {
    word: value
    for value, word in enumerate(
        ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
         "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
         "twentieth"), 1
    )
}  # fmt: skip


# Short names of units, which behind a number are nothing else.
UNITS: Final = {
    short: unit
    for unit, shorts in (
        ("metre", "m meter meters"),
        ("kilometre", "km kilometer kilometers"),
        ("centimetre", "cm"),
        ("millimetre", "mm"),
        ("mile", "mi"),
        ("foot", "ft"),
        ("inch", "in"),
        ("yard", "yd"),
        ("kilogram", "kg"),
        ("gram", "g"),
        ("milligram", "mg"),
        ("pound", "lb lbs pounds"),
        ("ounce", "oz"),
        ("tonne", "t"),
        ("litre", "l liter liters"),
        ("millilitre", "ml"),
        ("teaspoon", "tsp"),
        ("tablespoon", "tbsp"),
        ("hour", "h hr hrs"),
        ("minute", "min mins"),
        ("second", "s sec secs"),
        ("millisecond", "ms"),
        ("gigabyte", "gb"),
        ("megabyte", "mb"),
        ("kilobyte", "kb"),
        ("terabyte", "tb"),
        ("mile per hour", "mph"),
        ("year", "yr yrs"),
        ("usd", "bucks dollar dollars"),
        ("eur", "euro euros"),
        ("gbp", "quid"),
    )
    for short in shorts.split()
}


def number_value(said: str) -> tuple[str, str]:
    """The number, and the unit that stood with it: "$1.5k" is ("1500", "usd"), "3rd" ("#3", "")."""
    match = _NUMBER.match(said.lower())
    if match is None:
        return said, ""
    sign, currency, digits, end = match.groups()
    digits = f"0{digits}" if digits.startswith(".") else digits
    value = Decimal(digits.replace(",", ""))
    if end in ("st", "nd", "rd", "th"):
        return f"#{value}", ""
    if end == "%":
        return f"{sign.strip('+')}{plain(value)}", "percent"
    if currency or end:
        return f"{sign.strip('+')}{plain(value * _SCALES.get(end or '', 1))}", _CURRENCIES.get(currency, "")
    return f"{sign.strip('+')}{digits.replace(',', '')}", ""  # Python 3.10 is not Python 3.1


def multiplied(number: str, multiple: str) -> str:
    """ "1.5" and "million" are "1500000"."""
    try:
        return plain(Decimal(number) * MULTIPLES[multiple])
    except InvalidOperation:  # "#3", or what no number is
        return f"{number} {multiple}"


def plain(value: Decimal) -> str:
    """Without an exponent, and without zeros that say nothing."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def spelt(words: list[str]) -> tuple[int, str]:
    """How many of the words are a number in words, and the number: 2 and "25" of ["twenty", "five", "cats"].

    A number in figures may stand first: ["2.5", "million"].
    """
    total, part, used = Decimal(0), None, 0
    for i, word in enumerate(words):
        if word in _WORDS and (part is None or part % 10 == 0):
            part = (part or Decimal(0)) + _WORDS[word]
        elif i == 0 and re.fullmatch(r"\d+(?:\.\d+)?", word):
            part = Decimal(word)
        elif word in MULTIPLES and (part is not None or (i == 0 and word != "hundred")):
            part = (part if part is not None else Decimal(1)) * MULTIPLES[word]
            if MULTIPLES[word] >= 1000:
                total, part = total + part, None
        elif word == "and" and used and i + 1 < len(words) and words[i - 1] in MULTIPLES and words[i + 1] in _WORDS:
            continue
        elif word in _ORDINALS and (part is None or part >= 20):
            return i + 1, f"#{plain(total + (part or 0) + _ORDINALS[word])}"
        else:
            break
        used = i + 1
    return (used, plain(total + (part or 0))) if used else (0, "")


def date_value(form: str, said: str) -> str:
    """Year, month and day with zeros, as far as they are said: "2024-03-05", "--03-05", "2024-03", "2024-q1"."""
    lowered = said.lower()
    if form == "iso":
        year, month, day = re.split(r"[-/.]", said)
        return f"{year}-{int(month):02}-{int(day):02}"
    if form == "quarter":
        return (
            "-".join(reversed(re.findall(r"[a-z]+\d?|\d+", lowered)))
            if lowered[0] in "qh"
            else lowered.replace(" ", "")
        )
    if form == "slashed":
        first, second, year = re.split(r"[/.-]", said)
        year = year if len(year) == 4 else f"20{year}"
        if int(first) > 12:
            return f"{year}-{int(second):02}-{int(first):02}"
        if int(second) > 12:
            return f"{year}-{int(first):02}-{int(second):02}"
        return f"{year}/{int(first)}/{int(second)}"  # whose first is the month, nobody can tell
    month = next(i for i, name in enumerate(MONTHS, 1) if re.search(rf"\b{name}", lowered))
    numbers = re.findall(r"\d+", lowered)
    years = [number for number in numbers if len(number) == 4]
    days = [int(number) for number in numbers if len(number) < 4]
    day = f"-{days[0]:02}" if days else ""
    return f"{years[0] if years else '-'}-{month:02}{day}"


def clock_value(said: str) -> str:
    """Hours and minutes of 24 hours: "3 pm" is "15:00". Without am or pm as it was said."""
    parts = [int(number) for number in re.findall(r"\d+", said)]
    hour, rest = parts[0], [*parts[1:], 0][:1]
    if "p" in said.lower() and hour < 12:
        hour += 12
    elif "a" in said.lower() and hour == 12:
        hour = 0
    return f"{hour:02}:{rest[0]:02}" + "".join(f":{second:02}" for second in parts[2:])
