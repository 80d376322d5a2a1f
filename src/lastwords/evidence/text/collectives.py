"""torchrun, NCCL, Gloo, MPI: collectives that time out, peers that went away, and ranks that were stopped."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "torchrun",
    (
        says("collective-timeout", "watchdog caught collective operation timeout", r"\[?Rank (?P<rank>\d{1,6})\]?.{0,40}Watchdog caught.{0,60}(?:SeqNum=(?P<sequence>\d{1,12}))?(?:, OpType=(?P<operation>\w{1,40}))?"),
        says("collective-timeout", "collective operation timeout", r"OpType=(?P<operation>\w{1,40})"),
        says("collective-timeout", "collective operation timeout"),
        says("collective-timeout", "some nccl operations have failed or timed out"),
        says("collective-timeout", "heartbeat monitor|watchdog got stuck", r"heartbeat monitor (?:timed out|timeout)|ProcessGroupNCCL's watchdog got stuck"),
        says("collective-timeout", "monitoredbarrier", r"monitoredBarrier.{0,120}(?:failed|timed out|did not|timeout)"),
        says("collective-timeout", "monitoredbarrier", r"(?:failed|timed out).{0,60}monitoredBarrier"),
        says("collective-timeout", "monitored barrier", r"monitored barrier.{0,120}(?:failed|timed out|did not)"),
        says("collective-timeout", "store based barrier", r"timed out.{0,80}store based barrier|store based barrier.{0,200}timed out"),
        says("collective-timeout", "timed out waiting", r"Timed out waiting \d{1,9}ms for (?:recv|send|unbound)"),
        says("collective-timeout", "socket timeout|diststoreerror|distnetworkerror", r"DistStoreError|DistNetworkError.{0,80}timed out|(?:store|rendezvous|TCPStore).{0,120}Socket Timeout|Socket Timeout.{0,60}store"),
        says("collective-timeout", "gloo", r"gloo.{0,160}(?:connect timeout|timed out|\btimeout\b)"),
        says("collective-timeout", "rendezvous", r"RendezvousTimeoutError|rendezvous.{0,60}(?:timed out|timeout)"),
        says("collective-timeout", "timed out", r"(?:all_?reduce|all_?gather|broadcast|barrier|collective|reduce_scatter).{0,80}timed out"),
        says("collective-timeout", "worknccl", r"WorkNCCL\b.{0,160}\btime(?:d )?-?out"),
        says("collective-timeout", "stalled|missing ranks", r"Stalled (?:ranks|ops)|missing ranks"),
        says("collective-timeout", "stalled|subset of ranks", r"One or more tensors were submitted to be reduced.{0,120}subset of ranks|Stalled (?:ranks|ops)"),
        says("collective-timeout", "clients joined", r"\d{1,5}/\d{1,5} clients joined"),
        says("peer-lost", "connection closed by", r"Connection closed by (?:remote )?peer|connection closed by local"),
        says("peer-lost", "ncclremoteerror", r"ncclRemoteError"),
        says("peer-lost", "connection reset by peer", r"(?:gloo|nccl|tcpstore|rank|c10d).{0,160}Connection reset by peer"),
        says("peer-lost", "remote", r"remote process (?:exited|has exited|died)|remote side"),
        says("peer-lost", "tcpstore|sendbytes|recvbytes|recvvector", r"TCPStore server has shut ?down|(?:sendBytes|recvBytes|recvVector).{0,40}failed.{0,120}(?:Broken pipe|Connection reset|Connection was likely closed)"),
        says("peer-lost", "horovod has been shut down", r"Horovod has been shut down"),
        says("peer-lost", "ncclsystemerror|unhandled system error", r"ncclSystemError|NCCL.{0,80}unhandled system error"),
        says("peer-lost", "another", r"\banother (?:task|rank|process|worker|node|host) (?:has )?(?:died|failed|crashed|exited)"),
        says("peer-lost", "peer process", r"peer process has unexpectedly disconnected"),
        says("heartbeat-lost", "heartbeat timeout", r"heartbeat timeout"),
        says("heartbeat-lost", "heartbeatmanager|lame worker", r"lame workers? found"),
        says("job-stops-others", "closing signal", r"Sending process (?P<pid>\d{1,9}) closing signal (?P<signal>SIG\w{2,6})"),
        says("stop-request", "death signal", r"Received (?:(?P<number>\d{1,2})|Signals\.(?P<signal>SIG\w{2,6})) death signal"),
        says("stop-request", "signalexception", r"SignalException: .{0,60}got signal: (?P<number>\d{1,2})"),
        says("lost", "childfailederror"),
        says("lost", "failed (exitcode", r"failed \(exitcode: (?P<code>-?\d{1,4})\)"),
        says("lost", "processexitedexception|terminated with", r"ProcessExitedException|process \d{1,6} terminated with"),
        says("lost", "mpirun noticed that process rank"),
        says("lost", "primary job terminated normally"),
    ),
)  # fmt: skip
