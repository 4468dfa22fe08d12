"""Which of an HTTP server's answers another try cannot mend."""

# The address, the key or the request is wrong; 408 and 429 ask for another try.
FOR_GOOD = frozenset(range(400, 500)) - {408, 429}
