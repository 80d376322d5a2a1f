"""The GPUs of this host, as its driver tells of them. None of the answers needs CUDA, or wakes a GPU's memory."""

from __future__ import annotations

import subprocess

import msgspec

QUERY = (
    "name",
    "compute_cap",
    "memory.total",
    "driver_version",
    "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.uncorrected.aggregate.total",
    "retired_pages.pending",
    "memory.used",
)
# A driver that hangs is itself a finding, and must not hang us.
PATIENCE_SECONDS = 10.0


class Gpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    compute_capability: str | None = None
    memory: int | None = None
    """Bytes."""
    memory_used: int | None = None
    driver: str | None = None
    uncorrected_errors: int | None = None
    """Of the memory's ECC, since the driver was loaded."""
    uncorrected_errors_ever: int | None = None
    pages_to_retire: bool | None = None


class GpusUnknown(Exception):
    """There is a driver, and it does not answer; the text says how."""


def present() -> tuple[Gpu, ...]:
    """Empty: none, or nobody knows of any."""
    try:
        return ask()
    except GpusUnknown:
        return ()


def ask() -> tuple[Gpu, ...]:
    """Raises GpusUnknown."""
    words = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(words, capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    except FileNotFoundError:
        return ()
    except subprocess.TimeoutExpired:
        raise GpusUnknown(f"nvidia-smi did not answer within {PATIENCE_SECONDS:.0f} s") from None
    except OSError as error:
        raise GpusUnknown(f"nvidia-smi: {error.strerror}") from None
    text = answer.stdout.decode("utf-8", "replace")
    if answer.returncode != 0:
        said = (text.strip() or answer.stderr.decode("utf-8", "replace").strip()).splitlines()
        raise GpusUnknown(f"nvidia-smi ended with {answer.returncode}: {said[0] if said else 'nothing said'}")
    return parse(text)


def parse(text: str) -> tuple[Gpu, ...]:
    rows = ([word.strip() for word in line.split(",")] for line in text.splitlines())
    return tuple(_gpu(dict(zip(QUERY, row, strict=True))) for row in rows if len(row) == len(QUERY))


def _gpu(row: dict[str, str]) -> Gpu:
    pending = row["retired_pages.pending"].lower()
    return Gpu(
        name=row["name"],
        compute_capability=row["compute_cap"] if row["compute_cap"][:1].isdigit() else None,
        memory=_mebibytes(row["memory.total"]),
        memory_used=_mebibytes(row["memory.used"]),
        driver=row["driver_version"] or None,
        uncorrected_errors=_number(row["ecc.errors.uncorrected.volatile.total"]),
        uncorrected_errors_ever=_number(row["ecc.errors.uncorrected.aggregate.total"]),
        pages_to_retire={"yes": True, "no": False}.get(pending),
    )


def _number(word: str) -> int | None:
    """`[N/A]` and `[Not Supported]` are no numbers."""
    return int(word) if word.isdecimal() else None


def _mebibytes(word: str) -> int | None:
    number = _number(word)
    return number << 20 if number is not None else None
