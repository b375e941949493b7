"""Structured logs on the standard library's logging: an event's name and its fields, one record a line.

Two forms: JSON lines for machines, `key=value` text for a terminal. What comes from outside cannot forge a line
(control characters are escaped) and what looks like a key is hidden; that is a safety net, not a licence to log
one. Our code logs through `get`; what libraries log through `logging` comes out in the same form.
"""

import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, TextIO

LogFormat = Literal["auto", "json", "text"]

# What follows "authorization" or an authentication scheme; then keys by their shape (ours, providers, the hub).
# They are looked for in the finished line, where quotes stand behind backslashes.
_SECRETS = (
    (
        re.compile(
            r"""(authorization[\\"']*\s*[:=]\s*(?:b(?=[\\"']))?[\\"']*)(?:(?:basic|bearer|digest|token)\s+)?[^\s"',}\\]+""",
            re.IGNORECASE,
        ),
        r"\1[hidden]",
    ),
    (re.compile(r"\b(bearer)(\s+|%20)[\w.~+/=-]{4,}", re.IGNORECASE), r"\1\2[hidden]"),
    (re.compile(r"\b(sk-(?:[a-z]+-)?|hf_)[A-Za-z0-9_-]{16,}"), r"\1[hidden]"),
)
_SECRET_FIELDS = frozenset({"authorization", "api_key", "x-api-key", "password", "secret", "token", "cookie"})

_SYSLOG = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
_PLAIN = re.compile(r"[\w./:@%+,~-]+", re.ASCII)
_OWN_KEYS = ("time", "level", "logger", "event", "exception")


class Log:
    """Logs events: `log.info("worker_started", pid=4711)`. A field that is None is left out."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, **fields: object) -> None:
        self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._emit(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._emit(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._emit(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """An error with the traceback of the exception that is being handled."""
        self._emit(logging.ERROR, event, fields, with_exception=True)

    def _emit(self, level: int, event: str, fields: Mapping[str, object], *, with_exception: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", event, exc_info=with_exception, extra={"fields": fields})


def get(name: str) -> Log:
    return Log(logging.getLogger(name))


def request_line(fields: Mapping[str, object]) -> None:
    """The one line that a finished request leaves."""
    get("appliance.request").info("request", **fields)


def configure(
    log_format: LogFormat, level: str, *, stream: TextIO | None = None, environ: Mapping[str, str] = os.environ
) -> None:
    """Send every logger of this process to `stream` (stderr). uvicorn must be started with `log_config=None`."""
    stream = sys.stderr if stream is None else stream
    as_json = log_format == "json" or (log_format == "auto" and not stream.isatty())
    handler = _Handler(stream)
    handler.setFormatter(_Formatter(as_json=as_json, for_journal=_is_journal(stream, environ)))
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi", "fastapi"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("uvicorn.access").disabled = True  # `request_line` says more
    for name in ("httpx", "httpcore"):  # a line for each request that we make is for debugging
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)


class _Handler(logging.StreamHandler[TextIO]):
    """A type of its own, so that a second `configure` finds what the first one left and nothing else."""


class _Formatter(logging.Formatter):
    def __init__(self, *, as_json: bool, for_journal: bool) -> None:
        super().__init__()
        self._as_json = as_json
        self._for_journal = for_journal

    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, object] = getattr(record, "fields", {})
        shown = {
            name: "[hidden]" if name.lower() in _SECRET_FIELDS else value
            for name, value in fields.items()
            if value is not None
        }
        exception = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else None
        text = (_json if self._as_json else _text)(record, shown, exception)
        for secret, instead in _SECRETS:
            text = secret.sub(instead, text)
        if self._for_journal:  # it reads the level off each line
            priority = _SYSLOG.get(record.levelno, 6)
            text = "\n".join(f"<{priority}>{line}" for line in text.split("\n"))
        return text


def _json(record: logging.LogRecord, fields: Mapping[str, object], exception: str | None) -> str:
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line: dict[str, object] = {
        "time": at,
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": _message(record),
    }
    for name, value in fields.items():
        line[f"{name}_" if name in _OWN_KEYS else name] = _json_value(value)
    if exception is not None:
        line["exception"] = exception
    return json.dumps(line, allow_nan=False)


def _json_value(value: object) -> object:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {_string(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(item) for item in value]
    return _string(value)


def _text(record: logging.LogRecord, fields: Mapping[str, object], exception: str | None) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(record.created))
    head = f"{at}.{int(record.msecs):03d} {record.levelname.lower():<7} {record.name}: {_printable(_message(record))}"
    line = " ".join([head, *(f"{_printable(name)}={_quoted(value)}" for name, value in fields.items())])
    if exception is None:
        return line
    # Behind a bar, so that a message with a newline in it cannot pass for a record.
    return "\n".join([line, *(f"    | {_printable(part)}" for part in exception.splitlines())])


def _quoted(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else _string(value)
    if _PLAIN.fullmatch(text):
        return text
    return '"' + _printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _printable(text: str) -> str:
    """Without control characters, line separators, lone surrogates and marks that turn the reading direction."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a library's format string that does not fit its arguments
        return _string(record.msg)


def _string(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a log line is not worth an exception in what it tells of
        return f"<{type(value).__name__}>"


def _is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether `stream` is the journal's, as systemd.exec(5) says how to find out."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no descriptor, or a closed one
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
