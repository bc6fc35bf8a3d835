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
        """Return what is read aloud: white space as one blank, scripts and styles left out."""
        return " ".join("".join(text for tag, text in self.texts if tag not in {"script", "style"}).split())

    @property
    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.elements if "id" in attributes]

    def heads(self) -> list[str]:
        """Return the headings of all tables but those of the charts' numbers."""
        return [text.strip() for tag, text in self.texts if tag == "th" and text.strip()]

    def data(self) -> list[Any]:
        """Return the data of the first model's flagged questions; the page's own script stands last."""
        scripts = [text for tag, text in self.texts if tag == "script"]
        data = json.loads(scripts[0])
        assert isinstance(data, list)
        return data


UNREAD = {"script", "style", "noscript", "title"}


class Shown(Parsed):
    """The page as it opens: without what is folded, hidden, or for screen readers alone."""

    def __init__(self, page: str) -> None:
        self.hiding: list[bool] = []
        super().__init__(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        parents = [*self.open]
        is_folded = bool(parents) and parents[-1] == "details" and tag != "summary"
        is_hidden = tag in UNREAD or "hidden" in given or "unseen" in (given.get("class") or "").split()
        super().handle_starttag(tag, attrs)
        if len(self.open) > len(parents):
            self.hiding.append(is_folded or is_hidden)

    def handle_endtag(self, tag: str) -> None:
        super().handle_endtag(tag)
        self.hiding.pop()

    def handle_data(self, data: str) -> None:
        super().handle_data("" if any(self.hiding) else f"{data} ")

    @property
    def words(self) -> list[str]:
        return self.text.split()
