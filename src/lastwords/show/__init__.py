"""How a diagnosis is shown. See README.md for the map; renderers are imported by name, as each needs its own parts."""
