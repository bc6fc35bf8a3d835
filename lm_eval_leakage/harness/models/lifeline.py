"""Ends the processes of a run soon after one of them has ended, with a sentence.

A process that waits for a dead one would wait for as long as its process group allows: 52 weeks in the harness, since
a process may wait long for others that have more work. So every process holds a TCP connection to the first one. The
operating system closes it when a process dies, however it dies, and notices by keepalive packets when a machine or
the network between machines is gone. No process has to prove that it is alive, so none is ended because it is slow,
busy loading a model, or stopped for a while.

A process is only ended while it works on what the processes do together, a `round`: at once if another one was killed
or failed; if it ended in order, only when this one waits for it. Rounds are counted in each process, and a process
that has finished a round may end while others are still in it.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from multiprocessing.util import Finalize
from typing import Any, NamedTuple, Protocol

logger = logging.getLogger(__name__)

SILENCE = 40  # seconds after which a machine that does not answer is taken for gone
PACKETS = 4  # keepalive packets within this time
NEWS = 1.0  # seconds in which the reason of an error may still arrive
MOST_TOLD = 300  # characters of an error
KILLED = "was killed, or its machine is gone"


class State(IntEnum):
    """What a process does: something of its own, its part of a round, or something that needs all of them now."""

    RESTS, WORKS, WAITS = range(3)


class Gone(NamedTuple):
    """A process that has ended.

    n_rounds: that it had finished
    what: happened, in words
    in_order: whether it ended itself, without an error
    """

    n_rounds: int
    what: str
    in_order: bool


class Store(Protocol):
    """The interface of torch.distributed's stores that is needed to meet."""

    def set(self, key: str, value: str, /) -> object: ...
    def get(self, key: str, /) -> bytes: ...


def _end(sentence: str) -> None:
    """Ends this process although its main thread may be waiting inside a library."""
    logger.error(sentence)
    for handler in logging.getLogger().handlers:
        handler.flush()
    os._exit(1)


class Lifeline:
    """Knows which processes of the run have ended; by itself, without connections, it knows of none.

    number, n_processes: of this process, counted over all machines
    store: through which they met; the first one's serves the others, so it is kept
    end: what to do with the sentence that says why this process cannot continue
    """

    def __init__(self, number: int = 0, n_processes: int = 1, end: Callable[[str], None] = _end) -> None:
        self.number, self.n_processes, self._end = number, n_processes, end
        self._n_rounds, self._state = 0, State.WORKS
        self._gone: dict[int, Gone] = {}
        self._connections: list[_Connection] = []
        self.store: Store | None = None
        self._mutex = threading.RLock()

    def work(self) -> None:
        """A round has begun, or goes on: from now on this process ends if another one was killed or has failed."""
        self._be(State.WORKS)

    def wait(self) -> None:
        """From now on this process ends if another one has, until it works or rests again."""
        self._be(State.WAITS)

    def rest(self) -> None:
        """The round is over: this process can do what follows alone."""
        with self._mutex:
            self._n_rounds += 1
            self._be(State.RESTS)
            self.tell({"rounds": self._n_rounds})

    def lost(self, number: int, gone: Gone) -> None:
        """Process `number` has ended."""
        with self._mutex:
            if number in self._gone:
                return
            self._gone[number] = gone
            if self.number == 0:
                self.tell({"lost": [number, *gone]})
            self._judge()

    def tell(self, message: dict[str, Any]) -> None:
        """To the processes that are connected to this one."""
        for connection in self._connections:
            connection.send(message)

    def add(self, connection: _Connection) -> None:
        """Takes part in what this process knows, from now on; needs the other's number."""
        with self._mutex:
            for number, gone in self._gone.items():
                connection.send({"lost": [number, *gone]})
            self._connections.append(connection)
        threading.Thread(target=connection.listen, args=(self,), daemon=True).start()

    def leave(self) -> None:
        """Says how this process ends. An error of one process is thus named by the others, unless it is only the
        consequence of another one's end, which is then said here."""
        error = sys.exc_info()[1] or getattr(sys, "last_value", None)
        told = f"{type(error).__name__}: {error}".strip().split("\n")[0][:MOST_TOLD]
        normal = error is None or isinstance(error, SystemExit)
        if not normal and self._state != State.RESTS:
            self.wait()
            time.sleep(NEWS)
        self._state = State.RESTS
        self.tell({"ends": "has ended" if normal else f"failed ({told})", "in_order": normal})

    def forget(self) -> None:
        """In a forked process: it is none of the run, and must not keep the connections open."""
        for connection in self._connections:
            connection.socket.close()
        self._connections = []

    def _be(self, state: State) -> None:
        with self._mutex:
            self._state = state
            self._judge()

    def _judge(self) -> None:
        for number, gone in self._gone.items():
            needed = State.WAITS if gone.in_order else State.WORKS
            if self._state >= needed and gone.n_rounds <= self._n_rounds:
                self._end(
                    f"process {number} of {self.n_processes} {gone.what}, so process {self.number} ends too; "
                    "if the run has an output path, its answers are kept, and the same command continues from there"
                )
                return


