"""A reference is another model than the one that is checked, and has a folder of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.check import check
from lm_eval_leakage.jobs.plan_reading import check_plan
from lm_eval_leakage.logs.run import same_weights
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.verdict import VerdictWord
from tests.checking.conftest import NamedFake, OptionOrders, checked, questions, written

DOCS = questions(30, n_options=3)


class Revisions(NamedFake):
    """A model of which every revision, folder and server has seen the benchmark but `clean` ones."""

    seen = OptionOrders(DOCS, (2.5, 0.6))
    unseen = OptionOrders()

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.scorer = self.unseen if "clean" in json.dumps(arguments) else self.seen

    def answer(self, context: str, continuation: str) -> float:
        return self.scorer(context, continuation)


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch, fakes: type[NamedFake], only_given_tasks: None, tmp_path: Path) -> Any:
    from lm_eval.api.registry import model_registry

    fake = type("Fake", (Revisions,), {"requests": [], "built": []})
    monkeypatch.setitem(model_registry._objs, "fake", fake)
    written(tmp_path, DOCS)
    return fake


@pytest.mark.parametrize(
    ("args", "reference"),
    [
        ("pretrained=M,revision=step143000", "pretrained=M,revision=clean"),
        ("pretrained=clean/m_1", "pretrained=clean_m/1"),
        ("pretrained=a/m", "pretrained=a_m,subfolder=clean"),
        ("pretrained=m", "pretrained=M,subfolder=clean"),
        ("model=m,base_url=http://one", "model=m,base_url=http://clean"),
        ("pretrained=m", "pretrained=m,peft=clean"),
        (f"pretrained={'a/' * 10}{'m' * 100}", f"pretrained=clean{'b/' * 10}{'m' * 100}"),
    ],
    ids=["revisions", "punctuation", "folder", "capitals", "servers", "adapter", "long names"],
)
def test_models_whose_folders_would_have_one_name_are_kept_apart(
    tmp_path: Path, model: Any, args: str, reference: str
) -> None:
    outcome = checked(tmp_path, model_args=args, reference=reference)
    (verdict,) = outcome.verdicts
    assert (verdict.verdict == VerdictWord.STRONG_EVIDENCE) == ("clean" not in args)
    assert (verdict.basis, verdict.n_tested, verdict.accuracy is not None) == ("reference", 30, True)
    assert {step.status for step in outcome.plan.steps} <= {"to run", "not possible"}
    assert len(model.built) == 2
    assert checked(tmp_path, model_args=args, reference=reference).verdicts == outcome.verdicts
    assert len(model.built) == 2


@pytest.mark.parametrize("given", ["out", "out/runs", "."])
def test_a_later_table_compares_with_the_reference_of_the_check(tmp_path: Path, given: str) -> None:
    (verdict,) = checked(tmp_path, model_args="pretrained=seen", reference="pretrained=clean").verdicts
    (annotation,) = annotate([tmp_path / given])
    (row,) = annotation.rows
    assert (row.model, row.verdict.basis, row.verdict.pvalue) == ("seen", "reference", verdict.pvalue)
    assert not annotation.problems
    (alone,) = annotate([tmp_path / given], references=[tmp_path / "out" / "runs"])  # the model itself
    assert alone.rows[0].verdict.basis == "control"
    assert "rests on a reference, which is elsewhere" in str(alone.problems[0])


def test_a_later_table_does_not_compare_with_a_reference_that_the_last_check_left_out(tmp_path: Path) -> None:
    checked(tmp_path, model_args="pretrained=seen", reference="pretrained=clean")
    (verdict,) = checked(tmp_path, model_args="pretrained=seen").verdicts
    (annotation,) = annotate([tmp_path / "out"])
    assert (annotation.rows[0].verdict.basis, annotation.rows[0].verdict.pvalue) == ("control", verdict.pvalue)
    assert not annotation.problems


def test_a_later_table_names_the_reference_and_the_unseen_questions_that_it_lacks(tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    checked(tmp_path, model_args="pretrained=clean", out="clean")
    written(tmp_path, questions(30, n_options=3, seed=7), "unseen.jsonl")
    (verdict,) = checked(
        tmp_path, model_args="pretrained=seen", reference=str(clean / "runs"), unseen=str(tmp_path / "unseen.jsonl")
    ).verdicts
    assert verdict.basis == "reference"
    (annotation,) = annotate([tmp_path / "out"])
    assert annotation.rows[0].verdict.basis == "control"
    unseen, reference = map(str, annotation.problems)
    assert unseen.endswith("its unseen questions are not read here; verdicts that rest on them are in verdicts.json")
    assert "its verdict on quiz rests on a reference, which is elsewhere; name the folder" in reference
    (with_reference,) = annotate([tmp_path / "out"], references=[clean])
    assert with_reference.rows[0].verdict.pvalue == verdict.pvalue


def test_a_model_of_a_plan_may_have_the_name_of_the_reference(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    models = [{"name": name, "model": "fake", "model_args": f"pretrained={name}1"} for name in ("clean", "other")]
    settings = {"models": models, "tasks": str(tmp_path / "quiz.jsonl"), "reference": {"pretrained": "clean"}}
    plan.write_text(json.dumps(settings | {"engine": "inline", "output_path": str(tmp_path / "out"), "detect": 1.0}))
    outcome = check(config=plan)
    assert [
        (verdict.model, verdict.basis, verdict.verdict == VerdictWord.STRONG_EVIDENCE) for verdict in outcome.verdicts
    ] == [
        ("clean", "reference", False),
        ("other", "reference", True),
    ]


def test_a_loaded_model_is_not_asked_in_place_of_its_reference(tmp_path: Path, model: Any) -> None:
    lm = model(pretrained="m")
    lm.pretrained = "m"
    outcome = checked(tmp_path, model=lm, model_args=None, reference="pretrained=clean")
    assert [(verdict.verdict, verdict.basis) for verdict in outcome.verdicts] == [
        (VerdictWord.STRONG_EVIDENCE, "reference")
    ]


@pytest.mark.parametrize(
    "reference",
    ["pretrained=m", "pretrained=m,dtype=float16", "pretrained=m,revision=main", "max_length=99,pretrained=m"],
)
def test_the_model_itself_is_refused_as_its_reference_before_anything_is_asked(
    tmp_path: Path, model: Any, reference: str
) -> None:
    with pytest.raises(
        ValueError, match=r"^reference is '.*', which is the model itself, whatever its arguments; name"
    ):
        checked(tmp_path, reference=reference)
    models = [{"name": name, "model": "fake", "model_args": f"pretrained={name[0]}"} for name in ("other", "mine")]
    with pytest.raises(ValueError, match="which is the model 'mine' itself"):
        _planned(tmp_path, models, reference)
    assert model.built == []


def _planned(folder: Path, models: Any, reference: str) -> None:
    file = folder / "plan.yaml"
    file.write_text(json.dumps({"models": models, "tasks": str(folder / "quiz.jsonl"), "reference": reference}))
    check(config=file)


def test_a_folder_of_the_models_own_runs_is_no_reference_under_whatever_name(tmp_path: Path) -> None:
    checked(tmp_path, model_args="pretrained=m,dtype=float16", out="first")
    checked(tmp_path, model_args="pretrained=m,revision=clean", out="second")
    verdicts = {
        name: checked(tmp_path, model_args="pretrained=m", reference=tmp_path / name, out=f"with {name}").verdicts[0]
        for name in ("first", "second")
    }
    assert {name: (verdict.basis, verdict.verdict) for name, verdict in verdicts.items()} == {
        "first": ("control", VerdictWord.STRONG_EVIDENCE),
        "second": ("reference", VerdictWord.STRONG_EVIDENCE),
    }


@pytest.mark.parametrize(
    ("identity", "other", "same"),
    [
        ({"pretrained": "m (0123456789abcdef)"}, {"pretrained": "./m (0123456789abcdef)", "dtype": "float16"}, True),
        ({"pretrained": "m (0123456789abcdef)"}, {"pretrained": "m (fedcba9876543210)"}, False),
        ({"pretrained": "m"}, {"pretrained": "m", "revision": "main", "backend": "hf"}, True),
        ({"pretrained": "m"}, {"pretrained": "m", "revision": "step0"}, False),
        ({"pretrained": "m"}, {"pretrained": "m", "peft": "a"}, False),
        ({"pretrained": "m", "weights": "a"}, {"pretrained": "m"}, True),
        ({"pretrained": "m", "weights": "a"}, {"pretrained": "m", "weights": "b"}, False),
        ({"model": "m", "base_url": "http://a"}, {"model": "m", "base_url": "http://b"}, False),
    ],
)
def test_identities_are_of_one_model_if_their_weights_are_the_same(identity: Any, other: Any, same: bool) -> None:
    assert same_weights(identity, other) == same_weights(other, identity) == same


def test_keys_of_a_plan_are_unique_and_stable() -> None:
    settings = {"model_args": "pretrained=a/m", "tasks": "mmlu", "reference": "pretrained=a_m"}
    keys = [[model.key for model in check_plan(settings).all_models] for _ in range(2)]
    assert keys[0] == keys[1]
    assert keys[0][0] == "a_m"
    assert keys[0][1].startswith("a_m@")
    plan = check_plan(settings)
    assert [plan.model(key).model_args for key in keys[0]] == [{"pretrained": "a/m"}, {"pretrained": "a_m"}]
    assert [model.key for model in check_plan(settings | {"reference": "pretrained=r"}).all_models] == ["a_m", "r"]
