"""The routes, one module a subject. Holds: a route asks ports and shapes the answer; rules are in pure modules beside it."""
