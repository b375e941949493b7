"""Reading raw ASGI headers: pairs of bytes, names in lower case. Knows no header's meaning."""

from collections.abc import Iterable

Headers = Iterable[tuple[bytes, bytes]]


def values(headers: Headers, name: bytes) -> list[str]:
    """Every value of the header, in order. `name` is in lower case.

    Latin-1, as HTTP has it, so that any byte can be decoded.
    """
    return [value.decode("latin-1").strip() for key, value in headers if key == name]
