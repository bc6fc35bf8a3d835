"""Tokenises requests by the harness's own rules, but in batches, and what lines have in common once: the harness
encodes each context and each whole text separately, which takes longer than scoring them on a GPU.

Requests are prepared in portions: while the model scores one, the next is tokenised in a thread. Only two portions are
in memory at a time. Requests that share a prefix are usually next to each other; what two portions share is computed
twice, which is about a hundredth of the work.

A text's value depends, by rounding, on the texts that are computed with it: those of its portion. So portions are cut
from all requests of a run, and a run that is resumed asks those that are incomplete as a whole.
"""

from __future__ import annotations

import logging
import random
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

from lm_eval_leakage.harness.models.safe_cuts import SafeCuts, cut_at_space, cut_into_lines, safe_cut
from lm_eval_leakage.scoring.prefix_tree import IntArray, Texts

logger = logging.getLogger(__name__)
S = TypeVar("S")
T = TypeVar("T")
Pair = tuple[str, str]  # context, continuation
TOKEN_SIZE = 4  # bytes of an id in `token_bytes`
AT_ONCE = 4096  # requests
FEWEST_PAIRS = 256  # for fewer, it is not worth looking for safe cuts
N_CHECKED = 2  # strings of each batch whose joined tokens are compared with their own
MOST_REQUESTS = 512  # what a kill may cost; a question that two portions share costs about a hundredth
AS_VLLM = "vllm", -1, "max_model_len"  # an engine generates at least one token


def encoded_whole(tokenizer: Any, strings: Sequence[str], special: bool | None) -> dict[str, bytes]:
    """Return token ids, as `token_bytes`, by string, each string encoded on its own.

    special: whether special tokens are added; None for the tokenizer's default
    """
    if not strings:
        return {}
    options = {} if special is None else {"add_special_tokens": special}
    rows = tokenizer([*strings], return_attention_mask=False, return_token_type_ids=False, **options)["input_ids"]
    return {string: token_bytes(row) for string, row in zip(strings, rows, strict=True)}


def encoded_by_lines(tokenizer: Any, cuts: SafeCuts, strings: Sequence[str], special: bool | None) -> dict[str, bytes]:
    """Return the same as `encoded_whole`, but encode what lines have in common only once: each option of a question,
    for example, and not each option with each letter."""
    bare, framed = (encoded_whole(tokenizer, ["a"], added)["a"] for added in (False, special))
    if not framed.endswith(bare):  # special tokens at the end of a text
        return encoded_whole(tokenizer, strings, special)
    frame, rows = framed.removesuffix(bare), [cut_into_lines(string, cuts) for string in strings]
    lines = {line: cut_at_space(line, cuts) for line in {line for row in rows for line in row}}
    parts = [*{part for parts_of_line in lines.values() for part in parts_of_line}]
    # the tokenizer itself was just called, which turned off padding and truncation; its own work on each string would
    # take twice as long again
    encoded = tokenizer.backend_tokenizer.encode_batch_fast(parts, add_special_tokens=False)
    of_parts = {part: token_bytes(encoding.ids) for part, encoding in zip(parts, encoded, strict=True)}
    of_lines = {line: b"".join(map(of_parts.__getitem__, parts_of_line)) for line, parts_of_line in lines.items()}
    joined = (b"".join([frame, *map(of_lines.__getitem__, row)]) for row in rows)
    return dict(zip(strings, joined, strict=True))


def token_bytes(ids: Sequence[int]) -> bytes:
    """Return token ids as bytes, which are joined, cut and compared in less time than arrays."""
    return array("i", ids).tobytes()


def tokens_in(joined: bytes) -> IntArray:
    """Return the ids that were turned into bytes, read-only."""
    return np.frombuffer(joined, np.int32)


def encoded_pairs(lm: Any, pairs: Sequence[Pair], disable_tqdm: bool = True) -> Iterator[tuple[IntArray, IntArray]]:
    """Tokens of each (context, continuation), as `lm` would encode them one by one: the continuation is what follows
    the context's tokens in the whole text, trailing spaces of the context are moved to the continuation, and a text
    without context follows the prefix token. The arrays are read-only."""
    encoder = PairEncoder(lm, len(pairs))
    with tqdm(total=len(pairs), disable=disable_tqdm, desc="Tokenizing inputs") as bar:
        for first in range(0, len(pairs), AT_ONCE):
            some = encoder.batch(pairs[first : first + AT_ONCE])
            yield from some.pairs()
            bar.update(len(some))


