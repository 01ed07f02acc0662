"""An exchange of rows that autograd can run backwards, and that need not be waited for at once.

The backward pass of an all-to-all is the all-to-all with the two lists of sizes swapped (ESDG,
section 4.2: two gradient exchanges per layer). Two autograd nodes make it
asynchronous in both directions: `_Begin` hands out the buffer that is still being received and
`_Finish` waits for it; backward, `_Finish` begins the reverse exchange and `_Begin` waits. Autograd
runs nodes in the reverse order of their creation, so work that was put between begin and finish in
the forward pass also lies between them in the backward pass and overlaps there, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgbench.runtime.errors import InvalidInputError

if TYPE_CHECKING:
    from dgbench.runtime.collectives.traffic import Phase

Start = Callable[[Tensor, tuple[int, ...], tuple[int, ...], "Phase"], "PendingExchange"]


class PendingExchange(ABC):
    """One exchange under way.

    Attributes:
        received: [sum of rows to receive, ...], defined once `wait` has returned.
    """

    received: Tensor

    @abstractmethod
    def wait(self) -> None:
        """Return when `received` may be read by work enqueued from now on."""


class Arrived(PendingExchange):
    """An exchange that needs no waiting."""

    def __init__(self, received: Tensor) -> None:
        self.received = received

    def wait(self) -> None:
        """Nothing to wait for."""


class Exchange:
    """Handle of an all-to-all that was begun; `wait` gives its result, once.

    Until then the tensor that was sent must not be written to.
    """

    def __init__(
        self,
        begin: Start,
        x: Tensor,
        send: tuple[int, ...],
        receive: tuple[int, ...],
        phase: Phase,
    ) -> None:
        self._flow = _Flow(begin, send, receive)
        self._waited = False
        if torch.is_grad_enabled() and x.requires_grad:
            self._received = _Begin.apply(x, self._flow, phase)
        else:
            self._flow.forward = begin(x.detach(), send, receive, phase)
            self._received = self._flow.forward.received

    def wait(self) -> Tensor:
        """The received rows, [sum of the rows to receive, ...], ordered by source rank.

        Raises:
            InvalidInputError: it was waited for before.
            CommunicationError: another rank is gone or late.
        """
        if self._waited:
            raise InvalidInputError(
                "this exchange was waited for before", hint="keep the tensor that wait() returned"
            )
        self._waited = True
        received, self._received = self._received, None
        if received.requires_grad:
            return _Finish.apply(received, self._flow)
        self._flow.forward.wait()
        return received


class _Flow:
    """State shared by the forward and backward autograd nodes of one exchange."""

    def __init__(self, begin: Start, send: tuple[int, ...], receive: tuple[int, ...]) -> None:
        self.begin, self.send, self.receive = begin, send, receive
        self.forward: Any = None  # a ticket while the exchange is under way
        self.backward: Any = None


class _Begin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, flow: _Flow, phase: Phase) -> Tensor:
        ctx.flow = flow
        flow.forward = flow.begin(x, flow.send, flow.receive, phase)
        return flow.forward.received

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        # `gradient` went out in the exchange that `_Finish` began; the other end's comes back.
        ticket, ctx.flow.backward = ctx.flow.backward, None
        ticket.wait()
        return ticket.received, None, None


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, received: Tensor, flow: _Flow) -> Tensor:
        ctx.flow = flow
        ticket, flow.forward = flow.forward, None
        ticket.wait()
        return received.view_as(received)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        flow = ctx.flow
        flow.backward = flow.begin(gradient, flow.receive, flow.send, "backward")
        # What arrives has the shape of what was sent forward, so it cannot be handed to `_Begin`
        # as the gradient of what was received; it finds it in the flow.
        return gradient, None
