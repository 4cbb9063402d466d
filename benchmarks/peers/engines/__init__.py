"""One module for each engine, with a class `Engine` that implements `benchmarks.peers.workloads.Peer`."""