class PairEncoder:
    """Encodes batches of (context, continuation) pairs for `lm`, by lines where the tokenizer allows it."""

    def __init__(self, lm: Any, n_pairs: int) -> None:
        self.lm = lm
        self._prefix = lm.tokenizer.decode(lm.prefix_token_id)
        self._prefix_token = token_bytes([lm.prefix_token_id])
        self._cuts = safe_cut(lm.tokenizer) if n_pairs >= FEWEST_PAIRS else None

    def batch(self, pairs: Sequence[Pair]) -> Texts:
        """Return the tokens as `encoded_pairs` does, of which the continuations are scored; equal parts are encoded
        once per batch."""
        some = [(_without_spaces(*pair), "".join(pair)) for pair in pairs]
        ids = self._encoded([text for pair in some if pair[0] for text in pair])
        alone = self._encoded([whole for context, whole in some if not context], special=False)
        rows: list[bytes] = []  # a context, its continuation, the next context ...
        for context, whole in some:
            if context:
                before = ids[context]
                rows += before, ids[whole][len(before) :]
            else:
                rows += self._prefix_token, alone[whole].removeprefix(self._prefix_token)
        lengths = np.fromiter(map(len, rows), np.int32, len(rows)) // TOKEN_SIZE
        return Texts(tokens_in(b"".join(rows)), lengths[::2] + lengths[1::2], lengths[1::2])

    def _encoded(self, strings: Sequence[str], special: bool | None = None) -> dict[str, bytes]:
        """Return token ids by string. `special`: whether to add special tokens; None leaves it to the model's
        arguments, and adds none to a string that begins with one."""
        distinct = dict.fromkeys(strings)
        marked = [string for string in distinct if special is None and string.startswith(self._prefix)]
        usual = self.lm.add_bos_token if special is None else special
        ids = self._of_each(marked, False)
        return ids | self._of_each([string for string in distinct if string not in ids], usual)

    def _of_each(self, strings: list[str], special: bool | None) -> dict[str, bytes]:
        if self._cuts is None:
            return encoded_whole(self.lm.tokenizer, strings, special)
        joined = encoded_by_lines(self.lm.tokenizer, self._cuts, strings, special)
        checked = random.Random(len(strings)).sample(strings, min(N_CHECKED, len(strings)))
        for string, tokens in encoded_whole(self.lm.tokenizer, checked, special).items():
            if joined[string] != tokens:
                logger.warning(
                    "the tokens of %r are not those of its parts joined, so from here on texts are tokenised whole, "
                    "which is slower; please report this tokenizer (%s)",
                    string[:200],
                    type(self.lm.tokenizer).__name__,
                )
                self._cuts = None
                return encoded_whole(self.lm.tokenizer, strings, special)
        return joined


def _without_spaces(context: str, continuation: str) -> str:
    """Return the context without trailing spaces, which are moved to the continuation."""
    kept = context.rstrip()
    if context and not kept:
        raise ValueError(
            f"the context {context!r} (before {continuation[:60]!r}) is only white space, which is moved to the "
            "continuation; give an empty context, or one with text"
        )
    return kept


def in_portions(n_requests: int) -> list[slice]:
    """Return consecutive requests, MOST_REQUESTS each."""
    return [slice(first, first + MOST_REQUESTS) for first in range(0, n_requests, MOST_REQUESTS)]


def one_ahead(call: Callable[[S], T], arguments: Iterable[S]) -> Iterator[T]:
    """Yield the results of the calls, in order; the next one is computed in a thread while the caller works on one."""
    with ThreadPoolExecutor(1, thread_name_prefix="tokenising") as pool:
        upcoming: deque[Future[T]] = deque()
        for argument in arguments:
            upcoming.append(pool.submit(call, argument))
            if len(upcoming) > 1:
                yield upcoming.popleft().result()
        yield from (last.result() for last in upcoming)


class FittedTexts:
    """Requests as a backend of the harness fits them into the model's window: truncated on the left. Counts those that
    are.

    n_beyond: by how many tokens the longest text exceeds the window; 1 for `hf`, since the last token is no input
    argument: of the model, which sets the window
    """

    def __init__(self, window: int, backend: str = "hf", n_beyond: int = 1, argument: str = "max_length") -> None:
        self.window, self.backend, self.argument = window, backend, argument
        self._longest = window + n_beyond
        self._n_cut = self._n_texts = 0

    def texts(self, pairs: Sequence[Pair], encoded: Texts) -> Texts:
        """Return the texts, cut to the window. Raises ValueError for a continuation that does not fit.

        encoded: contexts with their continuations, which are scored
        """
        n_scored, n_before = encoded.n_scored, encoded.lengths - encoded.n_scored
        wrong = np.flatnonzero((n_scored < 1) | (n_scored >= self._longest) | (n_before < 1))
        for place in wrong.tolist():
            raise ValueError(
                f"a request has {n_before[place]} tokens of context and {n_scored[place]} of continuation "
                f"({pairs[place][1][:60]!r}); it needs at least one of each, and a continuation may "
                f"have at most {self._longest - 1} in the model's window of {self.window}: raise "
                f"{self.argument}, or leave this request out"
            )
        self._n_texts += len(encoded)
        self._n_cut += int(np.count_nonzero(encoded.lengths > self._longest))
        return encoded.without_beginnings(self._longest)

    def warn_if_cut(self) -> None:
        if self._n_cut:
            logger.warning(
                "%d of %d texts are longer than the model's window of %d tokens, and truncated on the left as by `%s`",
                self._n_cut,
                self._n_texts,
                self.window,
                self.backend,
            )
