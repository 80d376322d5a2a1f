"""Rows that kill go to a side table, and the rest of the job completes.

Each partition's function runs in a child of its Spark worker. When a batch kills the child, its halves are tried in
new ones, down to the row that does it: the worker itself never dies, no task is retried, no other row is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from lastwords.engines.spark.isolated import Child, Lost

SIDE = "lastwords"
"""The column that tells the two tables apart, and holds what the side table shows."""
WHY = "how string, cause string, sentence string, explanation string, host string, partition int"


@dataclass(frozen=True, slots=True)
class Limits:
    timeout: float | None
    most: int


class TooManyRowsKill(RuntimeError):
    """Not single rows are bad, but the function on this host: quarantine would lose everything, row by row."""


def quarantine(
    frame: Any,
    function: Callable[[Any], Any],
    *,
    schema: Any,
    timeout: float | None = None,
    most: int = 100,
) -> tuple[Any, Any]:
    """Applies `function` to `frame`, and returns what came of it, and the rows that killed it.

    `function` takes a pandas DataFrame and returns one that has `schema`; it is called with batches of any size, so
    what it makes of a row must not depend on the rows beside it. The second table has the columns of `frame` and, in
    `lastwords`, how the process died, the cause, the explanation, host and partition. With `timeout`, a row on which
    the function takes longer than so many seconds is put there, too. More than `most` such rows in one partition are
    no longer bad rows: the job then fails with the explanation. A Python exception fails the job as ever.

    Both tables come from one pass, which Spark keeps (`persist`) until the session ends.
    """
    from pyspark.sql.types import StructType
    from pyspark.storagelevel import StorageLevel

    results = schema if isinstance(schema, StructType) else _parsed(schema)
    why = _parsed(WHY)
    side = StructType().add("row", frame.schema).add("why", why)
    both = StructType([*_all_nullable(results), *StructType().add(SIDE, side)])
    task = _task(function, results, both, Limits(timeout, most))
    made = frame.mapInArrow(task, both).persist(StorageLevel.MEMORY_AND_DISK)
    good = made.where(made[SIDE].isNull()).select(*results.names)
    bad = made.where(made[SIDE].isNotNull()).select(f"{SIDE}.row.*", made[f"{SIDE}.why"].alias(SIDE))
    return good, bad


def _parsed(schema: str) -> Any:
    from pyspark.sql.types import StructType

    if hasattr(StructType, "fromDDL"):
        return StructType.fromDDL(schema)
    from pyspark.sql.types import _parse_datatype_string  # Spark 3.5 has no public name for it

    return _parse_datatype_string(schema)


def _all_nullable(results: Any) -> Iterator[Any]:
    """A row that died has none of them."""
    from pyspark.sql.types import StructField

    return (StructField(field.name, field.dataType, nullable=True) for field in results)


def _task(
    function: Callable[[Any], Any], results: Any, both: Any, limits: Limits
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What runs in each task. A closure: pickled by value, with the user's function in it."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark.sql.pandas.types import to_arrow_schema

        wanted, whole = to_arrow_schema(results), to_arrow_schema(both)
        with closing(Child(function, wanted, limits.timeout)) as child:
            lost = 0
            for batch in batches:
                for made in _sifted(child, batch):
                    lost += isinstance(made, Lost)
                    if lost > limits.most:
                        raise TooManyRowsKill(_too_many(made, limits.most))
                    yield _good(made, whole) if not isinstance(made, Lost) else _bad(made, whole)

    return run


def _too_many(last: Any, most: int) -> str:
    text = last.explanation if isinstance(last, Lost) else ""
    return f"more than {most} rows of one partition killed the function that they were given to; the last:\n{text}"


def _sifted(child: Child, batch: Any) -> Iterator[Any]:
    """Result batches, and a Lost for each row that kills. Halves in order, so that rows stay in theirs."""
    if not batch.num_rows:
        return
    made = child.apply(batch)
    if not isinstance(made, Lost) or batch.num_rows == 1:
        yield made
        return
    half = batch.num_rows // 2
    yield from _sifted(child, batch.slice(0, half))
    yield from _sifted(child, batch.slice(half))


def _good(made: Any, whole: Any) -> Any:
    import pyarrow as pa

    nothing = pa.nulls(made.num_rows, whole.field(SIDE).type)
    return pa.RecordBatch.from_arrays([*made.columns, nothing], schema=whole)


def _bad(lost: Lost, whole: Any) -> Any:
    import pyarrow as pa

    row = lost.batch.to_pylist()[0]
    kind = whole.field(SIDE).type
    side = pa.array([{"row": row, "why": lost.why()}], type=kind)
    nothing = [pa.nulls(1, field.type) for field in list(whole)[:-1]]
    return pa.RecordBatch.from_arrays([*nothing, side], schema=whole)
