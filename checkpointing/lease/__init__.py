"""Leave to a part of the object store for the ranks of one attempt: what it allows (`access_rule`), how it is asked for (`wire`,
`lease_client`), how a request is signed (`signing`), and the store that a rank sees (`signed_store`).

Holds: bytes of objects go between rank and store; who gives the leave sees names only.
"""
