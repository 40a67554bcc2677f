"""Muon: momentum whose singular values are all made about one, for matrices and filters; AdamW for all else.

After Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024). An update is scaled by
0.2 sqrt(max(rows, columns)), about the size of AdamW's, so that both take the same learning rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

ROUNDS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of X -> a X + (b A + c A^2) X, A = X X^T: the slope at 0 is steep, so that small singular values rise within a few
rounds; all end between about 0.7 and 1.2."""
EPSILON = 1e-7


def orthogonalised(matrices: Tensor) -> Tensor:
    """`[n, rows, columns]` with the singular vectors they have and singular values near one, in bfloat16 on a GPU."""
    a, b, c = COEFFICIENTS
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if is_tall else matrices
    x = x.to(torch.bfloat16) if x.is_cuda else x
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + EPSILON)
    for _ in range(ROUNDS):
        square = x @ x.transpose(1, 2)
        square = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, square, x, beta=a)
    return (x.transpose(1, 2) if is_tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """`matrices` by Muon, `others` by AdamW; weight decay on what has two dimensions or more.

    Can be recorded: a learning rate may be a tensor, and where `found_inf` is 1 no weight moves.
    """

    found_inf: Tensor | None = None

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        others: Iterable[nn.Parameter],
        *,
        lr: float,
        momentum: float,
        betas: tuple[float, float],
        weight_decay: float,
    ) -> None:
        rest = list(others)
        groups: list[dict[str, Any]] = [
            {"params": list(matrices), "is_matrix": True, "weight_decay": weight_decay},
            {"params": [p for p in rest if p.dim() >= 2], "is_matrix": False, "weight_decay": weight_decay},
            {"params": [p for p in rest if p.dim() < 2], "is_matrix": False, "weight_decay": 0.0},
        ]
        shared = {"lr": lr, "momentum": momentum, "betas": betas, "eps": 1e-8, "capturable": False}
        super().__init__([group for group in groups if group["params"]], shared)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            learning = [p for p in group["params"] if p.grad is not None]
            if not learning:
                continue
            gradients, rate = [p.grad for p in learning], group["lr"]
            if self.found_inf is not None:  # from then on nothing moves; what is remembered stays finite
                gradients = [torch.where(self.found_inf > 0, 0.0, one) for one in gradients]
                rate = rate * (1 - self.found_inf)
            updates = (self._muon if group["is_matrix"] else self._adam)(learning, gradients, group)
            if group["weight_decay"]:
                torch._foreach_mul_(learning, 1 - rate * group["weight_decay"])  # pyright: ignore[reportPrivateImportUsage]
            torch._foreach_mul_(updates, -rate)  # pyright: ignore[reportPrivateImportUsage]
            torch._foreach_add_(learning, updates)  # pyright: ignore[reportPrivateImportUsage]

    def _muon(self, learning: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Nesterov's momentum, orthogonalised; matrices of one shape go together."""
        for parameter in learning:
            if not self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        moments, decay = [self.state[p]["momentum"] for p in learning], group["momentum"]
        torch._foreach_mul_(moments, decay)  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_add_(moments, gradients)  # pyright: ignore[reportPrivateImportUsage]
        ahead = torch._foreach_add(gradients, moments, alpha=decay)  # pyright: ignore[reportPrivateImportUsage]
        alike: dict[tuple[int, int], list[int]] = defaultdict(list)
        for place, one in enumerate(ahead):
            alike[len(one), one[0].numel()].append(place)
        updates = list(ahead)
        for shape, places in alike.items():
            found = orthogonalised(torch.stack([ahead[place].reshape(shape) for place in places]))
            for place, one in zip(places, found * (0.2 * max(shape) ** 0.5)):
                updates[place] = torch.empty_like(learning[place]).copy_(one.reshape(learning[place].shape))
        return updates

    def _adam(self, learning: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        for parameter in learning:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        first, second = group["betas"]
        steps, means, squares = ([self.state[p][name] for p in learning] for name in ("step", "exp_avg", "exp_avg_sq"))
        torch._foreach_add_(steps, 1)  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_lerp_(means, gradients, 1 - first)  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_mul_(squares, second)  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)  # pyright: ignore[reportPrivateImportUsage]
        updates = []
        for step, mean, square in zip(steps, means, squares):
            spread = (square / (1 - second**step)).sqrt() + group["eps"]
            updates.append(mean / (1 - first**step) / spread)
        return updates