class _Connection:
    """To the process `number`; messages are lines of JSON."""

    def __init__(self, connected: socket.socket, number: int, host: str) -> None:
        self.socket, self.number, self.host = connected, number, host
        self._n_rounds = 0
        _keep_alive(connected)

    def send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # whoever listens to it notices
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def listen(self, line: Lifeline) -> None:
        what, in_order = KILLED, False
        with suppress(OSError, ValueError), self.socket, self.socket.makefile("r", encoding="utf-8") as lines:
            for told in map(json.loads, lines):
                self._n_rounds = told.get("rounds", self._n_rounds)
                if "lost" in told:
                    number, *gone = told["lost"]
                    line.lost(number, Gone(*gone))
                if "ends" in told:
                    what, in_order = told["ends"], told["in_order"]
                    break  # it may take a while to end
        line.lost(self.number, Gone(self._n_rounds, f"on {self.host} {what}", in_order))


def _keep_alive(connected: socket.socket) -> None:
    connected.settimeout(None)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    between = SILENCE // (PACKETS + 1)
    options = {"TCP_KEEPIDLE": between, "TCP_KEEPALIVE": between, "TCP_KEEPINTVL": between, "TCP_KEEPCNT": PACKETS}
    for name, value in (options | {"TCP_USER_TIMEOUT": 1000 * SILENCE}).items():
        if hasattr(socket, name):  # not every system has all of them
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


# ---------------------------------------------------------------------- meeting


def meet(store: Store, line: Lifeline, host: str) -> None:
    """Connects this process with the first one, through a store that all of them have.

    host: name or address of the first one's machine
    """
    line.store = store
    if line.number == 0:
        listening, secret = _listening(), secrets.token_hex(16)
        store.set("lifeline", json.dumps([listening.getsockname()[1], secret]))
        threading.Thread(target=_accept, args=(listening, secret, line), daemon=True).start()
    else:
        port, secret = json.loads(store.get("lifeline"))
        connected = socket.create_connection((host, port), timeout=60)
        hello = {"secret": secret, "number": line.number, "host": socket.gethostname()}
        connected.sendall(json.dumps(hello).encode() + b"\n")
        line.add(_Connection(connected, 0, host))
    Finalize(None, line.leave, exitpriority=0)  # also runs in processes of multiprocessing
    os.register_at_fork(after_in_child=line.forget)


def _listening() -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _accept(listening: socket.socket, secret: str, line: Lifeline) -> None:
    while True:
        connected, _ = listening.accept()
        connected.settimeout(10)
        with suppress(OSError, ValueError, KeyError, TypeError):
            hello = json.loads(_first_line(connected))
            if secrets.compare_digest(hello["secret"], secret):
                line.add(_Connection(connected, int(hello["number"]), str(hello["host"])))
                continue
        connected.close()  # a stranger


def _first_line(connected: socket.socket) -> bytes:
    """Reads no further than this line."""
    line = b""
    while not line.endswith(b"\n") and len(line) < MOST_TOLD:
        read = connected.recv(1)
        if not read:
            break
        line += read
    return line
