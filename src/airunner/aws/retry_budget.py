"""How many failed tries may be repeated: all calls of a service draw on one budget.

While AWS is away the tries of servers, workers and clients would multiply. Here a service that keeps failing
is asked once for each call before long, and as often as ever once it answers again. The numbers are those of
the SDK's standard mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.aws.errors import ErrorKind

if TYPE_CHECKING:
    from airunner.domain.retry import RetryPolicy

TOKENS: Final = 500
_COST: Final = {ErrorKind.THROTTLED: 5, ErrorKind.AWAY: 5, ErrorKind.TIMED_OUT: 10}


class RetryBudget:
    """Tokens of one service: 500 at first and at most."""

    def __init__(self, tokens: int = TOKENS) -> None:
        self._capacity = tokens
        self._left = tokens

    def take(self, tokens: int) -> bool:
        """Take tokens, all or none; return whether there were enough."""
        if tokens > self._left:
            return False
        self._left -= tokens
        return True

    def give_back(self, tokens: int) -> None:
        """Put tokens back."""
        self._left = min(self._capacity, self._left + tokens)


class Repetitions:
    """The tries of one call: how many there may be depends on what went wrong, and on the budget.

    A repetition takes 5 tokens, after a time-out 10. A call that is answered in the end gives back what it
    took; one that is answered at once gives one. What failed for good took its tokens for good.
    """

    def __init__(self, budget: RetryBudget, policy: RetryPolicy, throttled_policy: RetryPolicy) -> None:
        self._budget = budget
        self._policy = policy
        self._throttled_policy = throttled_policy
        self._failures = 0
        self._taken = 0
        self.is_refused = False
        """Whether the budget had not enough for another try."""

    def may_follow(self, kind: ErrorKind) -> bool:
        """Return whether another try may follow one that failed, and take what it costs. Once per failure."""
        self._failures += 1
        policy = self._throttled_policy if kind is ErrorKind.THROTTLED else self._policy
        if not kind.may_pass or policy.exhausted(self._failures):
            return False
        cost = _COST[kind]
        self.is_refused = not self._budget.take(cost)
        self._taken += 0 if self.is_refused else cost
        return not self.is_refused

    def answered(self) -> None:
        """Take note that AWS has answered."""
        self._budget.give_back(self._taken or 1)
