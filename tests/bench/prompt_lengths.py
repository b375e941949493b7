"""Child process: how long prompts are in tokens, and how much of them all have in common.

Reads a JSON list of chats (lists of messages) from standard input and writes `{"lengths": [...], "shared": n}`. It
renders and tokenizes with llama-cpp-python's own code, so it is a second opinion on what the servers report.
"""

import itertools
import json
import sys

import llama_cpp
from llama_cpp.llama_chat_format import Jinja2ChatFormatter


def main(model_path: str) -> None:
    model = llama_cpp.Llama(model_path, vocab_only=True, verbose=False)
    formatter = Jinja2ChatFormatter(
        model.metadata["tokenizer.chat_template"],
        bos_token=model.detokenize([model.token_bos()], special=True).decode(),
        eos_token=model.detokenize([model.token_eos()], special=True).decode(),
    )
    prompts = [
        model.tokenize(formatter(messages=messages).prompt.encode(), add_bos=False, special=True)
        for messages in json.load(sys.stdin)
    ]
    columns = zip(*prompts, strict=False)
    shared = sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
    json.dump({"lengths": [len(prompt) for prompt in prompts], "shared": shared}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
