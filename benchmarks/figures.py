"""How a benchmark prints: one figure a line, NAME VALUE AIM holds|short."""

from typing import Literal


def tell(name: str, value: float, aim: float, *, at: Literal["most", "least"] = "most") -> None:
    """Print a figure with its aim: at most that, or at least."""
    holds = value <= aim if at == "most" else value >= aim
    sign = "<=" if at == "most" else ">="
    print(f"{name} {value:.3g} {sign}{aim:g} {'holds' if holds else 'short'}", flush=True)
