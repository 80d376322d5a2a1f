"""Imported by lastwords_bootstrap.pth when LASTWORDS is set, in every Python process of a recorded job.

Beside the package and not in it: a package that was deleted by hand leaves this file, which then says so in one
line. The .pth line itself is as short as can be, because every start of every interpreter compiles it.
"""

try:
    import lastwords.record.bootstrap  # noqa: F401
except Exception as error:  # noqa: BLE001  # whatever is wrong with us, the job runs on
    import os
    import sys

    del os.environ["LASTWORDS"]  # said once: the job's other processes need not say it again
    sys.stderr.write(
        f"lastwords: not recording this job: {error}. To mend: pip install --force-reinstall lastwords\n"
    )
