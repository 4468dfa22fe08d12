"""Events on the bus: envelope, codec, topics, journal records, published schemas."""
