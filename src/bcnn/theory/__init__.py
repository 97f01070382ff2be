"""Section 3 of the paper as code: a 3 layer binary network approximates any function (Fig. 1).

f -> tiling (cells) -> plan (values, sub branches) -> construction (the network)
                          |-> budget: what it costs      |-> bound: how far it can be from f

>>> network = approximate(lambda x: np.sin(6 * x), (0, 1), d=0.01, Q=64)
>>> y = evaluate(network, np.linspace(0, 1, 1000))
"""

from bcnn.theory.bound import error_bound, estimate_lipschitz, sup_error
from bcnn.theory.budget import Budget, budget
from bcnn.theory.construction import Approximator, BinaryLayer, approximate, evaluate
from bcnn.theory.deploy import levels, lower, pixels
from bcnn.theory.plan import Plan, make_plan

__all__ = [
    "Approximator",
    "BinaryLayer",
    "Budget",
    "Plan",
    "approximate",
    "budget",
    "error_bound",
    "estimate_lipschitz",
    "evaluate",
    "levels",
    "lower",
    "make_plan",
    "pixels",
    "sup_error",
]
