"""The registry of kernels: one scan of the template folders, kept as an index, plus register().

The index holds the parsed metadata of every template and realization under the digest of all their
contents, so a start-up reads the files and parses none; it lives in the cache folder and is
optional.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any

from ... import config, paths
from ...errors import KernelSpecError, NoKernelError, near_matches
from . import headers, source
from .metadata import KernelInfo, Variant
from .metadata_parse import Where, build, parse_block

logger = logging.getLogger(__name__)

INDEX_SCHEMA = 2
SUFFIX = ".cu.j2"


@dataclass(slots=True)
class _State:
    """What one process knows; generation grows with each change, for caches built on it."""

    kernels: dict[str, KernelInfo] | None = None
    registered: dict[str, dict[str, Any]] = field(default_factory=dict)
    scores: dict[str, int] = field(default_factory=dict)
    generation: int = 0


_state = _State()
_lock = RLock()


def all_kernels() -> tuple[KernelInfo, ...]:
    """Return every kernel, sorted by op_type and name."""
    return tuple(_kernels().values())


def kernels_for(op_type: str) -> tuple[KernelInfo, ...]:
    """Return the kernels that serve a kernel-level operator; empty when there is none."""
    return tuple(k for k in _kernels().values() if k.op_type == op_type)


def get(name: str) -> KernelInfo:
    """Return a kernel by its launch-table name.

    Raises:
        NoKernelError: there is none; names near matches.
    """
    kernels = _kernels()
    if name not in kernels:
        raise NoKernelError(f"no kernel is named {name!r}",
                            hint=near_matches(name, kernels) or "ge2 kernels list shows them")
    return kernels[name]


def variants(kernel: KernelInfo) -> tuple[Variant, ...]:
    """Return every allowed combination of a kernel's params."""
    return kernel.variants


def variant(variant_id: str) -> Variant:
    """Return the variant with this id ("gemm/gemm_bias_act_f32_tiled[BM=64,BN=64]").

    Raises:
        NoKernelError: there is none; names near matches.
    """
    name = variant_id.split("[")[0].rsplit("/", 1)[-1]
    known = {v.id: v for v in get(name).variants}
    if variant_id not in known:
        raise NoKernelError(f"no variant is named {variant_id!r}",
                              hint=near_matches(variant_id, known))
    return known[variant_id]


def register(metadata: Mapping[str, Any]) -> KernelInfo:
    """Add a kernel, or change the metadata of one, from a dictionary with the template's keys.

    The template is the file `<name>.cu.j2` in the kernels folder, GE2_KERNEL_PATH or a folder of
    ge2.paths.add_kernel_dir(). Keys given here win over the template's own block (of flags, guards
    and layouts key by key); a missing launch rule is that of the other kernels of the same op_type.

    Raises:
        KernelSpecError: no such template, or wrong metadata.
    """
    name = str(metadata.get("name", ""))
    with _lock:
        info = _build_registered(name, metadata, _kernels())
        _state.registered[name] = dict(metadata)
        _state.kernels = _sorted({**_kernels(), name: info})
        _state.generation += 1
    return info


def capability(kernel: KernelInfo) -> int:
    """Return a kernel's capability score: its metadata's, unless set_capability() changed it."""
    return _state.scores.get(kernel.capability_key, kernel.score)


def set_capability(key: str, score: int | None) -> None:
    """Change the score of "<OPTYPE>__<KERNEL_NAME>" in this process; None brings its own back.

    Raises:
        KernelSpecError: no kernel has this key.
    """
    known = [kernel.capability_key for kernel in all_kernels()]
    if key not in known:
        raise KernelSpecError(f"no kernel has the capability key {key!r}",
                              hint=near_matches(key, known))
    with _lock:
        if score is None:
            _state.scores.pop(key, None)
        else:
            _state.scores[key] = score
        _state.generation += 1


def reset() -> None:
    """Forget registered kernels, changed scores and the scan; the next use scans again."""
    with _lock:
        _state.registered.clear()
        _state.scores.clear()
        _state.kernels = None
        _state.generation += 1


def generation() -> int:
    """Return a number that changes whenever the set of kernels does."""
    return _state.generation


def _kernels() -> dict[str, KernelInfo]:
    if _state.kernels is None:
        with _lock:
            if _state.kernels is None:
                kernels = _scan()
                for name, metadata in _state.registered.items():
                    kernels[name] = _build_registered(name, metadata, kernels)
                _state.kernels = _sorted(kernels)
    return _state.kernels


def _sorted(kernels: Mapping[str, KernelInfo]) -> dict[str, KernelInfo]:
    return dict(sorted(kernels.items(), key=lambda item: (item[1].op_type, item[0])))


