"""SASS statistics of a cubin, where a disassembler is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)")
_SHOWN = 12


def instruction_counts(cubin: Path) -> dict[str, int]:
    """Return how often each of the most frequent instructions occurs; {} without nvdisasm."""
    tool = shutil.which("nvdisasm")
    if tool is None:
        return {}
    done = subprocess.run([tool, str(cubin)], capture_output=True, text=True, check=False)
    counts = Counter(_INSTRUCTION.findall(done.stdout))
    total = sum(counts.values())
    return {"instructions": total, **dict(counts.most_common(_SHOWN))} if total else {}
