"""Servers that misbehave in every way of `tests/harness/fake_completions.py`, through whole checks over HTTP."""

from __future__ import annotations

import json
import random
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tenacity
from lm_eval.api.registry import model_registry

from tests.checking.conftest import written
from tests.faults.children import Ended, child, has_traceback
from tests.faults.commands import typed
from tests.faults.tally import Tally, attack
from tests.faults.weighed import DOCS, Docs, Place
from tests.harness.fake_completions import (
    FAULTS,
    IN_BATCHES,
    ByteCompletions,
    FakeServer,
    Response,
    Spoil,
    cut,
    served_chat,
    serving,
)
from tests.harness.fake_hosted import fireworks_chat, reading, together_chat, vllm_chat

NAME = "served"
FIRST = "its first request"
MOVED = [name for name in FAULTS if "moved" in name]
CHAT = {"vLLM": vllm_chat, "Together": together_chat, "Fireworks": fireworks_chat}
DURING = {FIRST: 0, "its accuracy": 20, "its option orders": 90, "its last run": 230}
Key = tuple[str, Any, Any]


def _check(place: Place, url: str, name: str = NAME, batch_size: int = 1, **arguments: object) -> Ended:
    """`check` of the model behind this URL, which waits for nothing before it tries again."""
    model_args = ",".join(f"{key}={value}" for key, value in {"base_url": url, "max_retries": 2, **arguments}.items())
    words = ["check", "--model", name, "--model_args", model_args, "--tasks", str(place.quiz)]
    words += ["--batch_size", str(batch_size)]

    def run() -> None:
        async def at_once(seconds: float) -> None:
            pass

        tenacity.nap.time.sleep = lambda seconds: None
        tenacity.asyncio._portable_async_sleep = at_once
        typed([*words, "--output_path", str(place.out)])()

    return child(run, place.folder / "log")


def _answers(place: Place) -> dict[Key, Any]:
    """Return what each question has in the logs, and why it has nothing."""
    answers: dict[Key, Any] = {}
    for file in place.out.rglob("samples_*.jsonl"):
        for line in map(json.loads, file.read_text().splitlines()):
            key = (file.name.split("_20")[0], line["doc_hash"], line["filter"])
            kept = {name: line.get(name) for name in ("acc", "pvalue", "reason", "filtered_resps")}
            answers[key] = kept if "acc" in line or "reason" in line else None
    return answers


def _judge(tally: Tally, place: Place, ended: Ended, right: Mapping[Key, Any], note: str) -> None:
    """Each question has its answer, or none with a reason, of which the command says something."""
    text = f"{note}: exit {ended.code}: {ended.output[-600:]}"
    tally.record(f"traceback: {text}", wrong=has_traceback(ended))
    if ended.code != 0:
        return
    answers = _answers(place)
    missing = [key for key in right if answers.get(key) is None or answers[key].get("reason")]
    changed = [key for key in right if key not in missing and answers[key] != right[key]]
    tally.record(f"changed: {changed}: {text}", wrong=len(changed))
    says = "left out" in ended.output or "skipped" in ended.output or "the server" in ended.output
    tally.record(f"without a word, {len(missing)} missing: {text}", wrong=bool(missing) and not says)


@attack("misbehaving servers", 70, 1)
def misbehaving_servers(tally: Tally, folder: Path, tries: int, _: random.Random) -> None:
    """Each fault for one request, at each of four moments, and for all requests that hold one question: what is there
    is what a server gives that keeps to the rules."""
    place = _place(folder)
    with serving(FakeServer()) as url:
        ended = _check(place, url)
        assert ended.code == 0, ended.output
    right = _answers(place)
    combinations = [(fault, moment) for moment in (*DURING, "") for fault in sorted(FAULTS)]
    random.Random(0).shuffle(combinations)
    for fault, moment in combinations[:tries]:
        place.without_output()
        with serving(FakeServer(FAULTS[fault], _once(DURING[moment]) if moment else _of_one_question)) as url:
            ended = _check(place, url, num_concurrent=1 + 3 * (tally.tries % 2))
        tally.tries += 1
        note = f"{fault} in {moment}" if moment else f"{fault} for a question"
        _judge(tally, place, ended, right, note)
        is_once = moment and moment != "its first request"
        tally.record(f"not sent again: {note}", lost=bool(is_once) and ended.code == 0 and _answers(place) != right)


