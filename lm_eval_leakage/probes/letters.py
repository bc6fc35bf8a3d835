"""A question put as benchmarks put it: its options shown and a letter asked for, or shown up to a label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase

from lm_eval_leakage.records import Question, Request
from lm_eval_leakage.rendering import context_and_block


def asked_for_letter(question: Question, options: Sequence[str], stem: str | None = None) -> tuple[Request, ...]:
    """One request a letter, in the benchmark's own prompt where that shows options.

    options: in the order to show, as many as the question has
    stem: words that stand in the place of everything before the options
    """
    before, block = context_and_block(question)
    after = "\nAnswer:" if question.frame is None else question.frame.after
    prompt = (before if stem is None else stem) + block(options) + after
    space = "" if prompt[-1:].isspace() else " "
    return tuple(Request(prompt, space + letter) for letter in _letters(question, len(options)))


def _letters(question: Question, n_options: int) -> Sequence[str]:
    if question.frame is None:
        return ascii_uppercase[:n_options]
    return [re.findall(r"\w+", marker)[-1] for marker in question.frame.markers]


def up_to_label(question: Question, place: int, format_name: str | None = None) -> str:
    """Question and options before `place`, ending with the label of `place` and no white space after it."""
    before, block = context_and_block(question, format_name)
    shown = block([*question.options[:place], *[""] * (len(question.options) - place)])
    following = block([*question.options[:place], MARK, *[""] * (len(question.options) - place - 1)])
    return (before + shown[: following.index(MARK)]).rstrip()


MARK = "\x1f"  # stands in no text