def _templates() -> dict[str, Path]:
    """Return template name -> file; names of ge2's own are relative, users' are absolute."""
    root = paths.kernels_dir()
    found = {p.relative_to(root).as_posix(): p for p in _files(root)}
    for folder in paths.user_kernel_dirs():
        found |= {p.as_posix(): p for p in _files(folder)}
    return found


def _files(folder: Path) -> Iterable[Path]:
    return sorted(folder.rglob(f"*{SUFFIX}")) if folder.is_dir() else ()


def _scan() -> dict[str, KernelInfo]:
    texts = {name: path.read_text("utf-8") for name, path in _templates().items()}
    realizations = headers.texts()
    key = _digest({**texts, **realizations})
    index = _read_index(key, texts)
    fresh = index is None
    if index is None:
        index = _Index({name: parse_block(text, name) for name, text in texts.items()},
                       headers.parsed(realizations))
    headers.remember(index.headers)
    kernels: dict[str, KernelInfo] = {}
    for template, raw in index.tables.items():
        if not raw:
            continue  # A user's template without a block waits for register().
        info = build(raw, template, Where(template, texts[template]))
        if fresh:
            source.check_params(info, texts[template], template)
        _refuse_twin(kernels.get(info.name), info)
        kernels[info.name] = info
    if fresh:
        _write_index(key, index)
    return kernels


def _refuse_twin(other: KernelInfo | None, info: KernelInfo) -> None:
    """Two shipped templates may not share a name; a user's own template replaces a shipped one."""
    if other and Path(other.template).is_absolute() == Path(info.template).is_absolute():
        raise KernelSpecError(f"two templates define {info.name!r}",
                              found=f"{other.template} and {info.template}")
    if other:
        logger.info("%s replaces %s", info.template, other.template)


def _build_registered(name: str, metadata: Mapping[str, Any],
                      kernels: Mapping[str, KernelInfo]) -> KernelInfo:
    where = Where("register()")
    hits = {t: p for t, p in _templates().items() if p.name == name + SUFFIX}
    if not hits:
        folders = [paths.kernels_dir(), *paths.user_kernel_dirs()]
        raise where.error(f"no template {name}{SUFFIX}", wanted=f"one below {_listed(folders)}",
                          hint="Add its folder to GE2_KERNEL_PATH or ge2.paths.add_kernel_dir().")
    template, path = list(hits.items())[-1]
    text = path.read_text("utf-8")
    raw = _merged(parse_block(text, template), metadata)
    peers = [k.launch for k in kernels.values() if k.op_type == raw.get("op_type")]
    if "launch" not in raw and peers:
        raw["launch"] = peers[0]
    info = build(raw, template, where)
    source.check_params(info, text, template)
    return info


def _merged(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return own metadata with what is given laid over it; of flags and guards key by key."""
    result = {**own, **given}
    for table in ("flags", "guards", "layouts"):
        if isinstance(own.get(table), Mapping) and isinstance(given.get(table), Mapping):
            result[table] = {**own[table], **given[table]}
    return result


def _listed(folders: Iterable[Path]) -> str:
    return ", ".join(map(str, folders))


def _digest(texts: Mapping[str, str]) -> str:
    total = hashlib.sha256(f"{INDEX_SCHEMA}".encode())
    for name, text in texts.items():
        total.update(f"{name}\0{len(text)}\0{text}".encode())
    return total.hexdigest()[:32]


def _index_wanted() -> bool:
    return config.get("GE2_CACHE") == "1" and not paths.unusable_cache(paths.cache_dir())


def _index_path(key: str) -> Path:
    return paths.cache_dir() / "index" / f"{key}.json"


@dataclass(frozen=True, slots=True)
class _Index:
    """Parsed metadata: of templates by name, of realizations by the text of their headers."""

    tables: dict[str, dict[str, Any]]
    headers: dict[str, dict[str, Any]]


def _read_index(key: str, texts: Mapping[str, str]) -> _Index | None:
    if not _index_wanted():
        return None
    try:
        index = _Index(**json.loads(_index_path(key).read_bytes()))
        whole = index.tables.keys() == texts.keys() and all(
            isinstance(t, dict) for t in (*index.tables.values(), *index.headers.values()))
    except (OSError, ValueError, TypeError, AttributeError):
        return None  # Missing, unreadable or torn: parse the templates instead.
    return index if whole else None


def _write_index(key: str, index: _Index) -> None:
    if not _index_wanted():
        return
    path = _index_path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        paths.write_atomic(path, json.dumps(
            {"tables": index.tables, "headers": index.headers}).encode())
        for old in path.parent.glob("*.json"):
            if old != path and old.stat().st_mtime < path.stat().st_mtime - 30 * 86400:
                old.unlink(missing_ok=True)
    except OSError as error:
        logger.info("kernel index not kept: %s", error)
