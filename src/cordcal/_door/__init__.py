"""The door: what a user passes is checked here once and becomes small typed values."""
