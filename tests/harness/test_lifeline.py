"""What a process does when another one of its run has ended; connections are real, processes are objects."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from lm_eval_leakage.harness.models import lifeline as module
from lm_eval_leakage.harness.models.lifeline import KILLED, Gone, Lifeline, meet


class Store(dict):
    def set(self, key, value) -> None:
        self[key] = value

    def get(self, key) -> bytes:
        return self[key].encode()


class Told(list):
    """The sentences with which a process would have ended."""

    def line(self, number: int, n_processes: int = 3) -> Lifeline:
        return Lifeline(number, n_processes, self.append)


def until(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + 5
    while not true() and time.monotonic() < end:
        time.sleep(0.002)
    return true()


@pytest.fixture
def connected(monkeypatch) -> Iterator[Callable[..., tuple[list[Lifeline], list[Told], Store]]]:
    monkeypatch.setattr(module, "NEWS", 0.05)
    monkeypatch.setattr(module, "Finalize", lambda *_, **__: None)
    monkeypatch.setattr(module.os, "register_at_fork", lambda **_: None)
    lines: list[Lifeline] = []

    def make(n_processes: int = 3) -> tuple[list[Lifeline], list[Told], Store]:
        store, told = Store(), [Told() for _ in range(n_processes)]
        lines.extend(each.line(number, n_processes) for number, each in enumerate(told))
        for line in lines:
            meet(store, line, "127.0.0.1")
        assert until(lambda: len(lines[0]._connections) == n_processes - 1)
        return lines, told, store

    yield make
    for line in lines:
        dies(line)
        line.forget()


def dies(line: Lifeline) -> None:
    for connection in line._connections:
        with suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)


# ---------------------------------------------------------------------- who ends


def test_a_process_that_works_ends_if_another_one_was_killed_and_says_what_to_do() -> None:
    told = Told()
    told.line(0).lost(2, Gone(0, "on node7 was killed", False))
    (sentence,) = told
    assert sentence.startswith(
        "process 2 of 3 on node7 was killed, so process 0 ends too; if the run has an output path"
    )
    assert sentence.endswith("its answers are kept, and the same command continues from there")


def test_a_process_that_works_on_its_own_share_does_not_need_one_that_ended_in_order_until_it_waits() -> None:
    told = Told()
    line = told.line(0)
    line.lost(1, Gone(0, "has ended", True))
    line.work()
    assert not told
    line.wait()
    assert told


@pytest.mark.parametrize("in_order", [True, False])
def test_a_process_that_rests_ends_only_when_it_begins_something_that_needs_the_other(in_order) -> None:
    told = Told()
    line = told.line(0)
    line.rest()
    line.lost(1, Gone(1, "is gone", in_order))
    assert not told
    line.wait()
    assert told


@pytest.mark.parametrize("in_order", [True, False])
def test_a_process_that_has_done_its_part_of_a_round_may_end_while_others_still_take_part(in_order) -> None:
    told = Told()
    line = told.line(0)
    line.wait()
    line.lost(1, Gone(1, "is gone", in_order))
    assert not told
    line.rest()
    assert not told
    line.wait()  # the next round
    assert told


# ---------------------------------------------------------------------- how they learn of it


def test_all_learn_of_a_killed_one(connected) -> None:
    lines, told, _ = connected()
    dies(lines[1])
    assert until(lambda: bool(told[0] and told[2]))
    assert told[0] == [sentence.replace("process 2 ends", "process 0 ends") for sentence in told[2]]
    assert f"process 1 of 3 on {socket.gethostname()} {KILLED}" in told[0][0]


def test_all_learn_of_the_death_of_the_first(connected) -> None:
    lines, told, _ = connected()
    dies(lines[0])
    assert until(lambda: bool(told[1] and told[2]))
    assert told[1][0].startswith(f"process 0 of 3 on 127.0.0.1 {KILLED}, so process 1 ends too")


def test_the_error_of_a_process_is_named_by_the_others(connected) -> None:
    lines, told, _ = connected()
    try:
        raise ValueError("no such task\nat all")
    except ValueError:
        lines[2].leave()
    assert until(lambda: bool(told[0] and told[1]))
    assert "failed (ValueError: no such task), so" in told[1][0]


def test_an_error_that_follows_from_the_end_of_another_process_is_explained(connected) -> None:
    told = Told()
    line = told.line(2)
    threading.Timer(0.01, line.lost, (1, Gone(0, "has ended", True))).start()
    try:
        raise RuntimeError("Connection closed by peer")
    except RuntimeError:
        line.leave()
    assert told[0].startswith("process 1 of 3 has ended, so process 2 ends too")


def test_an_error_after_the_last_round_is_not_blamed_on_a_process_that_has_ended(connected) -> None:
    told = Told()
    line = told.line(0)
    line.rest()
    line.lost(1, Gone(1, "has ended", True))
    try:
        raise OSError("the disk is full")
    except OSError:
        line.leave()
    assert not told


def test_a_process_that_ends_in_order_ends_no_other_that_works(connected) -> None:
    lines, told, _ = connected()
    lines[1].leave()
    assert until(lambda: 1 in lines[0]._gone and 1 in lines[2]._gone)
    lines[0].leave()
    assert until(lambda: 0 in lines[2]._gone)
    assert not any(told)


def test_finished_rounds_are_known_to_all(connected) -> None:
    lines, told, _ = connected()
    for number in (1, 2, 0):
        lines[number].rest()
    lines[0].wait()
    assert until(lambda: [one._n_rounds for one in lines[0]._connections] == [1, 1])
    assert until(lambda: all(line._connections[0]._n_rounds == 1 for line in lines[1:]))
    assert not any(told)


def test_who_connects_late_learns_what_happened_before(connected) -> None:
    lines, told, store = connected(2)
    dies(lines[1])
    assert until(lambda: bool(told[0]))
    late = Told()
    lines.append(late.line(2))
    meet(store, lines[-1], "127.0.0.1")
    assert until(lambda: bool(late))


def test_a_stranger_takes_no_part(connected) -> None:
    lines, told, store = connected(2)
    port, secret = json.loads(store["lifeline"])
    for hello in (b"GET / HTTP/1.1\r\n", b'{"secret": "guessed", "number": 1, "host": "a"}\n', b"x" * 5000, b"[]\n"):
        with socket.create_connection(("127.0.0.1", port)) as stranger, suppress(OSError):  # it may be reset
            stranger.sendall(hello)
            stranger.shutdown(socket.SHUT_WR)
            stranger.settimeout(5)
            assert stranger.recv(100) == b""
    assert len(secret) == 32
    assert (len(lines[0]._connections), told) == (1, [[], []])


def test_a_forked_process_keeps_no_connection_open(connected) -> None:
    lines, _, _ = connected(2)
    copy = Lifeline(1, 2)
    copy._connections = [type(one)(one.socket.dup(), 0, "a") for one in lines[1]._connections]
    lines[1].forget()
    assert not lines[1]._connections
    copy.tell({"rounds": 5})  # the connection itself is as it was
    assert until(lambda: lines[0]._connections[0]._n_rounds == 5)
    copy.forget()


def test_the_operating_system_is_asked_to_notice_a_machine_that_is_gone(connected) -> None:
    lines, _, _ = connected(2)
    for line in lines:
        connection = line._connections[0].socket
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if sys.platform == "linux":
            options = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
            idle, between, count = (
                connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, option)) for option in options
            )
            assert idle + between * count <= module.SILENCE < 60
