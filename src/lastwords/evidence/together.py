"""Several accounts of deaths, put together: which speak of the same one, and what all of them know of it.

A record (a black box, a core, a kept death) is about one process. A log is about whatever happened: given beside a
record it adds what it says to that death, and logs alone are taken for accounts of one death. Where a record and a log
both know something, the record counts; the log's own words stay as mentions, so that a contradiction can be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lastwords.evidence.model import Evidence, Mention
from lastwords.evidence.text.assemble import focused

# What a log may know where the record does not.
FILLED = ("time", "process", "status", "item", "fault", "native_stack", "python_stack", "exception")


def together(accounts: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """One evidence for each death. Records of one process are one death."""
    records: list[Evidence] = []
    for account in accounts:
        if is_record(account):
            _add(records, account)
    logs = [account for account in accounts if not is_record(account)]
    if not logs:
        return tuple(records)
    said = _joined(logs)
    return tuple(_with_log(record, said) for record in records) or (said,)


def is_record(account: Evidence) -> bool:
    """Somebody recorded the process itself; a log has nothing but mentions, and a bare status not even these."""
    return account.mentions is None and account.process is not None


def _add(records: list[Evidence], account: Evidence) -> None:
    for place, known in enumerate(records):
        if _is_same_death(known, account):
            records[place] = _filled(known, account)
            return
    records.append(account)


def _is_same_death(one: Evidence, other: Evidence) -> bool:
    """Boxes and cores of one process; a pid alone is reused, but hardly between two files that somebody names."""
    if one.id and other.id:
        return one.id == other.id
    assert one.process is not None and other.process is not None
    hosts = {one.process.host, other.process.host} - {None}
    return one.process.pid == other.process.pid and len(hosts) < 2


def _filled(
    first: Evidence, second: Evidence, fields: Iterable[str] = Evidence.__struct_fields__
) -> Evidence:
    """The first, with what it does not know taken from the second."""
    gaps = {name: getattr(second, name) for name in fields if getattr(first, name) is None}
    return msgspec.structs.replace(first, **gaps)


def _joined(logs: Sequence[Evidence]) -> Evidence:
    joined = logs[0]
    for log in logs[1:]:
        lines = (*(joined.mentions or ()), *(log.mentions or ()))
        was_read = joined.mentions is not None or log.mentions is not None
        joined = msgspec.structs.replace(
            _filled(joined, log, FILLED),
            mentions=lines if was_read else None,
            missing=tuple({one.what: one for one in (*joined.missing, *log.missing)}.values()),
            notes=(*joined.notes, *log.notes),
        )
    return msgspec.structs.replace(joined, mentions=focused(joined.mentions)) if joined.mentions else joined


def _with_log(record: Evidence, said: Evidence) -> Evidence:
    mentions = about(record, said.mentions or ())
    is_of_another = said.process is not None and mentions != said.mentions and not _is_same_pid(record, said)
    fields = () if is_of_another else FILLED
    return msgspec.structs.replace(
        _filled(record, said, fields),
        mentions=mentions if said.mentions is not None else None,
        notes=(*record.notes, *said.notes),
    )


def _is_same_pid(one: Evidence, other: Evidence) -> bool:
    return one.process is not None and other.process is not None and one.process.pid == other.process.pid


def about(record: Evidence, mentions: tuple[Mention, ...]) -> tuple[Mention, ...]:
    """Those that may be about this process: a kernel's log has the deaths of others, too.

    Inside a container a process has another number than the kernel's log gives it. So a log that never names this pid
    is taken as it is.
    """
    pid = str(record.process.pid) if record.process is not None else None
    if not any(one.fields.get("pid") == pid for one in mentions):
        return mentions
    return tuple(one for one in mentions if one.fields.get("pid") in (None, pid))
