"""`nvidia-smi -q` as text and as XML: both become the same small tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.etree import ElementTree

from collector.formats.model import FormatError

MAX_XML_CHARS: Final = 16 << 20
MAX_DEPTH: Final = 32
MAX_NODES: Final = 200_000

_DOCTYPE: Final = re.compile(
    r"<!DOCTYPE\s+nvidia_smi_log\s+SYSTEM\s+\"nvsmi_device(_v\d{1,3})?\.dtd\"\s*>"
)
_DECLARATION: Final = re.compile(r"<\?xml[^>]*\?>")
_BEGIN: Final = "<nvidia_smi_log"
_END: Final = "</nvidia_smi_log>"
_NOT_A_WORD: Final = re.compile(r"[^a-z0-9]+")


@dataclass(slots=True)
class Node:
    """A name, perhaps a value, and what stands under it."""

    name: str
    value: str = ""
    line: int = 0
    children: list[Node] = field(default_factory=list)

    def find(self, path: str) -> Node | None:
        """Return the first node at a path of names, or None."""
        node: Node | None = self
        for name in path.split("/"):
            if node is None:
                return None
            node = next((child for child in node.children if child.name == name), None)
        return node

    def text(self, *paths: str) -> str | None:
        """Return the value at the first of several paths that exists."""
        for path in paths:
            node = self.find(path)
            if node is not None and not node.children:
                return node.value
        return None

    def walk(self) -> Iterator[Node]:
        """Yield the node and all below it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


def normal(name: str) -> str:
    """Return a label of the text form as the XML form would spell it."""
    return _NOT_A_WORD.sub("_", name.lower()).strip("_")


def from_text(text: str, first_line: int = 1) -> Iterator[Node]:
    """Yield one tree for each `NVSMI LOG` in the output of `nvidia-smi -q`.

    Raises:
        FormatError: one of them is too large.
    """
    root: Node | None = None
    stack: list[tuple[int, Node]] = []
    count = 0
    for number, line in enumerate(text.splitlines(), first_line):
        if "NVSMI LOG" in line and line.startswith("="):
            if root is not None:
                yield root
            root, count = Node("nvidia_smi_log", line=number), 0
            stack = [(-1, root)]
            continue
        plain = line.strip()
        if root is None or not plain:
            continue
        count += 1
        if count > MAX_NODES:
            raise FormatError(f"line {number}: more than {MAX_NODES} lines in one NVSMI log")
        indent = len(line) - len(line.lstrip())
        while stack[-1][0] >= indent:
            stack.pop()
        node = _line_node(plain, number)
        stack[-1][1].children.append(node)
        if len(stack) < MAX_DEPTH:
            stack.append((indent, node))
    if root is not None:
        yield root


def _line_node(plain: str, number: int) -> Node:
    label, colon, value = plain.partition(" : ")
    if not colon and plain.endswith(" :"):
        label = plain[:-2]
    if not colon and plain.startswith("GPU ") and ":" in plain:
        return Node("gpu", plain[4:].strip(), number)
    return Node(normal(label), value.strip(), number)


def from_xml(text: str, file: str) -> Iterator[Node]:
    """Yield one tree for each document in the output of `nvidia-smi -q -x`.

    Entities are never expanded: a document type other than the plain one that nvidia-smi writes
    is refused, and so is any document that is too large or too deep. A last document that is cut
    is left out where it is not the only one.

    Raises:
        FormatError: it is no such output, or is refused.
    """
    plain = _DOCTYPE.sub("", _DECLARATION.sub("", text))
    if "<!DOCTYPE" in plain or "<!ENTITY" in plain:
        raise FormatError(
            f"{file}: XML with a document type of its own or with entities is refused; "
            "nvidia-smi -q -x writes none"
        )
    line = 1 + text.count("\n", 0, max(text.find(_BEGIN), 0))
    documents = plain.split(_END)
    for number, part in enumerate(documents):
        last = number == len(documents) - 1
        if last and number:
            return
        if len(part) > MAX_XML_CHARS:
            raise FormatError(f"{file}: an XML document of over {MAX_XML_CHARS >> 20} MiB")
        root = _document(part[max(part.find(_BEGIN), 0) :] + ("" if last else _END), file)
        root.line = line
        line += part.count("\n")
        yield root


def is_cut(text: str) -> bool:
    """Return whether XML ends within a document that is not the only one."""
    _, end, rest = text.rpartition(_END)
    return bool(end) and _BEGIN in rest


def _document(text: str, file: str) -> Node:
    parser = ElementTree.XMLParser(target=_Builder())  # noqa: S314 - there are no entities
    try:
        parser.feed(text)
        root = parser.close()
    except ElementTree.ParseError as exc:
        raise FormatError(f"{file}: the XML cannot be read: {exc}") from None
    if not isinstance(root, Node) or root.name != "nvidia_smi_log":
        raise FormatError(f"{file}: the XML is not the output of nvidia-smi -q -x")
    return root


class _Builder:
    """Target of the XML parser: builds nodes, within bounds."""

    def __init__(self) -> None:
        self._left = MAX_NODES
        self._stack: list[Node] = []
        self._text: list[str] = []
        self._root: Node | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._left -= 1
        if len(self._stack) >= MAX_DEPTH or self._left < 0:
            raise FormatError("XML that is too deep or too large is refused")
        node = Node(tag, attributes.get("id", "") if tag == "gpu" else "")
        if self._stack:
            self._stack[-1].children.append(node)
        else:
            self._root = node
        self._stack.append(node)
        self._text = []

    def end(self, _tag: str) -> None:
        node = self._stack.pop()
        if not node.children and node.name != "gpu":
            node.value = "".join(self._text).strip()
        self._text = []

    def data(self, text: str) -> None:
        self._text.append(text)

    def close(self) -> Node | None:
        return self._root
