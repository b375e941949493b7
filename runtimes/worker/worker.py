"""The engine worker: one model, one step loop, one socket to the daemon.

The main thread steps the engine. A reader thread takes commands; a few threads render and tokenize prompts, so that
a long one does not stop the loop. It opens no network connection and has no keys.
"""

import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from appliance.protocol import ChatPrompt, Prompt, TextPrompt
from runtimes.constraints import ConstraintCompiler
from runtimes.contracts import Backend, ModelLoadError
from runtimes.dialects import dialect_of
from runtimes.engine import Engine, Job
from runtimes.templates.client import TemplateRenderer
from runtimes.worker.messages import (
    LENGTH,
    MAX_FRAME_BYTES,
    Cancel,
    Detokenize,
    Generate,
    Load,
    LoadFailed,
    Ping,
    Pong,
    Ready,
    Refused,
    Stepped,
    Text,
    Tokenize,
    Tokens,
    decode,
    encode,
)
from runtimes.worker.outbox import Outbox
from runtimes.worker.prompts import PromptError, Prompts
from runtimes.worker.warm_up import warm_up

PREPARING_THREADS = 4
# A thread that holds the interpreter yields it to the step loop after this long (Python's default is 5 ms).
SWITCH_INTERVAL_S = 0.001
# An agent's next step comes sooner than this, or much later.
SAVE_WHEN_IDLE_FOR_S = 0.05
STATS_EVERY_S = 0.1  # and whenever a sequence comes or goes


@dataclass(frozen=True, slots=True)
class _Submit:
    id: str
    jobs: tuple[Job, ...]


