"""`appliance chat`: one question from the command line or a pipe, or a conversation on a terminal.

Talks to the daemon over HTTP, as any client does, and prints the answer as it comes.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli import CommandError

if TYPE_CHECKING:
    import httpx

Messages = list[dict[str, str]]
ANSWER_TIMEOUT_S = 900.0  # between two pieces of an answer; the daemon has a deadline of its own


def chat(
    ctx: typer.Context,
    prompt: Annotated[str | None, typer.Argument(help="What to ask; without it, a conversation.")] = None,
    model: Annotated[str, typer.Option(help="Model or alias.")] = "auto",
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer.")] = None,
) -> None:
    """Ask a model. Piped input is added to the prompt."""
    from appliance.cli.daemon import connected  # noqa: PLC0415 - httpx is slow to import

    messages: Messages = [] if system is None else [{"role": "system", "content": system}]
    settings: dict[str, Any] = {"model": model}
    if max_tokens is not None:
        settings["max_tokens"] = max_tokens
    question = _question(prompt)
    with connected(ctx.obj.url, ANSWER_TIMEOUT_S) as client:
        if question is None:
            _converse(client, settings, messages)
        else:
            messages.append({"role": "user", "content": question})
            for _ in _spoken(_answer(client, settings, messages)):
                pass


def _question(prompt: str | None) -> str | None:
    """The prompt and what was piped in; None asks for a conversation."""
    if sys.stdin is None or sys.stdin.isatty():
        return prompt
    piped = sys.stdin.buffer.read().decode(errors="replace").strip()
    parts = [part for part in (prompt, piped) if part]
    if not parts:
        raise typer.BadParameter("there is nothing to ask: give a prompt, or pipe one in", param_hint="PROMPT")
    return "\n\n".join(parts)


def _converse(client: "httpx.Client", settings: dict[str, Any], messages: Messages) -> None:
    """Until end of input. Ctrl-C ends an answer, and at the prompt the conversation."""
    with suppress(ImportError):  # line editing, where Python was built with it
        import readline  # noqa: F401, PLC0415 - importing it is what turns it on
    typer.echo("Ctrl-D ends the conversation, Ctrl-C an answer.", err=True)
    while True:
        try:
            question = input("> ").strip()
        except EOFError:
            typer.echo()
            return
        if not question:
            continue
        messages.append({"role": "user", "content": question})
        said: list[str] = []
        try:
            said.extend(_spoken(_answer(client, settings, messages)))
        except KeyboardInterrupt:
            typer.echo("\n(interrupted)", err=True)
            messages.pop()  # the next question must not lean on half an answer
        except CommandError as error:
            typer.echo(f"appliance: {error}", err=True)
            messages.pop()
        else:
            messages.append({"role": "assistant", "content": "".join(said)})


def _spoken(answer: Iterator[str]) -> Iterator[str]:
    """Print each piece as it comes, and pass it on."""
    on_terminal = sys.stdout.isatty()
    for piece in answer:
        sys.stdout.write(_harmless(piece) if on_terminal else piece)
        sys.stdout.flush()
        yield piece
    sys.stdout.write("\n")
    sys.stdout.flush()


def _answer(client: "httpx.Client", settings: dict[str, Any], messages: Messages) -> Iterator[str]:
    """Pieces of the answer's text. Raises `CommandError`, at the start or in its midst."""
    from appliance.cli.daemon import check, error_message, parsed  # noqa: PLC0415 - httpx is slow to import

    body = {**settings, "messages": messages, "stream": True}
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if not response.is_success:
            response.read()
            check(response)
        finished = False
        for line in response.iter_lines():
            data = line.removeprefix("data:").strip()
            if data == line.strip() or not data:
                continue  # an empty line or a comment
            if data == "[DONE]":
                return
            chunk = parsed(data)
            if message := error_message(chunk):
                raise CommandError(message)
            for choice in chunk.get("choices") or []:
                if text := (choice.get("delta") or {}).get("content"):
                    yield text
                if choice.get("finish_reason") == "length":
                    typer.echo("\n(cut: the answer reached its longest)", err=True)
                finished = finished or choice.get("finish_reason") is not None
        if not finished:
            raise CommandError("the daemon broke off in the middle of the answer")


def _harmless(text: str) -> str:
    """Without what steers a terminal: a model may have been talked into writing it."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)
