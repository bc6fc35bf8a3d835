"""Prompts of questions in random layouts, with the row that holds the options: labels, decorations, separators, white
space and instructions of real templates, and options that look like labels, numbers or text around them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_leakage.questions.reader import read_question
from lm_eval_leakage.records import UntestableQuestion

WORDS = (
    *("shawl", "oak", "fern", "willow", "barge", "plum", "quickstep", "alder", "fig", "harp", "jig", "silver"),
    *("cherry", "tin", "cumin", "clove"),
)
COLOURS = ("red", "blue", "lime", "grey", "pink", "gold", "dark", "pale")
OPTIONS: Mapping[str, Callable[[random.Random, int], list[str]]] = {
    "words": lambda rng, n: rng.sample(WORDS, n),
    "one word with more": lambda rng, n: [f"cat{' fish' * more}" for more in rng.sample(range(n), n)],
    "digits": lambda rng, n: [str(number) for number in rng.sample(range(1, n + 6), n)],
    "numbers": lambda rng, n: [
        rng.choice(["{}", "{}.5", "-{}", "${}", "{}%"]).format(number) for number in rng.sample(range(1, 99), n)
    ],
    "capital letters": lambda rng, n: rng.sample("ABCDEFGHJKLM", n),
    "small letters": lambda rng, n: rng.sample("abcdefghijklm", n),
    "ideographs": lambda rng, n: rng.sample("银枝河鸡山水火土木金", n),
    "words of ideographs": lambda rng, n: rng.sample(
        ["银河", "树枝", "河水", "小鸡", "高山", "清水", "大火", "泥土"], n
    ),
    "Arabic": lambda rng, n: rng.sample(["جبل", "طائر", "قلم", "سيارة", "بيت", "شجرة", "كتاب", "ماء"], n),
    "pictures": lambda rng, n: rng.sample("🌵🐦🌲🚗🏠🎈🍎🐟", n),
    "code": lambda rng, n: [f"def f(x):\n    return x + {number}" for number in rng.sample(range(20), n)],
    "sentences": lambda rng, n: [f"It was {colour}, but nobody saw it." for colour in rng.sample(COLOURS, n)],
    "labels inside": lambda rng, n: [f"{colour} and vitamin B. plus (C) x" for colour in rng.sample(COLOURS, n)],
    "white space": lambda rng, n: [
        rng.choice(["{}", " {}", "{} "]).format(option) for option in rng.sample(COLOURS, n)
    ],
    "brackets": lambda rng, n: [f"({colour})" for colour in rng.sample(COLOURS, n)],
    "quotation marks": lambda rng, n: [f'"{colour}"' for colour in rng.sample(COLOURS, n)],
    "answers": lambda rng, n: ["Yes", "No", "Maybe", "Never", "Often", "Always", "Both", "None"][:n],
    "formulas": lambda rng, n: [f"$x^{{{number}}} + 1$" for number in rng.sample(range(20), n)],
}
LABELS: Mapping[str, Sequence[str]] = {
    "capitals": "ABCDEFGH",
    "letters": "abcdefgh",
    "from 1": "12345678",
    "from 0": "01234567",
    "circled": "①②③④⑤⑥⑦⑧",
    "Roman": ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii"),
    "Roman capitals": ("I", "II", "III", "IV", "V", "VI", "VII", "VIII"),
    "Georgian": "აბგდევზთ",
    "Persian digits": "۱۲۳۴۵۶۷۸",
    "Hindi digits": "१२३४५६७८",
    "Thai": "กขคงจฉชซ",
    "Korean": "가나다라마바사아",
    "Chinese": "甲乙丙丁戊",
    "Russian": "АБВГДЕЖЗ",
    "Persian": ("الف", "ب", "ج", "د"),
    "Arabic": "أبجدهوزح",
    "wide": "ＡＢＣＤＥＦＧＨ",
}
BEFORE_LABEL = (
    *(
        "",
        "",
        "",
        "- ",
        "• ",
        "* ",
        "> ",
        "  ",
        "\t",
        "**",
        "<b>",
        "\u200b",
        "\u200e",
        "Option ",
        "Choice ",
        "Answer ",
    ),
    *("(", "[", "{", "<", "#", "### ", "| ", '"', "Option", "→ ", "• (", "1. ", "__", "`", "\\n"),
)
AFTER_LABEL = {"(": ") ", "[": "] ", "{": "} ", "<": "> ", "**": ".** ", "<b>": "</b> ", '"': '": ', "__": "__ "} | {
    "`": "` ",
    "• (": ") ",
}
FREE_AFTER_LABEL = (
    *(
        ". ",
        ") ",
        ": ",
        " - ",
        " = ",
        "\t",
        ".\n",
        "、",
        "．\u3000",
        " ",
        ".",
        "：",
        ") - ",
        " is ",
        "->",
        " | ",
        "\n",
    ),
    *(":", ". \u200e", "~ "),
)
BETWEEN = ("\n", "\n", "\n", "; ", " ", ", ", "<br>", "<br>\n", " | ", "\n\n", ";\n", ",\n", " |\n", ".\n", "</p>\n")
STEMS = (
    *(
        "Which of these is it?",
        "In 1850 there were 8 coins. How many were left in box 3?",
        "哪个是对的？",
        "Choose one",
    ),
    *("What did A. Smith say (B) to C?", "أي مما يلي صحيح؟", "Complete: the cat sat on the ___", "Is it a or b?"),
)
INSTRUCTIONS = (
    *("", "", "Question: ", "You are an expert. Think.\n\n"),
    "Given the following question and four candidate answers (A, B, C and D), choose the best answer.\nQuestion: ",
)
BEFORE_OPTIONS = ("\n", "\n", " ", "\nOptions:\n", "\nChoices: ")
AFTER_OPTIONS = (
    "\nAnswer:",
    "\nAnswer: ",
    "\n答案：",
    "\n",
    "",
    "\nAnswer with A, B, C or D:",
    "\n\nThe answer is",
    "\nA:",
)
SAYS_MORE = 3  # characters at the end of a stem that may be a sign before the options


@dataclass(frozen=True)
class Layout:
    """A prompt, the row that it was made of, its choices, its options in their order, and all that stands before
    them."""

    prompt: str
    row: Mapping[str, Any]
    choices: Sequence[str]
    options: Sequence[str]
    before: str

    def fault(self) -> str:
        """Return what is wrong with how the question is read; empty if it is read exactly or refused."""
        try:
            question = read_question(self.row, self.prompt, self.choices, 0)
        except UntestableQuestion:
            return ""
        if question.frame is None:
            return "asked a second time"
        if [option.split() for option in question.options] != [option.split() for option in self.options]:
            return f"cut wrongly: {question.options}"
        if question.frame.text(question.options) != self.prompt:
            return "another prompt"
        is_stem = question.stem.startswith(self.before) or self.before.startswith(question.stem)
        return "" if is_stem and len(question.stem) <= len(self.before) + SAYS_MORE else f"stem {question.stem!r}"


def random_layout(rng: random.Random) -> Layout:
    """A prompt that shows options which its row holds as values."""
    labels = LABELS[rng.choice([*LABELS])] if rng.random() < 0.8 else ()
    n = min(rng.choice([2, 3, 4, 4, 4, 5, 8]), len(labels) or 8)
    kind = rng.choice([*OPTIONS])
    options = OPTIONS[kind](rng, n)
    shown = [option.strip() for option in options] if rng.random() < 0.5 else options
    before_label, between = rng.choice(BEFORE_LABEL), rng.choice(BETWEEN)
    after_label = AFTER_LABEL.get(before_label) or rng.choice(FREE_AFTER_LABEL)
    if labels:
        lines = [f"{before_label}{label}{after_label}{option}" for label, option in zip(labels, shown, strict=False)]
    else:
        sign = before_label if not before_label.strip().isalpha() and before_label not in AFTER_LABEL else ""
        lines = [f"{sign}{option}" for option in shown]
    stem = rng.choice(STEMS)
    before = rng.choice(INSTRUCTIONS) + stem + rng.choice(BEFORE_OPTIONS)
    after = rng.choice(["", between if between.strip() else ""]) + rng.choice(AFTER_OPTIONS)
    rows: list[dict[str, Any]] = [
        {"q": stem, "opts": options, "key": 1},
        {"question": stem, "choices": options, "answer": 1},
        {"q": stem, **{f"o{place}": option for place, option in enumerate(options)}, "key": 1},
        {"q": stem, "o": [{"t": option} for option in options]},
        {"q": stem, "right": options[0], "wrong": options[1:]},
    ]
    choices = options if not labels or rng.random() < 0.4 else [*labels[:n]]
    return Layout(before + between.join(lines) + after, rng.choice(rows), choices, options, before)
