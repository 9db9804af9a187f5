"""Members and the collective, talked to: a desk, an endpoint, a chat."""
