"""A program whose iterations last long enough to lose its machines; it tells of its maps."""

PAUSED_MEANS = """
import os
import time
import numpy as np
import sapwood


class Means(sapwood.Program):
    reduce = {"sums": "sum:reproducible"}
    inputs = ("x",)
    rounds: int = sapwood.parameter(12)
    pause: float = sapwood.parameter(0.1)
    told: str = sapwood.parameter("")

    def default_data(self):
        return {"x": np.random.default_rng(5).normal(size=(400, 3))}

    def init(self, data):
        return {"table": np.ones((4, 3)), "round": 0}

    def map(self, data, state):
        time.sleep(self.pause)
        if self.told:
            with open(self.told, "a") as file:
                file.write(f"{state['round']} {sapwood.here().rank}\\n")
        return {"sums": np.sin(data["x"] @ state["table"].T).sum(axis=0)}

    def update(self, state, total):
        return {"table": state["table"] * 0.75 + total["sums"][:, None] / 400,
                "round": state["round"] + 1}

    def done(self, state):
        return state["round"] >= self.rounds
"""
