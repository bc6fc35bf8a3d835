"""Reads the seal that `--metadata seal=PRIVATE_FOLDER` names, and which of a task's questions it covers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lm_eval_leakage.detectors import Probe
from lm_eval_leakage.harness.tasks.base_task import RefusedAudit
from lm_eval_leakage.harness.tasks.templates import SEAL_KEY, no_seal
from lm_eval_leakage.questions.slots import Exchange
from lm_eval_leakage.records import Question, Shard, UntestableQuestion
from lm_eval_leakage.results.published_orders import NullStatus, OrderStatus
from lm_eval_leakage.seal.drawn import Seal
from lm_eval_leakage.seal.folders import read_seal

SEALED_SHARDS: Mapping[str, Any] = {"examples": 4, "permutations": 23}  # all 24 orders
_read = cache(read_seal)


def seal_of(metadata: Mapping[str, Any], probe: Probe) -> Seal | None:
    """Return the seal that a task's metadata names; None without one, and if a key drew nothing that the probe asks.

    Raises ValueError, with the remedy, if the folder is no private folder, or if the probe needs one and gets none.
    """
    given = metadata.get(SEAL_KEY)
    if given is None and probe.needs_seal:
        raise ValueError(no_seal(f"the probe {metadata['probe']!r}"))
    asks_orders = probe.needs_seal or probe.asks_orders or probe.needs_drawn_orders or probe.of_shards(()) is not None
    if given is None or not (asks_orders or probe.exchanges_fillers):
        return None
    seal = seal_in(given)
    return seal if asks_orders or seal.is_of_texts else None


def seal_in(given: object) -> Seal:
    """Return the seal in a private folder, as `--metadata` names it; it is read once."""
    if not isinstance(given, (str, Path)) or not str(given):
        raise ValueError(f"{SEAL_KEY} is {given!r}; name the private folder that `lm-eval-leakage seal` wrote")
    return _read(Path(given).resolve())


def sealed_status(seal: Seal) -> NullStatus:
    """Return the status of sealed orders, which were recomputed from the key when the seal was read.

    It holds whatever a test of randomness says by chance.
    """
    says = f"`{OrderStatus.SEALED}`: drawn with the key of {seal.name!r}, commitment {seal.commitment}"
    return NullStatus(OrderStatus.SEALED, says)


def refuse_foreign(seal: Seal | None, task: str, questions: Iterable[Question]) -> None:
    """Raises RefusedAudit if there is a seal, and the task has no question of it."""
    if seal is None:
        return
    shown = "no question that can be read"
    for question in questions:
        if seal.find(question) is not None:
            return
        shown = f"questions such as {question.stem[:80]!r}"
    raise RefusedAudit(
        f"{task} has none of the {len(seal.questions)} questions that {seal.name!r} published ({shown}); name the "
        f"private folder of this benchmark as {SEAL_KEY}, or audit the public file that belongs to it"
    )


def refuse_untestable(probe: Probe, seal: Seal, question: Question) -> None:
    """Raises UntestableQuestion, with the reason, for a question about which the seal says nothing."""
    if isinstance(question, Shard):
        return
    entry = seal.find(question)
    if entry is None:
        raise UntestableQuestion(f"it is not one of the questions that {seal.name!r} published")
    if (probe.asks_orders or probe.needs_drawn_orders) and not entry.order_drawn:
        raise UntestableQuestion("its options depend on their order, which its author kept, so that no key drew it")


def wordings_of(seal: Seal, question: Question) -> Sequence[str]:
    """Return all wordings of a question, the public one first; none if the seal does not have it."""
    entry = seal.find(question)
    return () if entry is None else entry.wordings


def exchange_of(seal: Seal, question: Question) -> Exchange | None:
    """Return the slot of a sealed text and the block in which a key drew its filler; None if none was drawn."""
    text = seal.find(question)
    if text is None or text.exchange is None or text.wordings[0] != question.stem:
        return None
    return text.exchange


def by_place(seal: Seal, questions: Iterable[Question]) -> dict[int, Question]:
    """Return the sealed ones among a task's questions, by their places in the public file."""
    entries = ((seal.find(question), question) for question in questions)
    return {int(entry.id): question for entry, question in entries if entry is not None}
