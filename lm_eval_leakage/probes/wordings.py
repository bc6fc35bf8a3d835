"""The stem of a sealed question in every wording that its author gave, of which a secret key drew the public one.

Null hypothesis: given its wordings, each is equally likely to be the public one, so that a model that never saw the
published version prefers it no more than another, whatever it knows and however well the wordings read. Limits: needs
the private folder and two wordings or more of a question; only stems are shown, so that the result depends on no other
draw of the key. The log holds the private wordings. Source: keyed rewordings, STAMP (arXiv 2504.13416); exact p-values
by drawing what is published, Zhang et al. (arXiv 2409.19798).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from lm_eval_leakage.detector_ids import OUTSIDE_ID
from lm_eval_leakage.probes import Probe, probes
from lm_eval_leakage.records import Question, Request, UntestableQuestion

OfQuestion = Callable[[Question], Sequence[str]]


def no_wordings(question: Question) -> Sequence[str]:
    """Of a question without a seal."""
    raise UntestableQuestion("it has no private wordings without a seal; give --metadata seal=PRIVATE_FOLDER")


@probes.register("wordings")
@dataclass(frozen=True)
class Wordings(Probe):
    """Continuation = the stem alone in one wording; request 0 is the public one.

    stem_prefix: what stands before the stem; the default is nothing, as at the beginning of a document
    """

    needs_seal: ClassVar[bool] = True
    stem_prefix: str = ""
    of: Callable[[Question], Sequence[str]] = field(
        default=no_wordings, repr=False, compare=False, metadata=OUTSIDE_ID
    )

    def __post_init__(self) -> None:
        if not isinstance(self.stem_prefix, str):
            raise ValueError(f"stem_prefix is {self.stem_prefix!r}; give a text to stand before it, or leave it out")

    def with_wordings(self, of: Callable[[Question], Sequence[str]]) -> Probe:
        return replace(self, of=of)

    def requests(self, question: Question) -> tuple[Request, ...]:
        texts = [wording.strip() for wording in self.of(question)]
        if len(texts) < 2:
            raise UntestableQuestion("its author gave one wording; at least 2 are needed")
        if len(set(texts)) < len(texts):
            raise UntestableQuestion("two of its wordings are the same, which makes that one likelier to be public")
        start = " " if self.stem_prefix and not self.stem_prefix[-1].isspace() else ""
        return tuple(Request(self.stem_prefix, start + text) for text in texts)
