"""From what a request asks for to a grammar over the model's tokens."""

import json
import re

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from runtimes.constraints.matcher import Matcher
from runtimes.constraints.narrowing import narrow
from runtimes.constraints.schema import JSON_ANSWER, locate, too_large
from runtimes.contracts import ConstraintError

LONGEST_MESSAGE = 500


class InvalidConstraintError(Exception):
    """No answer can be held to it; the message says why, and where."""


class Grammars:
    """Over one vocabulary. It says what is wrong with a constraint, and takes what time that takes."""

    def __init__(self, tokenizer: LLTokenizer, n_vocab: int) -> None:
        self._tokenizer = tokenizer
        self._n_vocab = n_vocab
        self._limits = LLParserLimits(verbose_errors=False)

    def matcher(self, kind: str, text: str) -> Matcher:
        """At the beginning of an answer. Raises `InvalidConstraintError`."""
        if kind != "json_schema":
            make = LLMatcher.grammar_from_regex if kind == "regex" else LLMatcher.grammar_from_lark
            return self._matcher(make(text))
        schema = json.loads(text)
        if isinstance(schema, dict):
            schema.pop("x-guidance", None)  # llguidance's own switches
        if why := too_large(schema):
            raise InvalidConstraintError(why)
        narrow(schema)
        try:
            return self._matcher(LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=JSON_ANSWER))
        except InvalidConstraintError as error:
            raise InvalidConstraintError(f"{error} (at {locate(schema, self._schema_error)})") from None

    def _schema_error(self, schema: object) -> str | None:
        try:
            self._matcher(LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=JSON_ANSWER))
        except InvalidConstraintError as error:
            return str(error)
        return None

    def _matcher(self, grammar: str) -> Matcher:
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)
        if matcher.is_error():
            raise InvalidConstraintError(_in_a_line(matcher.get_error()))
        made = Matcher(matcher, self._n_vocab)
        try:
            made.fork().allowed()
        except ConstraintError:
            raise InvalidConstraintError("no text can match it") from None
        return made


def _in_a_line(message: str) -> str:
    """llguidance's message, without advice that a client cannot follow."""
    if unimplemented := re.search(r"Unimplemented keys: \[(.*?)\]", message):
        return f"keywords that are not supported: {unimplemented[1]}"
    if message.startswith("oneOf constraints are not supported"):
        return "'oneOf' is supported only where no value can match two of its alternatives; use 'anyOf'"
    return " ".join(message.split())[:LONGEST_MESSAGE].removesuffix(".")
