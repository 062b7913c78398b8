"""Names nobody has seen: prefix + suffix from disjoint pools, so that each tokenises the same wherever it stands.

Splits get disjoint names. That a policy cannot have learned an answer by heart follows from that alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from agent_r1.errors import ConfigError
from agent_r1.seeds import generator

_BEGINNINGS = """
Bel Cor Dra Fen Gal Hum Jor Kel Lum Mav Nor Pol Quo Ras Syl Tor Ulm Vex Wim Yar
Zan Bru Cly Dov Eld Fro Gim Hax Iro Jun Kro Lot Myr Nyx Opa Pra Rud Sko Tev Vos
"""
_ENDINGS = """
dan bex cim dul fay gop hin jaz kum lod mip nut pog qir rus siv tav ubo vek wyn
xal yeb zor bim cag dop evi ful gad hok ija jem kir lun mot nev olo puk rem sot
"""
PREFIXES = tuple(_BEGINNINGS.split())
SUFFIXES = tuple(_ENDINGS.split())
NAMES = tuple(prefix + suffix for prefix, suffix in product(PREFIXES, SUFFIXES))


def disjoint(counts: Mapping[str, int], seed: int) -> dict[str, list[str]]:
    """Distinct names for each split, in seeded order, none in two splits; ConfigError where there are too few."""
    needed = sum(counts.values())
    if needed > len(NAMES):
        raise ConfigError(f"world: its four splits need {needed} names, there are {len(NAMES)}")
    order = iter(generator(seed, "world", "names").permutation(len(NAMES)))
    return {split: [NAMES[next(order)] for _ in range(count)] for split, count in counts.items()}
