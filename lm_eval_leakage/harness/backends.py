"""Lists what lm_eval's model backends can answer, which packages they need and which arguments they take."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from itertools import takewhile
from typing import Any, NamedTuple

from lm_eval_leakage.harness.models.question_requests import REFUSAL_BY_METHOD, refuses
from lm_eval_leakage.harness.seams.registries import class_of, model_names, name_of
from lm_eval_leakage.logs.answer_store import NAMING
from lm_eval_leakage.texts import did_you_mean

BASE = "lm_eval.api.model"  # of the classes of every model, which take no arguments
SCORES, WRITES, GIVES_TOKENS = "loglikelihood", "generate_until", "token_scores"
PRETRAINED = "pretrained"
USUAL_OF_HF = frozenset(
    [
        *(PRETRAINED, "tokenizer", "revision", "subfolder", "dtype", "device", "batch_size", "max_length", "peft"),
        *("trust_remote_code", "use_fast_tokenizer", "add_bos_token", "prefix_token_id", "parallelize"),
        *("chat_template_args", "enable_thinking"),
    ]
)
OF_API = ("requests", "aiohttp", "tenacity", "tqdm")


class Backend(NamedTuple):
    """A backend of lm_eval: what it can answer, and what it needs.

    answers: methods by which it answers requests
    extra, packages: of lm_eval, and what it installs beyond what this package needs itself
    has_server: whether models are named as a server names them
    arguments: that its class takes
    """

    answers: tuple[str, ...] = (SCORES, WRITES)
    extra: str = ""
    packages: tuple[str, ...] = ()
    has_server: bool = False
    arguments: frozenset[str] = frozenset()

    def surely_takes(self, given: Collection[str]) -> bool:
        """Return whether these arguments are complete and valid; if not, the backend's class says so.

        Importing the class of `hf` takes two seconds.
        """
        return PRETRAINED in given and self.arguments.issuperset(given)


HF = Backend((SCORES, WRITES, GIVES_TOKENS))  # whose packages we need ourselves
API = Backend(extra="api", packages=OF_API, has_server=True)
CHAT = API._replace(answers=(WRITES,))
LITELLM = CHAT._replace(extra="litellm", packages=("litellm",))
VLLM = Backend(extra="vllm", packages=("vllm",))
KNOWN = {
    **dict.fromkeys(("hf", "hf-auto", "huggingface", "hf-prefix-tree"), HF._replace(arguments=USUAL_OF_HF)),
    **dict.fromkeys(("hf-multimodal", "hf-mistral3", "hf-audiolm-qwen", "habana", "ipex"), HF),
    **dict.fromkeys(("mamba_ssm", "neuronx", "openvino", "steered"), HF),
    **dict.fromkeys(("local-completions", "openai-completions", "sglang-generate"), API),
    "chat-completions-echo": API,
    **dict.fromkeys(("local-chat-completions", "openai-chat-completions"), CHAT),
    **dict.fromkeys(("anthropic-chat", "anthropic-chat-completions"), CHAT),
    **dict.fromkeys(("litellm", "litellm-chat", "litellm-chat-completions"), LITELLM),
    **dict.fromkeys(("vllm", "vllm-vlm", "vllm-prefix-tree"), VLLM),
    "anthropic-completions": Backend((WRITES,)),
    **dict.fromkeys(
        ("dummy", "ggml", "gguf", "megatron_lm", "nemo_lm", "onnxruntime", "onnxruntime-genai"), Backend()
    ),
    **dict.fromkeys(("sglang", "textsynth", "trtllm", "watsonx_llm", "winml"), Backend()),
}


def backend_of(model: str) -> Backend | None:
    """Return what is declared of a backend; None for one of another package. Raises ValueError for an unknown name."""
    if model in KNOWN:
        return KNOWN[model]
    names = model_names()
    if model in names:
        return None
    nearest = did_you_mean(model, names) or f"; choose one of: {', '.join(sorted(names))}"
    raise ValueError(f"{model!r} is not a model of lm_eval{nearest}")


def backend_of_loaded(lm: Any) -> str:
    """Return the registered name of a loaded model's backend. Raises ValueError if it has none."""
    backend = name_of(type(lm))
    if backend is None:
        name = type(lm).__name__
        raise ValueError(
            f"model is a {name}, whose class is not registered in lm_eval; register it with "
            f"@register_model({name.lower()!r}) from lm_eval.api.registry"
        )
    return backend


def named_as_loaded(lm: Any, backend: str, model_args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a loaded model: those given, and those that name it as far as the model itself has them.

    Raises ValueError if nothing names it.
    """
    inner, of_engine = getattr(lm, "model", None), getattr(lm, "model_args", None) or {}
    names = (
        getattr(lm, "pretrained", None),
        getattr(inner, "name_or_path", None),
        of_engine.get("model"),
        inner,
    )
    name = next((candidate for candidate in names if isinstance(candidate, str) and candidate), None)
    declared = backend_of(backend)
    naming = "model" if declared is not None and declared.has_server else "pretrained"
    if name is None and not any(model_args.get(key) for key in NAMING):
        raise ValueError(f"model is a {type(lm).__name__} that has no name; give one as model_args: {naming}=NAME")
    revision = getattr(lm, "revision", None)
    detected = {} if name is None else {naming: name}
    return detected | ({} if revision in (None, "main") else {"revision": revision}) | dict(model_args)


def why_cannot_answer(model: str, need: str) -> str:
    """Return why the backend cannot answer requests of this method, as a sentence; empty if it may. Raises ValueError
    for an unknown backend. One of another package is tried without requests, and left to the run if it cannot be
    imported."""
    backend = backend_of(model)
    if backend is None:
        kind = class_of(model)
        of_hf = need == GIVES_TOKENS and "HFLM" in {base.__name__ for base in getattr(kind, "__mro__", ())}
        unable = kind is not None and not of_hf and refuses(getattr(kind, need, None), None, [])
    else:
        unable = need not in backend.answers
    return f"{model} {REFUSAL_BY_METHOD[need]}" if unable else ""


def refuse_without_packages(model: str, backend: Backend) -> None:
    if missing := [package for package in backend.packages if find_spec(package) is None]:
        names = ", ".join(missing)
        raise ImportError(
            f"--model {model} needs {names}, which is not installed; run `pip install 'lm_eval[{backend.extra}]'`"
        )


def parameters_of(kind: type) -> tuple[frozenset[str], tuple[str, ...], bool]:
    """Return the arguments of a model's class and of the base classes that it hands the others to, those of them
    without a default, and whether unknown ones are passed on."""
    parameters: dict[str, inspect.Parameter] = {}
    takes_others = True
    reads_itself = "create_from_arg_string" in vars(kind)
    for base in takewhile(lambda base: base.__module__ != BASE, kind.__mro__[:-1] if not reads_itself else ()):
        if takes_others and "__init__" in vars(base):
            class_parameters = [*inspect.signature(base.__init__).parameters.values()][1:]  # type: ignore[misc]
            takes_others = any(parameter.kind is parameter.VAR_KEYWORD for parameter in class_parameters)
            named = [
                parameter
                for parameter in class_parameters
                if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            ]
            parameters = {parameter.name: parameter for parameter in named} | parameters
    required = tuple(name for name, parameter in parameters.items() if parameter.default is parameter.empty)
    return frozenset(parameters), required, takes_others
