"""`trainhouse top`: a live view of jobs, nodes and queue in the terminal.

Holds: everything comes by the client's port, so it works over Kafka and over the gateway alike.  Never: changes anything.
"""
