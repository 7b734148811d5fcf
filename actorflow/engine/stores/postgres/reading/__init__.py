"""Reading: pages, snapshots and the state of a cluster, in any thread."""
