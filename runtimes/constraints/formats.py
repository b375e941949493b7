"""JSON Schema's formats, where llguidance is content with more than validators are.

It takes 29 February of any year, a leap second in any minute, a host name of any length (JSON Schema's own test suite
and `jsonschema` do not). A narrower pattern takes the format's place: what an answer is held to is inside the format.
"""

from typing import Any, Final

from runtimes.constraints.schema import children

_DATE: Final = (
    r"(?:(?:[0-9]{4})-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
)
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
# RFC 1034: a label has 63 characters at most, a name 253. No two hyphens in a row: "xn--" would have to be punycode.
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9]|-[A-Za-z0-9]){0,30}"
_HOST: Final = rf"{_LABEL}(?:\.{_LABEL}){{0,2}}"
# RFC 5321: 64 characters before the @.
_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
_EMAIL: Final = rf"{_ATOM}(?:\.{_ATOM}){{0,2}}@{_HOST}"

_NARROW: Final = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "hostname": f"^{_HOST}$",
    "email": f"^{_EMAIL}$",
}


def narrow_formats(schema: Any) -> None:
    """Changes a schema in place. One that has a pattern beside its format keeps both as they are."""
    pending = [schema]
    while pending:
        part = pending.pop()
        if not isinstance(part, dict):
            continue
        pattern = _NARROW.get(part["format"]) if isinstance(part.get("format"), str) else None
        if pattern is not None and "pattern" not in part:
            del part["format"]
            part["pattern"] = pattern
        pending += [child for _, child in children(part)]
