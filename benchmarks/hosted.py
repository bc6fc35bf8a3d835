"""How close an audit of a hosted model comes to the time that the server's latency and connections allow.

    python benchmarks/hosted.py [--questions 300] [--latency 0.3] [--connections 8]

A stand-in on this machine, in a process of its own, answers each request after the latency and that many at a time;
`check` audits option orders of generated questions against it, and keeps the answers. The bound is the number of
requests times the latency, divided by the connections. Then the time until a server without `echo` is reported.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from timing import timed  # noqa: E402

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "knoll", "ledge")
NAME = "stand-in"
N_OF_PROOF = 2  # requests before the audit


def serve(pipe: Connection, latency: float, connections: int, has_echo: bool) -> None:
    """Send its URL; then, on request, how many requests it had, and of those after the two of the proof the seconds
    from the first to the last."""
    from tests.harness.fake_completions import right_response, served

    free, times = threading.Semaphore(connections), list[tuple[float, float]]()

    def post(_: str, sent: dict[str, Any]) -> Any:
        start = time.perf_counter()
        with free:
            time.sleep(latency)
        response = right_response(sent)
        if not has_echo:
            for choice in response["choices"]:
                choice["logprobs"] = {name: column[-1:] for name, column in choice["logprobs"].items()}
        times.append((start, time.perf_counter()))
        return response

    with served(post) as url:
        pipe.send(url)
        pipe.recv()
        audit = sorted(times)[N_OF_PROOF:]
        pipe.send((len(times), max((end for _, end in audit), default=0) - min(audit, default=(0, 0))[0]))


def questions(n: int, folder: Path) -> Path:
    rng = random.Random(0)
    docs = [
        {
            "question": f"Which of {number}?",
            "choices": [f"{' '.join(rng.sample(WORDS, 3))} {place}" for place in range(4)],
            "answer": rng.randrange(4),
        }
        for number in range(n)
    ]
    file = folder / "quiz.jsonl"
    file.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    return file


def audited(url: str, file: Path, connections: int, output: Path) -> None:
    from lm_eval.api.registry import model_registry

    from lm_eval_leakage.jobs.driver import run_plan
    from lm_eval_leakage.jobs.plan_reading import check_plan
    from tests.harness.fake_completions import ByteCompletions

    if NAME not in model_registry:
        model_registry.register(NAME, target=ByteCompletions)
    settings = {
        "model": NAME,
        "model_args": {"base_url": url, "num_concurrent": connections},
        "audits": ["leakage_perm"],
    }
    settings |= {"tasks": [str(file)], "accuracy": False, "questions": "all", "output_path": str(output)}
    run_plan(check_plan(settings), say=lambda text: print(text, file=sys.stderr))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--latency", type=float, default=0.3)
    parser.add_argument("--connections", type=int, default=8)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for has_echo in (True, False):
        ours, theirs = context.Pipe()
        server = context.Process(target=serve, args=(theirs, args.latency, args.connections, has_echo))
        server.start()
        try:
            with tempfile.TemporaryDirectory() as folder:
                file = questions(args.questions, Path(folder))
                _tell(ours, args, has_echo, ours.recv(), file)
        finally:
            server.terminate()  # after an error it still waits to be asked
            server.join()


def _tell(pipe: Connection, args: argparse.Namespace, has_echo: bool, url: str, file: Path) -> None:
    try:
        seconds, _ = timed(lambda: audited(url, file, args.connections, file.parent / "out"))
    except ValueError as error:
        seconds, text = 0.0, str(error)
    pipe.send(True)
    n_requests, replied = pipe.recv()
    if not has_echo:
        print(f"without echo: reported after {n_requests} request(s): {text}")
        return
    bound = (n_requests - N_OF_PROOF) * args.latency / args.connections
    print(
        f"{args.questions} questions, {n_requests} requests, {args.latency:g} s latency, {args.connections} "
        f"connections: at least {bound:.0f} s; asked in {replied:.0f} s ({replied / bound:.2f} times), the check "
        f"with loading and verdicts {seconds:.0f} s ({seconds / bound:.2f} times)"
    )


if __name__ == "__main__":
    main()
