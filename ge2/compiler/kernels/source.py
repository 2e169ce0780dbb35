"""From a KernelSource to the text that NVRTC compiles: render, follow includes, digest.

Line 1 of a rendered source names the template, the digest of every header that it reaches and the
contract version, so the text alone decides the cubin; the last line carries that version into it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ... import paths
from ...contract import GE2_API_VERSION
from ...errors import KernelSpecError, near_matches
from ...launch.record import KernelSource
from .headers import include_dirs
from .metadata import KernelInfo

if TYPE_CHECKING:
    import jinja2

API_SYMBOL = "ge2_api_version"

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[ \t]*(.*)$", re.MULTILINE)
_OWN = re.compile(r"<(ge2/[\w./-]+\.cuh)>\s*(//.*|/\*.*)?")
_MARK = re.compile("\x01(\\d+)\x02")


@dataclass(slots=True)
class Headers:
    """The headers below the include folders; each file is read once per instance.

    Make a new one for each batch of compiles: an edit in between is then seen.
    """

    folders: tuple[Path, ...] = field(default_factory=lambda: include_dirs())
    _files: dict[str, tuple[bytes, tuple[str, ...]]] = field(default_factory=dict)

    def closure(self, text: str, where: str) -> dict[str, bytes]:
        """Return every header that text reaches, name -> content, sorted by name.

        Raises:
            KernelSpecError: an include is not of the form <ge2/...>, or no such header exists.
        """
        found: dict[str, bytes] = {}
        todo = [(name, where) for name in own_includes(text, where)]
        while todo:
            name, includer = todo.pop()
            if name in found:
                continue
            content, nested = self._load(name, includer)
            found[name] = content
            todo += [(inner, name) for inner in nested]
        return dict(sorted(found.items()))

    def _load(self, name: str, includer: str) -> tuple[bytes, tuple[str, ...]]:
        if name not in self._files:
            path = next((f / name for f in self.folders if (f / name).is_file()), None)
            if path is None:
                raise KernelSpecError(f"{includer} includes <{name}>, which does not exist",
                                      hint=near_matches(name, _known_headers(self.folders)))
            content = path.read_bytes()
            self._files[name] = content, own_includes(content.decode(), name)
        return self._files[name]


def own_includes(text: str, where: str) -> tuple[str, ...]:
    """Return the headers that text includes itself.

    Raises:
        KernelSpecError: another form than `#include <ge2/...>`; toolkit and standard headers cost
            up to a second per kernel and would stay out of the cache key.
    """
    names = []
    for match in _INCLUDE.finditer(text):
        own = _OWN.fullmatch(match[1].strip())
        if not own or ".." in own[1]:
            line = text.count("\n", 0, match.start()) + 1
            raise KernelSpecError(f"{where}:{line}: include form not allowed",
                                  found=match[0].strip(), wanted="#include <ge2/....cuh>")
        names.append(own[1])
    return tuple(names)


def _known_headers(folders: tuple[Path, ...]) -> list[str]:
    return [p.relative_to(f).as_posix() for f in folders for p in f.rglob("*.cuh")]


def template_path(template: str) -> Path:
    """Return the file of a KernelSource.template (absolute for a user's own)."""
    return paths.kernels_dir() / template


def render(source: KernelSource, headers: Headers | None = None) -> str:
    """Return the CUDA C++ text of a source.

    Raises:
        KernelSpecError: the template uses a name that the context lacks, or a bad include.
    """
    body = _render_body(source, template_path(source.template).read_text("utf-8"))
    name = shown_name(source)
    closure = (headers or Headers()).closure(body, name)
    head = f"// ge2 {name} headers={closure_digest(closure)} api={GE2_API_VERSION}"
    # Braces, not const: extern "C" const would be dropped from the cubin as unused.
    tail = f'extern "C" {{ __device__ unsigned int {API_SYMBOL} = {GE2_API_VERSION}; }}'
    return f"{head}\n{body.rstrip()}\n{tail}\n"


def shown_name(source: KernelSource) -> str:
    """Return the template's name without any machine's folder in it."""
    template = Path(source.template)
    return template.name if template.is_absolute() else source.template


def digest(source: KernelSource, headers: Headers | None = None) -> str:
    """Return the digest of the rendered source, headers included, in hex."""
    return hashlib.sha256(render(source, headers).encode()).hexdigest()


def closure_digest(closure: dict[str, bytes]) -> str:
    """Return the digest of a header closure: names and contents, no paths."""
    total = hashlib.sha256()
    for name, content in closure.items():
        total.update(f"{name}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()[:32]


def line_map(source: KernelSource) -> list[int]:
    """Return, for each line of the rendered text, the template line it came from (0 = ge2's own).

    Done on demand for error messages: each template line carries a mark through the renderer.
    """
    text = template_path(source.template).read_text("utf-8")
    marked = "\n".join(_mark(text.split("\n")))
    lines = _render_body(source, marked).split("\n")
    blank = [not _MARK.sub("", line).strip() for line in lines]
    lines = lines[blank.index(False) : len(lines) - blank[::-1].index(False)]
    result: list[int] = []
    following = 0
    for line in reversed(lines):
        marks = _MARK.findall(line)
        following = int(marks[-1]) if marks else following
        result.append(following)
    return [0, *reversed(result), 0]


def with_template_lines(source: KernelSource, text: str) -> str:
    """Return a rendered text with #line directives, so that tools show the template's lines."""
    path = template_path(source.template).resolve().as_posix()
    written: list[str] = []
    following = 0
    for line, place in zip(text.split("\n"), line_map(source), strict=False):
        inside_macro = bool(written) and written[-1].endswith("\\")
        if place and place != following and not inside_macro:
            written.append(f'#line {place} "{path}"')
        written.append(line)
        following = place + 1 if place else 0
    return "\n".join(written) + "\n"


def _mark(lines: list[str]) -> list[str]:
    """Append a mark to each line that ends outside jinja tags; after a block tag it would stay."""
    marked, inside = [], False
    for number, line in enumerate(lines, 1):
        for opening, closing in re.findall(r"(\{[{%#])|([}%#]\})", line):
            inside = bool(opening) if not closing else False
        plain = not inside and not line.rstrip().endswith(("%}", "#}"))
        marked.append(f"{line}\x01{number}\x02" if plain else line)
    return marked


def _render_body(source: KernelSource, text: str) -> str:
    import jinja2

    try:
        body = _compiled(text).render(dict(source.context))
    except jinja2.UndefinedError as error:
        name = re.search(r"'(\w+)' is undefined", str(error))
        known = [key for key, _ in source.context]
        raise KernelSpecError(f"{source.template}: template uses a name that is not given",
                              found=name[1] if name else str(error), wanted=", ".join(known),
                              hint=near_matches(name[1] if name else "", known)) from error
    except jinja2.TemplateSyntaxError as error:
        raise KernelSpecError(f"{source.template}:{error.lineno}: {error.message}") from error
    return body.lstrip("\n")


@lru_cache(maxsize=256)
def _compiled(text: str) -> jinja2.Template:
    return _environment().from_string(text)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    import jinja2

    # The loader is for parts that several templates include ("row/operator.j2").
    return jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True,
                              lstrip_blocks=True, keep_trailing_newline=True, autoescape=False,
                              loader=jinja2.FileSystemLoader(paths.kernels_dir()))


def used_names(text: str) -> set[str]:
    """Return the names that a template and the parts that it includes take from its context."""
    from jinja2 import meta

    tree = _environment().parse(text)
    names: set[str] = meta.find_undeclared_variables(tree)
    for part in meta.find_referenced_templates(tree):
        if part is not None:
            names |= used_names(template_path(part).read_text("utf-8"))
    return names


def check_params(info: KernelInfo, text: str, where: str) -> None:
    """Refuse a template that does not use each param that it declares.

    Names that it uses beyond its params come from the launch rule; render() refuses missing ones.

    Raises:
        KernelSpecError: naming the params, or the line of a jinja syntax error.
    """
    import jinja2

    try:
        used = used_names(text)
    except jinja2.TemplateSyntaxError as error:
        raise KernelSpecError(f"{where}:{error.lineno}: {error.message}") from error
    unused = [name for name, _ in info.params if name not in used]
    if unused:
        raise KernelSpecError(f"{where}: declared params are not used by the template",
                              found=", ".join(unused), wanted=", ".join(sorted(used)) or "none",
                              hint=near_matches(unused[0], used))
