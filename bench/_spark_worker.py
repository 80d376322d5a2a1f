"""A Spark worker without a Spark: for each line on standard input, which says whether with our adapter, pyspark's own
`worker.main` goes once through what an executor sent (`bench._spark_capture`). Answered with nanoseconds of CPU.

Nothing else runs in this process, so that it tells a nanosecond a row; the JVM beside it makes ten of noise.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from pathlib import Path

from bench._spark_driver import IN_WORKER
from bench._switch import switch


def main() -> None:
    from lastwords import recording

    recording.enable(role="bench")
    from pyspark import worker
    from pyspark.serializers import UTF8Deserializer

    sent = Path(sys.argv[1]).read_bytes()
    for line in sys.stdin:
        switch(IN_WORKER, bool(int(line)))
        with io.BufferedReader(io.BytesIO(sent), 65536) as rows, open(os.devnull, "wb", 65536) as results:
            UTF8Deserializer().loads(rows)  # the secret, which is the daemon's affair
            begun = time.process_time_ns()
            with contextlib.suppress(SystemExit):
                worker.main(rows, results)
            sys.stdout.write(f"{time.process_time_ns() - begun}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
