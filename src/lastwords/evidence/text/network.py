"""Connections: refused, reset, closed in the middle, names that do not resolve."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "network",
    (
        says("network-failure", "connection", r"Connection (?:reset|refused|aborted|timed out|broken|lost|dropped)|Connection(?:Reset|Refused|Aborted)?Error|connection was (?:closed|lost|reset|forcibly)|lost connection", unless=r"unexpectedly exits with a connection error|lost connection (?:to|with) (?:the |a )?(?:worker|actor|executor|child|rank|task|process)"),
        says("network-failure", "disconnect", r"Server ?[Dd]isconnected|peer disconnected|disconnected from (?:server|peer)|unexpectedly disconnected", unless=r"peer process has unexpectedly"),
        says("network-failure", "content length|contentlengtherror|payload", r"Not enough data to satisfy content length|ContentLengthError|ClientPayloadError|Response payload is not completed"),
        says("network-failure", "incompleteread", r"IncompleteRead"),
        says("network-failure", "ssl|violation of protocol", r"SSLError|SSLEOFError|\[SSL: (?!CERTIFICATE_VERIFY)|SSL: (?:RECORD|UNEXPECTED|DECRYPTION)|EOF occurred in violation of protocol"),
        says("network-failure", "timed out", r"(?:\bRead|Connect|Connection|ReadTimeoutError|ConnectTimeout).{0,60}timed out|timed out.{0,40}(?:host|url|endpoint|server)"),
        says("network-failure", "timeout|endpointconnectionerror", r"Read ?Timeout(?:Error)?|ConnectTimeout(?:Error)?|EndpointConnectionError|ReadTimeoutError"),
        says("network-failure", "trying to connect", r"timed out after .{0,20}(?:while|when) trying to connect to", step="connect"),
        says("network-failure", "max retries exceeded"),
        says("network-failure", "fstimeouterror"),
        says("network-failure", "server|ssl syscall", r"server closed the connection unexpectedly|server has gone away|could not receive data from server|SSL SYSCALL error"),
        says("network-failure", "curl", r"\bcurl ?(?:code)?:? {0,2}\(?(?:[5-7]|18|28|35|5[256]|92)\b(?!\.)"),
        says("network-failure", "aws error", r"AWS Error (?:NETWORK_CONNECTION|REQUEST_TIMEOUT|SLOW_DOWN)"),
        says("network-failure", "name|getaddrinfo|resolve", r"Name or service not known|Temporary failure in name resolution|getaddrinfo failed|nodename nor servname|Failed to resolve|NameResolutionError|Could not resolve host"),
        says("network-failure", "nccl warn", r"NCCL WARN .{0,60}\bConnect to .{1,120} failed", step="connect"),
        says("network-failure", "no route|unreachable|errno 113|errno 101", r"No route to host|Network is unreachable|Errno 113|Errno 101"),
        says("network-failure", "statuscode", r"StatusCode\.DEADLINE_EXCEEDED"),
        # gRPC's word for a server that is not there (any more): it may as well have died.
        says("peer-closed", "statuscode", r"StatusCode\.UNAVAILABLE"),
        says("peer-closed", "socket closed"),
        says("network-failure", "failed to connect", r"failed to connect to (?:all addresses|remote|host|\S{1,60}:\d{2,5})"),
        says("network-failure", "chunkedencodingerror|protocolerror|remotedisconnected", r"ChunkedEncodingError|ProtocolError|RemoteDisconnected"),
        says("network-failure", "socket|endpoint is not|broken pipe", r"socket hang up|Transport endpoint is not connected|Broken pipe.{0,60}(?:send|socket|sock)"),
        says("network-failure", "502|503|504|slowdown|httperror", r"\b(?:502 Bad Gateway|503 Service Unavailable|504 Gateway)|HTTPError: 50[234]|SlowDown.{0,40}reduce your request rate"),
        says("network-failure", "net/ib", r"NET/IB ?:? .{0,60}(?:Got completion .{0,80}(?:status=|with error )(?!0\b)|Got async event|failed|timed? ?out)"),
        says("network-failure", "retry counter", r"transport retry counter exceeded"),
        says("peer-lost", "remote peer", r"Connection closed by remote peer"),
        says("network-failure", "stream", r"ResponseStreamingError|An error occurred while reading from response stream"),
    ),
)  # fmt: skip
