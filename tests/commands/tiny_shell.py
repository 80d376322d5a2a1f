"""The part of an interactive shell that job control needs: one job, in its own group, in the foreground.

`tiny_shell.py REPORT CONTROL COMMAND...`: writes what happens to the job to descriptor REPORT, one line each, and
continues it in the foreground for each byte that comes from CONTROL.
"""

import os
import signal
import sys


def main() -> None:
    report, control = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.close(report)
        os.close(control)
        os.execv(sys.argv[3], sys.argv[3:])
    os.write(report, f"job {job}\n".encode())
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        os.tcsetpgrp(0, os.getpgid(0))
        if not os.WIFSTOPPED(status):
            break
        os.write(report, f"stopped {os.WSTOPSIG(status)}\n".encode())
        os.read(control, 1)
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)
        os.write(report, b"continued\n")
    os.write(report, f"ended {os.waitstatus_to_exitcode(status)}\n".encode())


main()
