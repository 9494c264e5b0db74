"""Floor 1: one file per provider behind two small Protocols. SDKs are imported inside functions (1 to 2 s)."""
