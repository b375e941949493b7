"""A decoded JSON body into a pydantic model, or into one error that names the field.

Knows no endpoint and no field. pydantic reports every problem in its own words and with the union branches it
tried; a client gets the first problem, in a sentence about the field, with a path as OpenAI writes it.
"""

import json
from collections.abc import Callable
from difflib import get_close_matches
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from appliance.errors import InvalidRequest

_SHOWN_CHARACTERS = 64  # of a client's own text in a message or a path
_BRANCH = "\0branch:"  # union tags start with it, so that a path can leave them out; no client names a field so


def shown(text: str) -> str:
    """A client's text, short and safe to encode: it may be megabytes long or hold lone surrogates."""
    if len(text) > _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "…"
    return text.encode(errors="backslashreplace").decode()


def kind(value: object) -> str:
    """A JSON value in words, for "must be a string, not …"."""
    match value:
        case None | bool() | float():
            return json.dumps(value)
        case int():
            # str() of an int refuses more than 4,300 digits, and nobody reads twenty.
            return str(value) if abs(value) < 10**18 else "an integer of more than 18 digits"
        case str():
            return f"'{shown(value)}'"
        case list():
            return "an array"
        case _:
            return "an object"


def refuse(predicate: str, at: str | None = None) -> PydanticCustomError:
    """For validators: what is wrong ("must be …") with the field, or with its member `at`."""
    return PydanticCustomError("refused", "{predicate}", _context(predicate, at))


def _context(predicate: str, at: str | None) -> dict[str, Any]:
    return {"predicate": predicate} if at is None else {"predicate": predicate, "at": shown(at)}


class _Branching(Discriminator):
    """Hashable by identity: `X | None` hashes X, and a discriminator's error context is a dict."""

    __slots__ = ()
    __hash__ = object.__hash__


def branch_by(choose: Callable[[Any], str | None], predicate: str, at: str | None = None) -> Discriminator:
    """Chooses the member of a union, tagged with `branch(name)`, by name; `predicate` when none fits."""

    def tag(value: Any) -> str | None:
        name = choose(value)
        return None if name is None else branch(name)

    return _Branching(
        tag,
        custom_error_type="refused",
        custom_error_message="{predicate}",
        custom_error_context=_context(predicate, at),
    )


def branch(name: str) -> str:
    return _BRANCH + name


def is_encodable(text: str) -> bool:
    """JSON can spell half of a surrogate pair; it is no character, and no encoder downstream takes it."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encodable(text: str) -> str:
    if not is_encodable(text):
        raise refuse("holds half a surrogate pair, which is not text.")
    return text


Text = Annotated[str, AfterValidator(_encodable)]


class Body(BaseModel):
    """Strict: no conversion, no unknown field, no infinity (which JSON writes as 1e999)."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _only_known_fields(cls, data: Any) -> Any:
        """Like extra="forbid", and the message can name the field that was meant."""
        known = {field.alias or name for name, field in cls.__pydantic_fields__.items()}
        if isinstance(data, dict) and not data.keys() <= known:
            name = next(name for name in data if name not in known)
            near = get_close_matches(str(name)[:_SHOWN_CHARACTERS], known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise refuse(f"is not a known field.{hint}", at=name)
        return data


_BodyT = TypeVar("_BodyT", bound=Body)


def validated(model: type[_BodyT], body: object) -> _BodyT:
    """`body` as `model`. Raises `InvalidRequest` for the first problem."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise _invalid(error.errors(include_url=False)[0]) from None


# Said of a field: "'n' must be an integer, not '2'." By pydantic's names of problems, with what it tells of each.
_PREDICATES: Final[dict[str, str]] = {
    "refused": "{predicate}",
    "missing": "is required.",
    "string_type": "must be a string, not {kind}.",
    "bool_type": "must be true or false, not {kind}.",
    "int_type": "must be an integer, not {kind}.",
    "float_type": "must be a number, not {kind}.",
    "finite_number": "must be a finite number.",
    "list_type": "must be an array, not {kind}.",
    "dict_type": "must be an object, not {kind}.",
    "model_type": "must be an object, not {kind}.",
    "literal_error": "must be {expected}, not {kind}.",
    "greater_than_equal": "must be at least {ge}, not {kind}.",
    "less_than_equal": "must be at most {le}, not {kind}.",
    "string_unicode": "holds half a surrogate pair, which is not text.",
    "string_too_short": "must not be empty.",
    "string_too_long": "must be at most {max_length} characters long, not {length}.",
    "too_short": "must not be empty.",
    "too_long": "must have at most {max_length} items, not {length}.",
}


def _invalid(problem: ErrorDetails) -> InvalidRequest:
    told: dict[str, Any] = {
        name: f"{value:g}" if isinstance(value, float) else value for name, value in problem.get("ctx", {}).items()
    }
    value = problem["input"]
    length = len(value) if isinstance(value, str | list | dict) else 0
    kind_of_problem = problem["type"]
    if isinstance(value, str) and kind_of_problem in ("too_long", "too_short"):
        kind_of_problem = f"string_{kind_of_problem}"
    predicate = _PREDICATES.get(kind_of_problem, "is not valid.").format(
        **{**told, "kind": kind(value), "length": length}
    )
    location = (*problem["loc"], told["at"]) if "at" in told else problem["loc"]
    if not location:
        return InvalidRequest(f"The body {predicate}")
    param = _path(location)
    return InvalidRequest(f"'{param}' {predicate}", param=param)


def _path(location: tuple[int | str, ...]) -> str:
    """`messages[0].content[1].text`."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not step.startswith(_BRANCH):
            path += f".{shown(step)}" if path else shown(step)
    return path
