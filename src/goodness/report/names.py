"""Names that tables and figures share."""

DEMO_NAMES = {
    "local": "local, γ = 0",
    "gated": "gated, κ = 0",
    "constant": "constant, γ = 0.7",
    "lcff": "LCFF, γ = 1",
}
