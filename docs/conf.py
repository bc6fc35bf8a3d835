"""The documentation site: `make docs` builds it from these pages without network access, and warnings are errors."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

import lm_eval_leakage

project = "lm_eval_leakage"
author = "The lm_eval_leakage developers"
copyright = author  # Sphinx reads this name
version = release = lm_eval_leakage.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"{project} {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
highlight_language = "none"  # most blocks are commands and what they print

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"  # browsers draw it themselves; MathJax would come from the network
nb_execution_mode = "off"  # the tutorial's outputs are in the notebook; a test executes it and compares

default_role = "code"  # a docstring's `name`
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]

PARAMETER = re.compile(r"([a-z_]\w*(?:, [a-z_]\w*)*): (.*)")


def parameters_as_fields(_app: Any, _what: str, _name: str, _of: Any, _options: Any, lines: list[str]) -> None:
    """Turns our docstrings' `name: meaning` lines into the fields that Sphinx lists as parameters."""
    within = False
    for i, line in enumerate(lines):
        if found := PARAMETER.fullmatch(line):
            lines[i] = f":param {found[1]}: {found[2]}"
        elif line and within:
            lines[i] = f"    {line.strip()}"
        within = bool(found) or (within and bool(line))


def draw_math(translator: Any, node: nodes.Element) -> None:
    try:
        translator.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    except MathError as error:
        logging.getLogger(__name__).warning("%s in %s", error, node.astext(), location=node)
    raise nodes.SkipNode


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", parameters_as_fields)
    app.add_html_math_renderer("mathml", (draw_math, None), (draw_math, None))
