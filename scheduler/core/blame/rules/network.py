"""Lines of connections that ended or never came: the network's fault only if no rank died by itself.

Names of NCCL's results: its user guide, "ncclResult_t"; status of InfiniBand completions: `ibv_wc_status`.
"""

from typing import Final

from trainhouse.events import FailureCategory
from trainhouse.scheduler.core.blame.rules.rule import Rule

_W: Final = FailureCategory.NETWORK

OUTSIDE: Final = (
    Rule(
        "name-resolution",
        r"Temporary failure in name resolution|Name or service not known|Failed to resolve '|NameResolutionError",
        _W,
        "a name cannot be resolved",
    ),
    Rule(
        "outside-unreachable",
        r"requests\.exceptions\.(?:Connection|ConnectTimeout|ReadTimeout|SSL|Proxy)\w*|urllib3\.exceptions\.(?:MaxRetry|"
        r"NewConnection|ReadTimeout)Error|LocalEntryNotFoundError|aiohttp\.client_exceptions\.\w+|httpx\.Connect\w+",
        _W,
        "something outside the cluster cannot be reached",
    ),
)

FABRIC: Final = (
    Rule(
        "fabric-completion",
        r"NET/IBP? ?: ?Got completion (?:from peer .{0,200} )?with (?:status|error)|transport retry counter exceeded|"
        r"NET/OFI .{0,200}(?:error|failed)",
        _W,
        "the fabric gave up on a transfer between two ranks",
    ),
    Rule(
        "fabric-setup",
        r"Call to ibv_\w+ failed|ibv_\w+ failed|NET/IB : No device found|Failed to modify QP",
        _W,
        "two ranks cannot be connected over the fabric",
    ),
    Rule(
        "fabric-event",
        r"NET/IB : .{0,200}(?:port error|async fatal event)|mlx5_\w+.{0,80}Link DOWN|Port: \d+ Link DOWN",
        _W,
        "a port of the fabric went down",
    ),
)

CONNECTIONS: Final = (
    Rule(
        "no-route",
        r"No route to host|Network is unreachable|\[Errno 113\]|\[Errno 101\]",
        _W,
        "a node cannot be reached from another",
    ),
    Rule(
        "collective-timeout",
        r"collective operation timeout|Heartbeat monitor timed out|watchdog got stuck|Timeout at NCCL work",
        _W,
        "ranks waited in a collective until it timed out",
    ),
    Rule(
        "gloo-timeout",
        r"Timed out waiting \d+ms for (?:recv|send) operation|Application timeout caused pair closure|Gloo connectFullMesh failed",
        _W,
        "ranks waited for each other until a timeout",
    ),
    Rule(
        "store-timeout",
        r"client socket has (?:timed out|failed to connect)|DistStoreError|DistNetworkError|"
        r"Timed out after \d+ seconds waiting for (?:clients|workers)|wait timeout after|Socket Timeout|"
        r"Broken pipe.{0,80}TCPStore",
        _W,
        "a rank could not reach the rendezvous store, or others did not come",
    ),
    Rule(
        "peer-closed",
        r"Connection closed by (?:remote )?peer|Connection reset by peer|recvValue failed|remote process exited|"
        r"ncclRemoteError|failed : Broken pipe|Connection was likely closed|Software caused connection abort",
        _W,
        "a rank's peer closed their connection",
    ),
    Rule(
        "connection-refused",
        r"Connect(?:ion)? to .{0,200} failed : Connection (?:refused|timed out)|socketStartConnect|socketPollConnect",
        _W,
        "a rank could not connect to another",
    ),
    Rule(
        "nccl",
        r"NCCL error|ncclSystemError|ncclInternalError|ncclUnhandledCudaError|NCCL WARN|DistBackendError|NCCL operations have failed",
        _W,
        "communication between ranks failed",
    ),
    Rule(
        "ucx",
        r"UCX +(?:ERROR|FATAL)|\bu[cb][tp]_\w+ .{0,80}(?:failed|error)|Endpoint timeout|rdma_cm.{0,80}(?:error|REJECTED)",
        _W,
        "a transport between ranks failed",
    ),
    Rule(
        "rendezvous",
        r"Rendezvous(?:Timeout|Connection|Closed|State)Error|network set ?up issue|application crash on rank|failed to connect/validate",
        _W,
        "ranks did not find each other",
    ),
    Rule("xid-cleanup", r"Xid \([^)\n]*\): 45\b", _W, "the driver cleaned up after another fault"),
    Rule("rank-failed", r"checkpointing\.errors\.RankFailed", _W, "another rank failed in a step that all take together"),
)
