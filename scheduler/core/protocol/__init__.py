"""The journal protocol: machines that run under it, records, batches, the gate, what a record publishes."""
