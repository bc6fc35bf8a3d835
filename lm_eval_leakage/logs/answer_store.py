"""Stores a model's answers on disk as they arrive, so that a killed run resumes where it stopped.

A store is a folder of SQLite databases, one per process that wrote to it: no process ever waits for another's lock,
a file system shared by several nodes is safe, and a damaged file loses only its own answers. Every process reads all
of them, so a run may be resumed with another number of processes. An answer's key is a digest of the request and of
the model's identity; a row with a wrong checksum is not used.
"""

from __future__ import annotations

import json
import logging
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from itertools import islice
from operator import itemgetter
from pathlib import Path
from uuid import uuid4

from lm_eval_leakage.logs.run import identity_differences
from lm_eval_leakage.records import TokenScores

logger = logging.getLogger(__name__)

FOLDER = "leakage_answers"  # below a run's output folder
DATABASE_SUFFIX = ".sqlite"
ANSWERS_AT_ONCE = 16384  # written in one transaction
SECONDS_AT_ONCE = 2.0  # of answers, which a kill may lose
KEYS_OF_A_QUERY = 500
CHECKSUM_SIZE = 8  # bytes
NAMING = ("peft", "delta", "pretrained", "model", "path", "engine")  # arguments that name the model, as in lm_eval
TABLES = """
CREATE TABLE answers (key BLOB PRIMARY KEY, answer BLOB NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE model (identity TEXT NOT NULL, name TEXT NOT NULL);
"""
Answer = tuple[float, bool] | str | TokenScores  # to loglikelihood, generate_until and token_scores


class AnswerStore:
    """A store of answers that one process writes and looks up.

    folder: created if missing
    identity: the model's identity, as names and values; answers of other models are never returned
    name: the model's name, used only by `others`
    """

    def __init__(self, folder: Path, identity: Mapping[str, str], name: str = "") -> None:
        self.folder, self.identity, self.name = folder, dict(identity), name
        identity_text = json.dumps(sorted(self.identity.items())).encode("utf-8", "surrogatepass")
        self._salted = blake2b(digest_size=16, key=blake2b(identity_text, digest_size=16).digest())
        self._added: list[tuple[bytes, bytes, bytes]] = []
        self._written_at = time.monotonic()
        self._database: sqlite3.Connection | None = None
        self._is_full = False
        self.n_kept = 0

    # ------------------------------------------------------------------ finding

    def find(self, keys: Iterable[bytes]) -> dict[bytes, Answer]:
        """Return the stored answers to these requests, whichever process stored them."""
        by_model_key = {self._model_key(key): key for key in keys} if any(self._files()) else {}
        answers: dict[bytes, Answer] = {}
        for file in self._files():
            missing = [model_key for model_key, key in by_model_key.items() if key not in answers]
            try:
                answers.update((by_model_key[model_key], answer) for model_key, answer in _read(file, missing))
            except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # SQLite's internal names may be damaged too
                logger.warning("%s is damaged (%s); the answers that cannot be read are requested again", file, error)
        return answers

    def others(self) -> list[str]:
        """Return in words how models of the same name with answers in the folder differ from this one. A user may
        expect their answers to be used."""
        differences = []
        for file in self._files():
            other, name = _model(file)
            if other and other != self.identity and name == self.name:
                differences.append(identity_differences(other, self.identity))
        return list(dict.fromkeys(differences))

    # ------------------------------------------------------------------ keeping

    def add(self, key: bytes, answer: Answer) -> None:
        """Store an answer; it is on disk after at most SECONDS_AT_ONCE of further answers, or after `flush`."""
        model_key, text = self._model_key(key), encoded(answer)
        self._added.append((model_key, text, _checksum(model_key, text)))
        if len(self._added) >= ANSWERS_AT_ONCE or time.monotonic() - self._written_at > SECONDS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write what was added to disk. A full disk is logged once, and the run continues without storing answers."""
        rows, self._added = self._added, []
        self._written_at = time.monotonic()
        if not rows or self._is_full:
            return
        try:
            database = self._database = self._database or self._create()
            with database:
                # in the order of their keys, so that a page of the table is written once, not once per row
                ordered = sorted(rows, key=itemgetter(0))
                database.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", ordered)
            self.n_kept += len(rows)
        except (sqlite3.Error, OSError) as error:
            self._is_full = True
            logger.warning(
                "answers can no longer be stored in %s (%s); the run continues, but a kill would lose them",
                self.folder,
                error,
            )

    def close(self) -> None:
        """Write what was added, and close the database."""
        self.flush()
        if self._database is not None:
            self._database.close()
            self._database = None

    def _model_key(self, key: bytes) -> bytes:
        """Return a digest of a request's key and the model's identity."""
        digest = self._salted.copy()
        digest.update(key)
        return digest.digest()

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{DATABASE_SUFFIX}"))

    def _create(self) -> sqlite3.Connection:
        """Create the database of this process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{socket.gethostname()}-{uuid4().hex}{DATABASE_SUFFIX}"
        database = sqlite3.connect(self.folder / name)
        database.execute("PRAGMA journal_mode=DELETE")  # no side files are left, and no shared memory is needed
        database.execute("PRAGMA synchronous=NORMAL")
        with database:
            database.executescript(TABLES)
            database.execute("INSERT INTO model VALUES (?, ?)", (json.dumps(self.identity), self.name))
        return database


def encoded(answer: Answer) -> bytes:
    """Return an answer as JSON: [log-likelihood, greedy], a text, or {"tokens": [...]}."""
    if isinstance(answer, TokenScores):
        return json.dumps({"tokens": [answer.loglikelihoods, answer.means, answer.deviations]}).encode()
    return json.dumps(answer).encode()


def decoded(text: bytes) -> Answer:
    """Return the answer that `encoded` returned as JSON."""
    content = json.loads(text)
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return TokenScores(*map(tuple, content["tokens"]))
    loglikelihood, greedy = content
    return loglikelihood, greedy


def _read(file: Path, keys: Sequence[bytes]) -> Iterator[tuple[bytes, Answer]]:
    """Yield the intact answers of a file to these keys."""
    remaining = iter(keys)
    with closing(_connected(file)) as database:
        database.text_factory = bytes  # a damaged text may not be valid UTF-8
        while some := list(islice(remaining, KEYS_OF_A_QUERY)):
            marks, wanted = ",".join("?" * len(some)), set(some)
            query = f"SELECT key, answer, checksum FROM answers WHERE key IN ({marks})"
            for key, text, checksum in database.execute(query, some):
                if key in wanted and isinstance(text, bytes) and checksum == _checksum(key, text):
                    yield key, decoded(text)


def _connected(file: Path) -> sqlite3.Connection:
    """Return a connection for reading. It has write access: after a kill during a commit, SQLite must roll back the
    journal before the file can be read. It leaves the journal of a living process alone."""
    return sqlite3.connect(f"{file.resolve().as_uri()}?mode=rw", uri=True)


def _model(file: Path) -> tuple[dict[str, str], str]:
    """Return the identity and the name of the model whose answers a file has; empty if they cannot be read."""
    try:
        with closing(_connected(file)) as database:
            ((identity, name),) = database.execute("SELECT identity, name FROM model").fetchall()
        content = json.loads(identity)
    except (sqlite3.Error, ValueError, TypeError):
        return {}, ""
    return (content, str(name)) if isinstance(content, dict) else ({}, "")


def _checksum(key: bytes, text: bytes) -> bytes:
    return blake2b(key + text, digest_size=CHECKSUM_SIZE).digest()
