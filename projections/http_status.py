"""HTTP statuses for which a retry is useless."""

# The address, the key or the request is wrong; 408 and 429 ask for another try.
FOR_GOOD = frozenset(range(400, 500)) - {408, 429}
