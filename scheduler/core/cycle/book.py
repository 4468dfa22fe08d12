"""The book of one partition: who waits, who runs, what is free. What a cycle reads, and what its actions change.

Holds: `apply` and the named methods are the only changes; the book after them is what it would be if it were built anew from its
records, in any order. A fork shares frozen records and nothing that changes.
Never: decides; knows events.

This is the joint between the machine of the journal (which keeps a book beside its records), the simulator (which has nothing else),
and the cycle.
"""
