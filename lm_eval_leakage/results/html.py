"""The Jinja environment that combines templates, style sheet and script into one self-contained file."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lm_eval_leakage import __version__
from lm_eval_leakage.results import formatting
from lm_eval_leakage.results.charts import HEIGHT, WIDTH, tick_text
from lm_eval_leakage.results.verdict import EVIDENCE_LEVEL, STRONG_LEVEL
from lm_eval_leakage.texts import visible

COMMAND = re.compile(r"`(?P<code>[^`]+)`|(?<=: )(?P<bare>lm-eval-leakage check .+)$")
PROGRAMS = ("lm-eval-leakage ", "lm_eval ", "python ")
FIGURES = re.compile(r"p (?:=|≤|&lt;) [^\s);,]+|−?[\d.]+ ± [\d.]+")


@cache
def environment() -> Environment:
    """Return the environment. Everything except our own templates is escaped, such as texts of data sets and names of
    models."""
    environment = Environment(
        loader=PackageLoader("lm_eval_leakage.results"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=formatting.number,
        count=formatting.count,
        counted=formatting.counted,
        together=unbroken,
        prose=prose,
        breakable=breakable,
        tick_text=tick_text,
    )
    style, script = asset("page.css"), asset("page.js")
    environment.globals.update(
        style=Markup(style),
        script=Markup(script),
        plot_style=Markup(asset("plot.css")),
        policy=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        version=__version__,
        width=WIDTH,
        height=HEIGHT,
        evidence_level=EVIDENCE_LEVEL,
        strong_level=STRONG_LEVEL,
    )
    return environment


def render_template(template: str, **values: object) -> str:
    """Return a page that can be encoded as UTF-8, even if a log holds lone surrogates."""
    page = environment().get_template(template).render(**values)
    return page.encode("utf-8", "replace").decode("utf-8")


def asset(name: str) -> str:
    return (files("lm_eval_leakage.results") / "templates" / name).read_text(encoding="utf-8").strip()


def _shown(value: object) -> object:
    """Return texts with invisible characters escaped, and our own markup unchanged."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _hash(source: str) -> str:
    """Return the hash for the content security policy, with which a browser runs only our own script and style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode('utf-8')).digest()).decode('ascii')}"


def unbroken(text: str) -> Markup:
    """Keeps a number and its error, or a p-value, on one line."""
    return Markup(FIGURES.sub(r'<span class="figure">\g<0></span>', str(escape(visible(text)))))


def prose(text: object) -> Markup:
    """Return a sentence in which figures stay on one line, and commands are code that a button copies."""
    parts, end, plain = [], 0, str(text)
    for match in COMMAND.finditer(plain):
        parts += [unbroken(plain[end : match.start()]), _code(match["code"] or match["bare"])]
        end = match.end()
    return Markup("").join([*parts, unbroken(plain[end:])])


def _code(text: str) -> Markup:
    template = "command.html.j2" if text.startswith(PROGRAMS) else "code.html.j2"
    return Markup(environment().get_template(template).render(text=text).strip())


def breakable(name: str) -> Markup:
    """Return the name as markup that allows a long name to wrap after each `_` and `/`."""
    return Markup(re.sub(r"[_/]", r"\g<0><wbr>", str(escape(visible(name)))))
