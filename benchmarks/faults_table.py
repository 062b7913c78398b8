from __future__ import annotations
def table(kills, named, faults):
    return [str(sum(h["struck"] for k in kills for h in k["hits"]))+" kills, wrong "+str([k["wrong"] for k in kills if k["wrong"]])], False
