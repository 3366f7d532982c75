"""Prices: the run-time cost of calls, and the static estimate of whole expressions.

What belongs here: cel-go's defaults and its estimation over a typed tree. What does not belong here: the prices that
Kubernetes declares for its own libraries (`libraries.costs`, `libraries.estimates`) and the charging itself
(`compiler`).
"""
