"""Open WebUI: what a call gives to a tool written for it, and stand-ins for its modules."""