class Worker:
    def __init__(
        self, connection: socket.socket, load_backend: Callable[[Load], Backend], unconfined: list[str]
    ) -> None:
        self._socket = connection
        self._load_backend = load_backend
        self._unconfined = tuple(unconfined)
        self._sending = threading.Lock()
        self._inbox: queue.SimpleQueue[_Submit | Cancel | Ping] = queue.SimpleQueue()
        self._preparing: set[str] = set()  # requests between arrival and `_Submit`
        self._preparing_lock = threading.Lock()

    def run(self) -> None:
        """Loads, then serves until the daemon closes the socket, which ends the process; or returns when the model
        cannot be loaded. Raises `BackendError` when it can no longer be used."""
        load = self._receive()
        began_s = time.monotonic()
        try:
            backend = self._load_backend(load)
        except ModelLoadError as error:
            self._send(LoadFailed(str(error), final=True))
            return
        except MemoryError:
            self._send(LoadFailed("not enough memory to load the model", final=False))
            return
        info = backend.info
        renderer = TemplateRenderer(
            info.chat_template,
            {"bos_token": info.bos_token, "eos_token": info.eos_token},
            control_tokens=backend.control_tokens,
        )
        constraints = ConstraintCompiler(backend)
        engine = Engine(
            backend,
            slots=load.slots,
            step_target_s=load.step_target_s,
            itl_target_s=load.itl_target_s,
            clock=time.monotonic,
        )
        curve = warm_up(engine, backend, load.curve)
        prompts = Prompts(backend, renderer, constraints, dialect_of(None if renderer.neutral else info.chat_template))
        load_s = time.monotonic() - began_s
        self._send(Ready(info, prompts.dialect, load_s, renderer.problem, self._unconfined, engine.stats(), curve))
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        reader = threading.Thread(target=self._read, args=(backend, prompts), daemon=True)
        reader.start()
        constraints.get_ready()
        self._step_forever(engine)

    def _step_forever(self, engine: Engine) -> None:
        outbox = Outbox(self._send)
        told, told_s = engine.stats(), 0.0
        computed = told.computed_prompt_tokens
        while True:
            changed = self._take_commands(engine)
            events = () if engine.idle else tuple(engine.step())
            if not events and not changed and engine.idle:
                continue
            stats, now_s = engine.stats(), time.monotonic()
            # A first token is worth a moment of the step loop, which has just spent many on the prompt.
            prefilled = stats.computed_prompt_tokens != computed
            computed = stats.computed_prompt_tokens
            news = (stats.running, stats.waiting) != (told.running, told.waiting)
            if news or changed or now_s - told_s >= STATS_EVERY_S:
                told, told_s = stats, now_s
                outbox.put(Stepped(events, stats), at_once=prefilled)
            else:
                outbox.put(Stepped(events, None), at_once=prefilled)

    def _take_commands(self, engine: Engine) -> bool:
        """Carries out what has arrived; waits for something when there is no work. Whether anything came."""
        changed = False
        saved = False  # all there is to save
        while True:
            waits = engine.idle and not changed
            try:
                command = self._inbox.get(waits, None if saved else SAVE_WHEN_IDLE_FOR_S)
            except queue.Empty:
                if not waits:
                    return changed
                saved = not engine.save_ahead()
                continue
            changed = True
            match command:
                case _Submit(jobs=jobs):
                    for job in jobs:
                        engine.submit(job)
                case Cancel(id=request_id):
                    engine.cancel(request_id)
                case Ping(id=ping_id):
                    self._send(Pong(ping_id, engine.stats()))

    def _read(self, backend: Backend, prompts: Prompts) -> None:
        with ThreadPoolExecutor(PREPARING_THREADS, thread_name_prefix="prepare") as pool:
            while True:
                command = self._receive()
                match command:
                    case Generate():
                        with self._preparing_lock:
                            self._preparing.add(command.id)
                        pool.submit(self._guarded, self._prepare, command, prompts, backend)
                    case Cancel():
                        with self._preparing_lock:
                            self._preparing.discard(command.id)
                        self._inbox.put(command)
                    case Ping():
                        self._inbox.put(command)
                    case Tokenize():
                        pool.submit(self._guarded, self._tokenize, command, prompts, backend)
                    case Detokenize():
                        pool.submit(self._guarded, self._detokenize, command, backend)

    def _guarded(self, work: Callable[..., None], command: Any, *rest: Any) -> None:
        """Runs `work`; whatever goes wrong is an answer to this one request."""
        try:
            work(command, *rest)
        except PromptError as error:
            self._send(Refused(command.id, error.code, error.message, error.param))
        except Exception as error:  # noqa: BLE001 - one request must not end the worker
            sys.stderr.write(f"preparing a request failed: {type(error).__name__}: {error}\n")
            self._send(Refused(command.id, "engine_crashed", "the prompt could not be prepared"))

    def _prepare(self, command: Generate, prompts: Prompts, backend: Backend) -> None:
        prompts.check_logit_bias(command.sampling.logit_bias)
        constraint = prompts.form(command.prompts, command.constraint, command.tool_use, command.reasoning)
        stopping = prompts.stopping(command.prompts, command.stopping)
        has_form = constraint is not None
        prepared = [prompts.prepared(prompt, command.reasoning, has_form=has_form) for prompt in command.prompts]
        jobs = tuple(
            Job(
                id=command.id,
                prompt=ready.tokens,
                sampling=command.sampling,
                stopping=stopping,
                n=command.n,
                first_choice=i * command.n,
                logprobs=command.logprobs,
                constraint=constraint,
                prompt_text=_echo(prompt, backend) if command.echo else None,
                stops_until=prompts.stops_until(command.constraint, command.tool_use),
                thinking=ready.thinking,
                marks=prompts.marks(prompt, command.tool_use),
                measure_margin=command.measure_margin,
                criticality=command.criticality,
            )
            for i, (prompt, ready) in enumerate(zip(command.prompts, prepared, strict=True))
        )
        with self._preparing_lock:
            if command.id not in self._preparing:
                return  # cancelled meanwhile
            self._preparing.discard(command.id)
            self._inbox.put(_Submit(command.id, jobs))  # under the lock: a Cancel comes after it, or before the check

    def _tokenize(self, command: Tokenize, prompts: Prompts, backend: Backend) -> None:
        tokens = prompts.tokens(command.prompt)
        texts = tuple(backend.token_text(token) for token in tokens) if command.with_text else None
        self._send(Tokens(command.id, tokens, texts))

    def _detokenize(self, command: Detokenize, backend: Backend) -> None:
        n_vocab = backend.info.n_vocab
        for i, token in enumerate(command.tokens):
            if not 0 <= token < n_vocab:
                message = f"tokens[{i}] is {token}; this model's tokens are 0 to {n_vocab - 1}"
                raise PromptError("invalid_request", message, f"tokens[{i}]")
        self._send(Text(command.id, backend.detokenize(list(command.tokens))))

    def _send(self, message: object) -> None:
        frame = encode(message)
        try:
            with self._sending:
                self._socket.sendall(frame)
        except OSError:
            os._exit(0)  # the daemon is gone, and with it whoever could use an answer

    def _receive(self) -> Any:
        """The next message; ends the process when the daemon has closed the socket."""
        length = LENGTH.unpack(self._exactly(LENGTH.size))[0]
        if length > MAX_FRAME_BYTES:
            sys.stderr.write(f"a frame of {length} bytes from the daemon\n")
            os._exit(1)
        return decode(self._exactly(length))

    def _exactly(self, n: int) -> bytes:
        data = bytearray()
        while len(data) < n:
            try:
                part = self._socket.recv(min(n - len(data), 1 << 20))
            except OSError:
                part = b""
            if not part:
                os._exit(0)  # at once: the main thread may be inside a long step
            data += part
        return bytes(data)


def _echo(prompt: Prompt, backend: Backend) -> str:
    if isinstance(prompt, TextPrompt):
        return prompt.text
    return "" if isinstance(prompt, ChatPrompt) else backend.detokenize(list(prompt.tokens))
