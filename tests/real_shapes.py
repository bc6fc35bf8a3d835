"""Rows in the shape of well-known data sets, by their names on the Hub: the fields and kinds of values of the real
data, with invented questions, for tasks whose data cannot be had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]

PLANTS = ("fern", "moss", "reed", "clover", "ivy", "thyme", "nettle", "heather", "lichen", "sorrel", "mallow")
PLACES = ("harbour", "quarry", "orchard", "mill", "chapel", "bakery", "stable", "tower", "garden", "forge", "inn")
NAMES = ("Hannah", "Omar", "Susan", "Kevin", "Paula", "Luis", "Irene", "Brian")
LETTERS = "ABCDEFGHIJ"


def _options(row: int, n: int = 4) -> list[str]:
    return [f"{PLANTS[(row * 3 + place * 2) % len(PLANTS)]} of kind {row + place}" for place in range(n)]


def _stem(row: int) -> str:
    place = PLACES[row % len(PLACES)]
    return f"A gardener of the {place} planted {row + 3} beds in spring. Which plant was in bed {row % 3 + 1}?"


def _columns(row: int, names: str = LETTERS[:4]) -> Row:
    return dict(zip(names, _options(row, len(names)), strict=True))


def _gpqa(row: int) -> Row:
    right, *wrong = _options(row)
    return {
        "Question": _stem(row),
        "Correct Answer": right,
        **{f"Incorrect Answer {place}": text for place, text in enumerate(wrong, 1)},
    }


def _lines(line: str, row: int, n: int) -> str:
    return "\n".join(line.format(letter, option) for letter, option in zip(LETTERS, _options(row, n), strict=False))


def _bbh(row: int) -> Row:
    return {"input": f"{_stem(row)}\nOptions:\n{_lines('({}) {}', row, 3)}", "target": f"({LETTERS[row % 3]})"}


def _inverse_scaling(row: int) -> Row:
    lines = _lines("{}. {}", row, 2)
    return {"prompt": f"{_stem(row)}\n{lines}\nAnswer:", "classes": [" A", " B"], "answer_index": row % 2}


def _of_words(*words: str) -> Callable[[int], Row]:
    return lambda row: {"input": f"{_stem(row)} The answer is", "target": words[row % len(words)]}


def _musr(row: int) -> Row:
    return {
        "narrative": f"{_stem(row)} Nobody saw it. The gate was open.",
        "question": "Who is the most likely thief?",
        "choices": str([f"{PLACES[row % 11].title()} Smith", f"{PLANTS[row % 11].title()} Jones"]),
        "answer_index": row % 2,
        "answer_choice": f"{(PLACES if row % 2 == 0 else PLANTS)[row % 11].title()} {'Jones' if row % 2 else 'Smith'}",
    }


def _marked(row: int, n: int) -> Row:
    return {"choices": _options(row, n), "labels": [1, *[0] * (n - 1)]}


def _winogrande(row: int) -> Row:
    first, two = NAMES[row % len(NAMES)], NAMES[(row + 1) % len(NAMES)]
    sentence = f"{first} dug the {PLACES[row % 11]} and not {two}, since _ was at the {PLANTS[row % 11]}."
    return {"sentence": sentence, "option1": first, "option2": two, "answer": str(row % 2 + 1)}


def _wsc(row: int) -> Row:
    text = f"The {PLACES[row % 11]} hid the {PLANTS[row % 11]} because it was too small."
    options = [f"The {PLACES[row % 11]}", f"The {PLANTS[row % 11]}"]
    place = text.index(" it ") + 1
    return {"text": text, "pronoun": "it", "pronoun_loc": place, "options": options, "label": row % 2}


def _race(row: int) -> Row:
    problem = {"question": _stem(row), "answer": LETTERS[row % 4], "options": _options(row)}
    return {"article": f"There was a garden beside the {PLACES[row % 11]}.", "problems": str([problem])}


def _swag(row: int) -> Row:
    endings = {f"ending{place}": f"waters the {option}." for place, option in enumerate(_options(row))}
    return {"startphrase": f"{_stem(row)} He", **endings, "label": row % 4}


def _lettered(row: int, names: tuple[str, ...], answer: str, **fields: Sequence[object]) -> Row:
    """A question with a column for each option; of `fields`, which tasks filter by, each row has the next value."""
    of_row = {name: values[row % len(values)] for name, values in fields.items()}
    columns = dict(zip(names, _options(row, len(names)), strict=True))
    return {"question": _stem(row), **columns, answer: LETTERS[row % len(names)], **of_row}


def _renamed(row: Row, **names: str) -> Row:
    return {names.get(name, name): value for name, value in row.items()}


def _csatqa(row: int) -> Row:
    columns = {f"option#{place}": option for place, option in enumerate(_options(row, 5), 1)}
    return {"question": _stem(row), "context": "A garden.", **columns, "gold": row % 5 + 1}


def _copa(row: int) -> Row:
    first, two = _options(row, 2)
    kind = "cause" if row % 2 else "effect"
    premise = f"The {PLACES[row % 11]} was closed on day {row}."
    return {
        "premise": premise,
        "choice1": f"The {first} grew.",
        "choice2": f"The {two} dried.",
        "question": kind,
        "label": 0,
    }


def _math_qa(row: int) -> Row:
    options = " , ".join(f"{letter.lower()} ) {row + place * 3}" for place, letter in enumerate(LETTERS[:5]))
    return {"Problem": f"How many beds are {row} and {row + 3} beds?", "options": options, "correct": "a"}


def _winogender(row: int) -> Row:
    return {
        "sentence": f"The gardener told the guest that he had planted {row} beds.",
        "pronoun": "he",
        "occupation": "gardener",
        "participant": "guest",
        "gender": ("male", "female", "neutral")[row % 3],
        "label": row % 2,
    }


def _with_lists(row: int, n: int, **fields: object) -> Row:
    return {"question": _stem(row), "choices": _options(row, n), **fields}


OPTION_A = ("option_a", "option_b", "option_c", "option_d")
MMLU_SUBJECTS = (
    *("abstract_algebra", "anatomy", "astronomy", "business_ethics", "clinical_knowledge", "college_biology"),
    *("college_chemistry", "college_computer_science", "college_mathematics", "college_medicine", "college_physics"),
    *("computer_security", "conceptual_physics", "econometrics", "electrical_engineering", "elementary_mathematics"),
)
CATEGORIES = ("Business", "Humanities", "Medical", "Other", "STEM", "Social Sciences")
DOMAINS = (
    *("Applied Science", "Arts & Humanities", "Business & Commerce", "Driving License", "General knowledge"),
    *("Health oriented education", "Marine License", "Medical License", "Professional certification", "STEM"),
    "Social Science",
)
SHAPES: Mapping[str, Callable[[int], Row]] = {
    "alexandrainst/m_truthfulqa": lambda row: {
        "question": _stem(row),
        "mc1_targets_choices": _options(row),
        "mc1_targets_labels": [1, 0, 0, 0],
        "mc2_targets_choices": _options(row, 6),
        "mc2_targets_labels": [1, 1, 0, 0, 0, 0],
    },
    "ofir408/MedConceptsQA": lambda row: {
        "question": f"{_stem(row)}\n{_lines('{}. {}', row, 4)}",
        "answer_id": LETTERS[row % 4],
    },
    "HAERAE-HUB/HAE_RAE_BENCH": lambda row: {
        "query": f"{_stem(row)}\n{_lines('({}) {}', row, 5)}\n",
        "answer": f"({LETTERS[row % 5]})",
    },
    "CohereLabs/Global-MMLU": lambda row: _lettered(
        row, OPTION_A, "answer", subject=MMLU_SUBJECTS, subject_category=CATEGORIES
    ),
    "CohereLabs/Global-MMLU-Lite": lambda row: _lettered(row, OPTION_A, "answer", subject_category=CATEGORIES),
    "openai/MMMLU": lambda row: _renamed(
        _lettered(row, (*"ABCD",), "Answer", Subject=MMLU_SUBJECTS), question="Question"
    ),
    "CohereForAI/include-base-44": lambda row: (
        _lettered(row, OPTION_A, "answer", domain=DOMAINS) | {"answer": row % 4}
    ),
    "bharatgenai/IndicParam": lambda row: (
        _renamed(
            _lettered(row, OPTION_A, "correct_answer", subject=("Bodo", "Dogri", "Nepali", "Sanskrit")),
            question="question_text",
        )
        | {"correct_answer": "abcd"[row % 4]}
    ),
    "masakhane/afrimmlu": lambda row: {
        "question": _stem(row),
        "choices": str(_options(row)),
        "answer": LETTERS[row % 4],
        "subject": "botany",
    },
    "hails/bigbench": lambda row: {
        "inputs": _stem(row),
        "targets": _options(row)[:1],
        "multiple_choice_targets": _options(row),
        "multiple_choice_scores": [1, 0, 0, 0],
    },
    "MBZUAI/ArabicMMLU": lambda row: {
        **_renamed(
            _lettered(row, tuple(f"Option {place}" for place in range(1, 5)), "Answer Key"), question="Question"
        ),
        **{"Option 5": None, "Context": "", "Level": "High", "Country": "Egypt", "Subject": "History"},
    },
    "OALL/AlGhafa-Arabic-LLM-Benchmark-Native": lambda row: {
        "query": _stem(row),
        **{f"sol{place}": option for place, option in enumerate(_options(row), 1)},
        "label": str(row % 4),
    },
    "OALL/Arabic_MMLU": lambda row: _lettered(row, (*"ABCD",), "answer", subject=("botany",)),
    "OALL/ACVA": lambda row: {"id": str(row), "question": _stem(row), "answer": ("صح", "خطأ")[row % 2]},
    "QCRI/AraDICE-ArabicMMLU-egy": lambda row: {
        **{"question": _stem(row), "context": "", "options": _columns(row), "Answer Key": LETTERS[row % 4]},
        **{"Level": "High", "Country": "Egypt", "Subject": "History"},
    },
    "QCRI/AraDiCE-OpenBookQA": lambda row: {
        "question": {
            "stem": _stem(row),
            "choices": [{"label": label, "text": text} for label, text in zip("ABCD", _options(row), strict=True)],
        },
        "answerKey": LETTERS[row % 4],
    },
    "MBZUAI/ArabCulture": lambda row: {
        "first_statement": _stem(row),
        "country": "Algeria",
        "region": "North Africa",
        "options": {"arabic_keys": ["أ", "ب", "ج"], "english_keys": ["A", "B", "C"], "text": _options(row, 3)},
        "answer_key": {"arabic_answer_key": "أبج"[row % 3], "english_answer_key": "ABC"[row % 3]},
    },
    "EunsuKim/CLIcK": lambda row: _with_lists(
        row,
        4,
        paragraph="",
        answer=_options(row)[0],
        id="economy history law politics society popular tradition geography",
    ),
    "AYueksel/TurkishMMLU": lambda row: _with_lists(row, 5, answer=LETTERS[row % 5], subject="Biology"),
    "tau/commonsense_qa": lambda row: {
        "question": _stem(row),
        "choices": {"label": list(LETTERS[:5]), "text": _options(row, 5)},
        "answerKey": "B",
    },
    "ltg/norcommonsenseqa": lambda row: {
        "question": _stem(row),
        "choices": {"label": list(LETTERS[:5]), "text": _options(row, 5)},
        "answer": "B",
    },
    "HAERAE-HUB/csatqa": _csatqa,
    "cambridgeltl/xcopa": _copa,
    "haryoaw/COPAL": _copa,
    "regisss/math_qa": _math_qa,
    "EleutherAI/headqa": lambda row: {
        "qtext": _stem(row),
        "answers": [{"aid": place, "atext": option} for place, option in enumerate(_options(row), 1)],
        "ra": row % 4 + 1,
    },
    "maximegmd/glianorex": lambda row: {
        "question": _stem(row),
        "options": _columns(row),
        "answer_idx": LETTERS[row % 4],
        "language": ("en", "fr")[row % 2],
    },
    "oskarvanderwal/winogender": _winogender,
    "HPAI-BSC/CareQA": lambda row: _lettered(row, ("op1", "op2", "op3", "op4"), "cop") | {"cop": row % 4 + 1},
    "community-datasets/qa4mre": lambda row: {
        "document_str": "There was a garden.",
        "question_str": _stem(row),
        "answer_options": {"answer_id": list("12345"), "answer_str": _options(row, 5)},
        "correct_answer_id": str(row % 5 + 1),
    },
    "cais/mmlu": lambda row: {
        "question": _stem(row),
        "choices": _options(row),
        "answer": row % 4,
        "subject": "botany",
    },
    "allenai/ai2_arc": lambda row: {
        "id": f"G_{row}",
        "question": _stem(row),
        "choices": {"text": _options(row), "label": list(LETTERS[:4])},
        "answerKey": LETTERS[row % 4],
    },
    "Rowan/hellaswag": lambda row: {
        "activity_label": "Gardening",
        "ctx_a": _stem(row),
        "ctx_b": "he",
        "ctx": f"{_stem(row)} he",
        "endings": [f"waters the {option}." for option in _options(row)],
        "label": str(row % 4),
    },
    "truthfulqa/truthful_qa": lambda row: {
        "question": _stem(row),
        "mc1_targets": _marked(row, 4),
        "mc2_targets": _marked(row, 6),
    },
    "allenai/winogrande": _winogrande,
    "openai/gsm8k": lambda row: {
        "question": f"{NAMES[row % len(NAMES)]} planted {row + 3} beds and dug up 2. How many are left?",
        "answer": f"It is easy.\n#### {row + 1}",
    },
    "Idavidrein/gpqa": _gpqa,
    "wis-k/instruction-following-eval": lambda row: {
        "key": row,
        "prompt": f"Write {row + 2} lines about a garden.",
        "instruction_id_list": [],
        "kwargs": [],
    },
    "DigitalLearningGmbH/MATH-lighteval": lambda row: {
        "problem": f"Find {row} + 1.",
        "level": "Level 5",
        "type": "Algebra",
        "solution": f"It is $\\boxed{{{row + 1}}}$.",
    },
    "TIGER-Lab/MMLU-Pro": lambda row: {
        "question": _stem(row),
        "options": _options(row, 10),
        "answer": LETTERS[row % 10],
        "answer_index": row % 10,
        "category": "biology",
    },
    "TAUR-Lab/MuSR": _musr,
    "allenai/swag": _swag,
    "lighteval/winograd_wsc": _wsc,
    "EleutherAI/race": _race,
    "sean0042/KorMedMCQA": lambda row: {
        "subject": "doctor",
        "question": _stem(row),
        **_columns(row, LETTERS[:5]),
        "answer": row % 5 + 1,
    },
    "miulab/tmlu": lambda row: {"question": _stem(row), **_columns(row), "answer": LETTERS[row % 4]},
}
BBH = "SaylorTwift/bbh"
BBH_OF_WORDS = {  # subsets whose answers are words of the task
    "boolean_expressions": ("True", "False"),
    "causal_judgement": ("Yes", "No"),
    "formal_fallacies": ("valid", "invalid"),
    "navigate": ("Yes", "No"),
    "object_counting": ("3", "7"),
    "sports_understanding": ("yes", "no"),
    "web_of_lies": ("Yes", "No"),
}


OTHER_NAMES = {  # copies of data sets, by their names on the Hub
    "CohereForAI/Global-MMLU": "CohereLabs/Global-MMLU",
    "CohereForAI/Global-MMLU-Lite": "CohereLabs/Global-MMLU-Lite",
    "masakhane/afrimmlu-translate-test": "masakhane/afrimmlu",
    "arcee-globe/AlGhafa-Arabic-LLM-Benchmark-Native-10percent": "OALL/AlGhafa-Arabic-LLM-Benchmark-Native",
    "OALL/AlGhafa-Arabic-LLM-Benchmark-Translated": "OALL/AlGhafa-Arabic-LLM-Benchmark-Native",
    "arcee-globe/AlGhafa-Arabic-LLM-Benchmark-Translated-10percent": "OALL/AlGhafa-Arabic-LLM-Benchmark-Native",
    "arcee-globe/Arabic_MMLU-10percent": "OALL/Arabic_MMLU",
    "OALL/Arabic_EXAMS": "OALL/Arabic_MMLU",
    "arcee-globe/Arabic_EXAMS-10percent": "OALL/Arabic_MMLU",
    "arcee-globe/ACVA-10percent": "OALL/ACVA",
    "QCRI/AraDICE-ArabicMMLU-lev": "QCRI/AraDICE-ArabicMMLU-egy",
    "hails/mmlu_no_train": "cais/mmlu",
}


def row_maker(settings: Mapping[str, Any]) -> Callable[[int], Row] | None:
    """Return what makes the n-th row in the shape of the data set that a task's settings name; None if it is not known
    here."""
    path, name = settings.get("dataset_path"), settings.get("dataset_name")
    if path == BBH:
        return _of_words(*BBH_OF_WORDS[name]) if name in BBH_OF_WORDS else _bbh
    if str(settings.get("task")).startswith("inverse_scaling_"):
        return _inverse_scaling
    return SHAPES.get(OTHER_NAMES.get(str(path), str(path)))
