"""Prompts in the benchmark's own form: options shown and a letter asked for, or options shown up to a label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase

from lm_eval_leakage.questions.rendering import context_and_block
from lm_eval_leakage.records import Question, Request, UntestableQuestion


def asked_for_letter(question: Question, options: Sequence[str], stem: str | None = None) -> tuple[Request, ...]:
    """One request per letter, in the benchmark's own prompt if that shows the options.

    options: in the order to show, as many as the question has
    stem: text that replaces everything before the options
    """
    before, block = context_and_block(question)
    after = "\nAnswer:" if question.frame is None else question.frame.after
    prompt = (before if stem is None else stem) + block(options) + after
    space = "" if prompt[-1:].isspace() else " "
    return tuple(Request(prompt, space + letter) for letter in _letters(question, len(options)))


def _letters(question: Question, n_options: int) -> Sequence[str]:
    if question.frame is None:
        if n_options > len(ascii_uppercase):
            raise UntestableQuestion(f"{n_options} options, but labels end at Z; the limit is 26")
        return ascii_uppercase[:n_options]
    labels = [re.findall(r"\w+", marker) for marker in question.frame.markers]
    if not all(labels):
        raise UntestableQuestion("the task shows its options without labels, so none can be asked for")
    return [words[-1] for words in labels]


def up_to_label(question: Question, place: int, format_name: str | None = None) -> str:
    """Question and options before `place`, ending with the label of `place` and no white space after it."""
    before, block = context_and_block(question, format_name)
    left = len(question.options) - place
    shown = block([*question.options[:place], *[""] * left])
    mark = next((character for character in map(chr, PRIVATE_USE) if character not in shown), None)
    if mark is None:
        raise UntestableQuestion("its text uses every character that could serve as a marker")
    following = block([*question.options[:place], mark, *[""] * (left - 1)])
    return (before + shown[: following.index(mark)]).rstrip()


PRIVATE_USE = range(0xE000, 0xF900)  # Unicode's private-use area, unlikely in any text
