"""One real item on its way from the outbox to a browser: the time of each hop, and the hop that is broken."""
