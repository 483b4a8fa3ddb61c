"""Run a recipe on a network: the contract, and :func:`adapt`."""

from driftnorm.adapter._contract import Adapter, BatchReport

__all__ = ["Adapter", "BatchReport"]
