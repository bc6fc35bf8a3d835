"""A strict parser of pages."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "input", "br", "hr", "img", "wbr"}


class Parsed(HTMLParser):
    """Fails where an element is not closed in its place; gathers attributes and texts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice: {names}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    @property
    def text(self) -> str:
        """What is read aloud: white space as one blank, scripts and styles left out."""
        return " ".join("".join(text for tag, text in self.texts if tag not in {"script", "style"}).split())

    def heads(self) -> list[str]:
        """Of all tables but those of the charts' numbers."""
        return [text.strip() for tag, text in self.texts if tag == "th" and text.strip()]

    def data(self) -> list[Any]:
        """Of the first model's flagged questions; the page's own script stands last."""
        scripts = [text for tag, text in self.texts if tag == "script"]
        found = json.loads(scripts[0])
        assert isinstance(found, list)
        return found
