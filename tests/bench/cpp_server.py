"""Child process: the C++ llama-server that the `xllamacpp` wheel carries, as an HTTP server of its own.

The wheel has no executable; its `Server` object is llama-server with the same parameters. Runs until its standard
input closes, so it cannot outlive the benchmark that started it.
"""

import argparse
import sys

import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--parallel", type=int, required=True, help="slots (llama-server's -np)")
    parser.add_argument("--ctx-size", type=int, required=True, help="tokens of all slots together (-c)")
    parser.add_argument("--kv-unified", action="store_true", help="one KV buffer shared by all slots (-kvu)")
    options = parser.parse_args()

    # All that is not set here is llama-server's own default: continuous batching, prompt caching, flash attention
    # "auto", a logical batch of 2048 and a physical one of 512 tokens, a warm-up run before it is ready.
    parameters = xllamacpp.CommonParams()
    parameters.model.path = options.model
    parameters.port = options.port
    parameters.cpuparams.n_threads = options.threads
    parameters.cpuparams_batch.n_threads = options.threads
    parameters.n_parallel = options.parallel
    parameters.n_ctx = options.ctx_size
    parameters.kv_unified = options.kv_unified
    server = xllamacpp.Server(parameters)  # its threads live as long as this reference
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
