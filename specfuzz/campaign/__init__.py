"""Composition root: the only place, with conformance, that knows a machine, a system, oracles and a budget at once."""
