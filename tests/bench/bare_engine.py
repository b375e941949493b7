"""Child process: the engine without daemon, worker and HTTP, timed from inside.

Reads `{"prompt", "tokens"}`, a line of JSON each, and answers with `{"prompt_tokens", "ttft_s", "gaps_s"}`. Ends when
its standard input closes.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from llama_cpp.llama_chat_format import Jinja2ChatFormatter

from appliance.protocol import Delta, Sampling, Stopping
from runtimes.contracts import Backend
from runtimes.engine import Engine, Job
from runtimes.llama_cpp import LlamaCppBackend, LoadOptions, Sizes

STEP_TARGET_S = 0.2  # the daemon's default


def bare_engine(options: argparse.Namespace) -> tuple[LlamaCppBackend, Engine]:
    """Backend and engine as the daemon's worker makes them. All that binds this benchmark to their constructors."""
    backend = LlamaCppBackend(
        LoadOptions(
            path=options.model,
            sizes=Sizes(options.context_tokens, options.kv_tokens),
            slots=options.slots,
            threads=options.threads,
        )
    )
    engine = Engine(backend, slots=options.slots, step_target_s=STEP_TARGET_S, clock=time.monotonic)
    return backend, engine


class Runner:
    def __init__(self, backend: Backend, engine: Engine) -> None:
        self._backend = backend
        self._engine = engine
        info = backend.info
        self._chat = Jinja2ChatFormatter(info.chat_template or "", info.eos_token, info.bos_token)

    def tokens(self, prompt: str) -> tuple[int, ...]:
        """The chat prompt's tokens. They are made before the clock starts, so the daemon's template counts as added."""
        text = self._chat(messages=[{"role": "user", "content": prompt}]).prompt
        return tuple(self._backend.tokenize(text, add_special=False, parse_special=True))

    def generate(self, prompt: tuple[int, ...], n_tokens: int) -> Iterator[float]:
        """The clock's reading at each piece of text."""
        stopping = Stopping(max_tokens=n_tokens, ignore_eos=True)
        self._engine.submit(Job("bench", prompt, Sampling(temperature=0), stopping))
        while not self._engine.idle:
            for _, event in self._engine.step():
                if isinstance(event, Delta) and event.text:
                    yield time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    for name in ("threads", "slots", "context-tokens", "kv-tokens"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    runner = Runner(*bare_engine(options))
    print("{}", flush=True)  # ready
    for line in sys.stdin:
        request = json.loads(line)
        prompt = runner.tokens(request["prompt"])
        started_s = time.perf_counter()
        text_s = list(runner.generate(prompt, request["tokens"]))
        gaps_s = [after - before for before, after in itertools.pairwise(text_s)]
        answer = {"prompt_tokens": len(prompt), "ttft_s": text_s[0] - started_s, "gaps_s": gaps_s}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
