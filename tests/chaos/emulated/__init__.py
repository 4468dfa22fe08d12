"""A campaign in emulation: real schedulers over a broker in memory, a fleet and its jobs in virtual time, and faults of all kinds.

Real: the machine of the schedule with its gate, the journal's hosts with owners, publishers, stand-ins, snapshots and recovery. Emulated:
brokers, object store, group membership, nodes with their ranks, clocks and the network. Everything follows from the seed.
"""
