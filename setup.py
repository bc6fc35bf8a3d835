"""The README as a package index shows it; all else is in pyproject.toml."""

import re
from pathlib import Path

from setuptools import setup

README = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
INTO_THE_REPOSITORY = r"!?\[([^\]]+)\]\((?!https?://)([^)#]+)[^)]*\)"  # such a link would lead nowhere on an index

setup(
    long_description=re.sub(INTO_THE_REPOSITORY, r"\1 (\2)", README),
    long_description_content_type="text/markdown",
)
