"""The pages of README and the site, their blocks, and the commands in these."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"] + [
    page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts
]
PROGRAMS = ("lm-eval-leakage", "lm_eval")
THROUGH_PYTHON = re.compile(r"^(?:.* )?-m lm_eval (?=\S)")  # as accelerate and torchrun run it


@dataclass(frozen=True)
class Block:
    """A fenced block; `language` is "text" where it shows what something printed."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    name = str(page.relative_to(ROOT))
    return [
        Block(name, token.map[0] + 1, token.info.strip(), token.content)
        for token in _tokens(page)
        if token.type == "fence" and token.map
    ]


def all_blocks(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


def commands(block: Block) -> list[list[str]]:
    """The words of every call of our command line or of lm_eval's; the other lines of a block are output."""
    lines = block.text.replace("\\\n", " ").splitlines()
    commands = [THROUGH_PYTHON.sub("lm_eval ", line.removeprefix("$ ")) for line in lines]
    return [shlex.split(line, comments=True) for line in commands if line.split(" ", 1)[0] in PROGRAMS]


def all_commands() -> list[tuple[Block, list[str]]]:
    return [(block, words) for block in all_blocks("", "console", "bash") for words in commands(block)]


def inline_code(page: Path) -> list[str]:
    """The `code` within the text of a page."""
    return [token.content for token in _inline(page) if token.type == "code_inline"]


def links(page: Path) -> list[str]:
    return [str(token.attrs["href"]) for token in _inline(page) if token.type == "link_open"]


def _inline(page: Path) -> list[Token]:
    return [child for token in _tokens(page) for child in token.children or ()]


@cache
def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
