"""Run llama.cpp's own HTTP server (the C++ one, from the wheel xllamacpp) on a GGUF file.

    llama_server.py MODEL.gguf [--port 0] [--slots 2] [--ctx 4096]

Prints "READY http://HOST:PORT" once it listens. It ends on SIGTERM and when its stdin is closed, so that it never
outlives the tests that started it, however these end.
"""

import argparse
import os
import signal
import sys

import xllamacpp


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--slots", type=int, default=2, help="requests decoded at once; more wait")
    parser.add_argument("--ctx", type=int, default=4096, help="tokens of context for each slot")
    arguments = parser.parse_args()

    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.model_alias = {"llama"}
    params.hostnames = ["127.0.0.1"]
    params.port = arguments.port
    params.n_parallel = arguments.slots
    params.n_ctx = arguments.ctx * arguments.slots
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.fit_params = False

    # The server has no clean way down; what it holds is memory and sockets, which the kernel takes back.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server = xllamacpp.Server(params)
    print(f"READY {server.listening_address}", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
