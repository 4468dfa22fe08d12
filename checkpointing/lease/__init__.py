"""Leave to a part of the object store for the ranks of one attempt: what it allows (`rule`), how it is asked for (`wire`, `client`), how a
request is signed (`signing`), and the store that a rank sees (`store`).

Holds: bytes of objects go between rank and store; who gives the leave sees names only.
"""
