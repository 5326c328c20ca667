"""What is missing where accesses race with asynchronous units, by kind of race."""

_WRITTEN = (
    "missing between the two: cp.async.bulk.wait_group, without .read, by the thread that stores, "
    "then a barrier with this thread"
)
REMEDIES = {
    "read of a bulk load not waited for": "missing before the read: a wait for the phase of the "
    "mbarrier that this load completes, by this thread or before a barrier with it",
    "write to a bulk load not waited for": "missing before the write: a wait for the load's "
    "mbarrier, and a barrier from those who have waited to this thread",
    "write to a source of wgmma in flight": "missing between the two: wgmma.wait_group for its "
    "group by that warpgroup, and then an arrival for which this thread has waited",
    "write to the source of a bulk store in flight": "missing between the two: "
    "cp.async.bulk.wait_group.read by the thread that stores, then a barrier with this thread",
    "write not fenced for an asynchronous unit": "missing between the two: fence.proxy.async by "
    "the thread that writes, before the barrier that orders the two",
    "read of what a bulk store in flight writes": _WRITTEN,
    "write to what a bulk store in flight writes": _WRITTEN,
    "write to the source of a bulk load in flight": "missing before the write: a wait for the "
    "phase of the mbarrier that the load completes, by this thread or before a barrier with it",
    "mbarrier used before its initialisation is seen": "missing between the two: a barrier of both "
    "threads, such as bar.sync (__syncthreads); of two blocks: barrier.cluster behind "
    "fence.mbarrier_init",
    "mbarrier used by a bulk load, without a fence after its initialisation": "missing after "
    "mbarrier.init, by the same thread: fence.mbarrier_init or fence.proxy.async",
    "write to the source of a copy to another block": "missing between the two: an arrival "
    "from that block, behind its wait for the copy, at a barrier for which this thread, or one "
    "that meets it, waits",
    "use of a block's shared memory that may have ended": "missing behind it: an arrival that "
    "releases, at the cluster's barrier or at one of that block, for which it waits before it ends",
}
IN_CLUSTER = (
    "missing between the two: an arrival of the first block that releases to the cluster "
    "(mbarrier.arrive.release.cluster, barrier.cluster), for which the other waits with "
    "acquire.cluster"
)