@attack("servers that read other texts than they are sent", 60, 1)
def other_texts(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Servers answer wrongly from one of their requests on, or for some: answers rotated in a batch, or one of them
    about another text; tokens or texts of another text, nulls and values of other places; only the end of each text
    read, with nulls or nothing before it. For all requests: the same with plausible values before it."""
    place = _place(folder, [doc | {"question": _long(doc["question"])} for doc in DOCS[:12]])
    with serving(FakeServer()) as url:
        ended = _check(place, url)
        assert ended.code == 0, ended.output
    right = _answers(place)
    for number in range(tries):
        place.without_output()
        spoil, note = _misreading(rng)
        since, share = (0, 1.0) if "values" in note else (rng.choice([0, 0, 30, 100]), rng.choice([0.1, 1.0]))
        spoiled = _some(rng.random(), share)
        fake = FakeServer(spoil, lambda at, sent, since=since, spoiled=spoiled: at >= since and spoiled(at, sent))
        with serving(fake) as url:
            ended = _check(place, url, num_concurrent=1 + 3 * (number % 2), batch_size=rng.randint(2, 5))
        tally.tries += 1
        _judge(tally, place, ended, right, f"{note} from {since} on, {share:.0%}")


def _long(question: str) -> str:
    """Return a question after a story of 600 letters, which is another one for each question."""
    story = " ".join(random.Random(question).choices([*question.split(), "geese", "dream", "carts", "sleep"], k=110))
    return f"{story[:600]} {question}"


def _misreading(rng: random.Random) -> tuple[Spoil, str]:
    beyond, n_read = rng.choice(["values", "null", "nothing"]), rng.randint(100, 500)
    of_texts = ["tokens of another text", "another text", "a value of the context is null"]
    ways: dict[str, Spoil] = IN_BATCHES | {name: _in_all(FAULTS[name]) for name in (*of_texts, *MOVED)}
    ways[f"only {n_read} tokens read, {beyond} before them"] = lambda response: cut(response, n_read, beyond)
    name = rng.choice([*ways, [*ways][-1]])
    return ways[name], name


def _in_all(spoil: Spoil) -> Spoil:
    """Apply a fault to every choice of a response."""

    def spoiled(response: Response) -> Response:
        choices = [spoil({"choices": [choice]})["choices"][0] for choice in response["choices"]]
        return response | {"choices": choices}

    return spoiled


@attack("chat servers that read other conversations than they are sent", 40, 1)
def other_conversations(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """A part of the question, of the answer or of both, or nothing but the answer."""
    place = _place(folder)
    right: dict[str, dict[Key, Any]] = {}
    for number in range(tries):
        name = rng.choice(sorted(CHAT))
        if name not in right:
            place.without_output()
            with served_chat(CHAT[name]) as arguments:
                ended = _check(place, arguments["base_url"], "chat-completions-echo", model="served")
            assert ended.code == 0, ended.output
            right[name] = _answers(place)
        place.without_output()
        change, note = _part_of_conversation(rng)
        of_some, share = reading(change, CHAT[name]), rng.choice([0.05, 0.5, 1.0])
        salt = rng.random()

        def post(sent: Response, name: str = name, of_some: Any = of_some, share: float = share, salt: float = salt):
            is_bad = zlib.crc32(f"{salt} {sent['messages']}".encode()) < share * 2**32
            return (of_some if is_bad else CHAT[name])(sent)

        with served_chat(post) as arguments:
            ended = _check(
                place, arguments["base_url"], "chat-completions-echo", model="served", num_concurrent=1 + number % 4
            )
        tally.tries += 1
        _judge(tally, place, ended, right[name], f"{name}, {note}, {share:.0%}")


def _part_of_conversation(rng: random.Random) -> tuple[Callable[[Any], Any], str]:
    turn, n_characters = rng.choice([0, -1]), rng.randint(2, 9)
    part = rng.choice([slice(n_characters, None), slice(None, -n_characters)])

    def cut_turn(turns: list[dict[str, str]]) -> list[dict[str, str]]:
        changed = [*turns]
        changed[turn] = turns[turn] | {"content": turns[turn]["content"][part]}
        return changed

    if rng.random() < 0.2:
        return (lambda turns: turns[-1:]), "the last message"
    return cut_turn, f"{part} of message {turn}"


@attack("slow servers", 6, 0)
def slow_servers(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """A server that is slower than the time limit now and then, and one that stops for good."""
    place = _place(folder)
    with serving(FakeServer()) as url:
        _check(place, url)
    right = _answers(place)
    for number in range(tries):
        place.without_output()
        slow = FakeServer(_waiting, _some(rng.random(), share=0.02) if number % 3 else lambda at, _: at > 100)
        with serving(slow) as url:
            ended = _check(place, url, timeout=1)
        tally.tries += 1
        _judge(tally, place, ended, right, f"slow server {number}")


def _waiting(response: Response) -> Response:
    time.sleep(1.5)
    return response


def _place(folder: Path, docs: Docs = DOCS[:12]) -> Place:
    if NAME not in model_registry:
        model_registry.register(NAME, target=ByteCompletions)
    place = Place(folder)
    place.quiz = written(folder, docs)
    return place


def _once(at: int) -> Callable[[int, Response], bool]:
    return lambda number, _: number == at


def _some(salt: float, share: float) -> Callable[[int, Response], bool]:
    return lambda number, _: zlib.crc32(f"{salt} {number}".encode()) < share * 2**32


def _of_one_question(_: int, sent: Response) -> bool:
    prompts = sent["prompt"] if isinstance(sent["prompt"][0], list) else [sent["prompt"]]
    return any(DOCS[5]["question"] in bytes(prompt).decode() for prompt in prompts)
