"""The one engine that runs every recipe.

begin -> (forward, objective, backward, step) x steps -> commit -> answer, or roll back.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from driftnorm import persistence
from driftnorm.adapter import Adapter, BadBatchError, BatchReport, DriftnormWarning
from driftnorm.converted import Call, ConvertedNetwork
from driftnorm.functional import Moments
from driftnorm.guard import EMPTY, Guard, Policy, Signals, read_signals
from driftnorm.heads import HeadState
from driftnorm.intake import check_input, looks_unnormalized, own_tensor, refuse_export
from driftnorm.preparation import assign_statistics, build_learner, check_batch_norm, start_head
from driftnorm.probe import Layout
from driftnorm.recipe import Recipe
from driftnorm.selection import needs_forward_order
from driftnorm.transaction import Learner, Undo, is_finite

__all__ = ["RecipeAdapter"]

_TINY = 8  # images; below this, statistics of the batch alone are mostly noise


class _Refused(Exception):
    """This batch must leave no trace; the last good state answers it."""


class _Alarm(Exception):
    """The guard found harm; the source answers this batch."""


@final
class RecipeAdapter(Adapter):
    """Runs a :class:`~driftnorm.Recipe` on a network.

    Args:
        network: A trained network; copied, unless ``inplace``.
        recipe: What to do with each batch.
        method: The method's name, for people.
        classifier: Dotted name of the layer that makes the logits; found by itself if ``None``.
        logits: Takes the logits out of what the network returns, if that is not a tensor.
        on_bad_batch: ``"keep"`` answers a bad batch by the last good state, with a warning;
            ``"raise"`` raises :class:`BadBatchError`. Either way nothing changes.
        guard: What to do against collapse: a policy, or a :class:`Guard` with its own thresholds.
        episodic: Start from the source again for each batch.
        reset_every: Start from the source again after so many batches.
        channels_last: Run in channels-last layout; ``None`` does so where it is safe.
        seed: Makes networks that draw random numbers repeatable, batch by batch.
        inplace: Convert ``network`` itself; :meth:`revert` undoes it.
    """

    def __init__(
        self,
        network: nn.Module,
        recipe: Recipe,
        *,
        method: str = "custom",
        classifier: str | None = None,
        logits: Callable[[Any], Tensor] | None = None,
        on_bad_batch: Literal["keep", "raise"] = "keep",
        guard: Policy | Guard = "warn",
        episodic: bool = False,
        reset_every: int | None = None,
        channels_last: bool | None = None,
        seed: int | None = None,
        inplace: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(network, nn.Module):
            raise TypeError(f"`network` must be an nn.Module, got {type(network).__name__}.")
        if on_bad_batch not in ("keep", "raise"):
            raise ValueError(f"`on_bad_batch` must be 'keep' or 'raise', got {on_bad_batch!r}.")
        if reset_every is not None and reset_every < 1:
            raise ValueError(f"`reset_every` must be at least 1, got {reset_every}.")
        self.method = method
        self.recipe = recipe
        self.guard = guard if isinstance(guard, Guard) else Guard(policy=guard)
        self.on_bad_batch = on_bad_batch
        self.episodic = episodic
        self.reset_every = reset_every
        self.seed = seed
        self._classifier = classifier
        self._warned: set[str] = set()
        self._lock = threading.RLock()
        if network.training:
            self._warn_once(
                "the network was handed over in training mode; the adapter runs it in evaluation "
                "mode (call `.eval()` before `adapt` to silence this)."
            )
        self.converted = ConvertedNetwork(network, logits, channels_last, inplace)
        self._layers = self.converted.layers
        check_batch_norm(network, self._layers, recipe, method)
        self._layout: Layout | None = None
        self._learner: Learner | None = None
        self._head: HeadState | None = None
        self._head_start: HeadState | None = None
        self._guard_state = EMPTY
        self.batches = self.bad_batches = 0
        self.frozen = False
        self.last = None
        selectors = (recipe.only, *(selector for selector, _ in recipe.per_layer))
        if not recipe.needs_classifier and not any(map(needs_forward_order, selectors)):
            self._prepare(Layout(tuple(self._layers)))

    def _prepare(self, layout: Layout) -> None:
        """Give every layer its statistics, and find what is trained and what answers."""
        network, recipe = self.converted.network, self.recipe
        chosen = assign_statistics(self._layers, recipe, layout)
        self._learner = build_learner(network, recipe, layout, chosen)
        self._head = self._head_start = start_head(network, recipe, layout)
        self._layout = layout
        self.converted.watch(layout.classifier if self._head is not None else None)

    # ------------------------------------------------------------------ the contract

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Answer a batch, and adapt to it unless frozen."""
        refuse_export()
        with self._lock, torch.inference_mode(False), self._seeded():
            check_input(x, self.converted.network)
            return self._serve(Call(*tree_map(own_tensor, (x, args, kwargs))))

    def reset(self) -> None:
        """Back to the state in which the adapter was built, bit for bit."""
        with self._lock:
            self._restart()
            self.bad_batches = 0
            self.frozen = False
            self.last = None

    def freeze(self) -> RecipeAdapter:
        """From now on, answer with the current state and do not adapt."""
        self.frozen = True
        return self

    def unfreeze(self) -> RecipeAdapter:
        """Adapt again."""
        self.frozen = False
        return self

    def bake(self) -> nn.Module:
        """An independent, plain network that answers as the frozen adapter does."""
        with self._lock:
            classifier = self._layout.classifier if self._layout is not None else None
            weight = None if self._head is None else self._centroids(self._head)
            return self.converted.bake(classifier, weight)

    def revert(self) -> nn.Module:
        """The source network again; with ``inplace=True``, the very one that was given."""
        self.reset()
        return self.converted.revert() if self.converted.inplace else self.bake()

    def __repr__(self) -> str:
        settings = ", ".join(filter(None, [self.recipe.settings(), f"guard={self.guard.policy!r}"]))
        norms = len({*map(id, self._layers.values())})
        return (
            f"driftnorm.Adapter({self.method!r} on {self.converted.kind} with {norms} batch-norm "
            f"layers: {settings}; {self.batches} batches seen{', frozen' if self.frozen else ''})"
        )

    # ------------------------------------------------------------------ one batch

    def _serve(self, call: Call) -> Any:
        samples = len(call.x)
        if samples == 0:
            self.last = BatchReport("empty", 0)
            return self._settled_answer(call)
        if call.x.is_floating_point() and not is_finite([call.x]):
            return self._refuse("the input holds NaN or infinite values", call)
        call = self.converted.lay_out(call, self._source_parameters)
        if self._layout is None:
            needed = self.recipe.needs_classifier
            self._prepare(self.converted.discover(call, self._classifier, needed))
        if self.frozen:
            self.last = BatchReport("frozen", samples)
            return self._settled_answer(call)
        undo = Undo(self._layers, self._learner, self._head, self._guard_state, self.batches)
        try:
            if self.episodic or (self.reset_every and self.batches >= self.reset_every):
                self._restart()
            return self._adapt(call)
        except _Refused as refused:
            self._roll_back(undo)
            return self._refuse(str(refused), call)
        except _Alarm as alarm:
            self._restart()
            self.frozen = self.guard.policy == "freeze"
            self.last = BatchReport("guarded", samples, reason=str(alarm))
            return self.converted.source(call, self._source_parameters)
        except BaseException:
            self._roll_back(undo)
            raise

    def _adapt(self, call: Call) -> Any:
        output, logits, loss = self._optimise(call)
        if self._learner is None or self.recipe.predict == "after":
            with torch.no_grad():
                output, logits = self.converted.run(call)
        answer, head = self._answer(output)
        proposed = [p for layer in self._layers.values() if (p := layer.pending) is not None]
        if not is_finite([t for p in proposed for t in (p.mean, p.var)]):
            raise _Refused("the batch makes the statistics of a layer non-finite")
        signals = read_signals(logits)
        self._warn_about(call.x, signals)
        self._audit(call, logits, signals)
        for layer in self._layers.values():
            layer.commit()
        self._head = head
        self._guard_state = self._guard_state.after(signals)
        self.batches += 1
        self.last = BatchReport("adapted", len(call.x), signals.entropy, signals.spread, loss)
        return tree_map(_detached, answer)

    def _optimise(self, call: Call) -> tuple[Any, Any, float | None]:
        """The gradient steps; returns the last forward's output, its logits and the loss."""
        output = logits = value = None
        learner, objective = self._learner, self.recipe.objective
        if learner is None or objective is None:
            return output, logits, value
        for step in range(self.recipe.steps):
            if step and self.recipe.count == "step":
                for layer in self._layers.values():
                    layer.commit()
            with torch.enable_grad():
                output, logits = self.converted.run(call)
                loss = objective(logits)
            if loss is None:
                continue
            if not learner.descend(loss):
                raise _Refused("the loss, its gradient or the parameters after it are not finite")
            value = float(loss.detach())
        return output, logits, value

    def _answer(self, output: Any) -> tuple[Any, HeadState | None]:
        """What the caller gets, and the head's state after this batch."""
        if self.recipe.head is None or self._head is None or self.converted.features is None:
            return output, self._head
        features, linear = self.converted.features
        after = self.recipe.head.update(self._head, features.float(), linear.float())
        return self._from_centroids(after), after

    def _from_centroids(self, state: HeadState) -> Tensor:
        assert self.converted.features is not None
        features, linear = self.converted.features
        return F.linear(features.float(), self._centroids(state)).to(linear.dtype)

    def _centroids(self, state: HeadState) -> Tensor:
        assert self.recipe.head is not None
        return self.recipe.head.weights(state)

    def _settled_answer(self, call: Call) -> Any:
        output = self.converted.settled(call)
        return output if self._head is None else self._from_centroids(self._head)

    def _refuse(self, why: str, call: Call) -> Any:
        self.bad_batches += 1
        self.last = BatchReport("bad", len(call.x), reason=why)
        message = f"a batch after {self.batches} good ones was not adapted to: {why}"
        if self.on_bad_batch == "raise":
            raise BadBatchError(f"{message}. No state was changed.")
        warnings.warn(
            f"{message}; the last good state answers it (bad batches so far: {self.bad_batches}).",
            DriftnormWarning,
            stacklevel=2,
        )
        return self._settled_answer(call)

    # ------------------------------------------------------------------ watching

    def _audit(self, call: Call, logits: Tensor, signals: Signals) -> None:
        """Ask the source about some images of this batch, if the guard wants to."""
        watched = self.recipe.batch_dependent or self.recipe.needs_backward
        if self.episodic or not watched or not self.guard.wants_audit(self._guard_state, signals):
            return
        few = call.first(self.guard.images)
        source = self.converted.logits(self.converted.source(few, self._source_parameters))
        moved = 0.0 if self._learner is None else self._learner.distance()
        alarm = self.guard.verdict(read_signals(logits[: len(source)]), read_signals(source), moved)
        if alarm is None:
            return
        if self.guard.policy != "warn":
            raise _Alarm(alarm)
        self._warn_once(
            f"adaptation may be doing harm: {alarm}. `guard='reset'` or 'freeze' would go back to "
            f"the source."
        )

    def _warn_about(self, x: Tensor, signals: Signals) -> None:
        statistics = self.recipe.statistics
        if len(x) < _TINY and statistics.uses_batch and not statistics.keeps_history:
            self._warn_once(
                f"statistics of a batch of {len(x)} are mostly noise: use larger batches, running "
                f"statistics ('gprebn') or a source prior ('bn-prior')."
            )
        if self.recipe.order_dependent and self.guard.ordered(self._guard_state, signals):
            self._warn_once(
                "the predicted classes changed abruptly between batches: if the stream is ordered "
                "by class, shuffle it, or adapt less (smaller `theta`, guard='freeze')."
            )
        if self.batches == 0 and self._layout is not None and self._layout.order:
            layer = self._layers[self._layout.order[0]]
            first = layer.pending and Moments(layer.pending.mean, layer.pending.var)
            why = looks_unnormalized(x, first, layer.source)
            if why:
                self._warn_once(f"the input looks un-normalised: {why}.")

    def _warn_once(self, message: str) -> None:
        kind = message[:30]  # the rest may hold numbers
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, DriftnormWarning, stacklevel=2)

    # ------------------------------------------------------------------ state

    @property
    def _source_parameters(self) -> Mapping[str, Tensor]:
        return {} if self._learner is None else self._learner.start

    def _restart(self) -> None:
        for layer in self._layers.values():
            layer.forget()
        if self._learner is not None:
            self._learner.restart()
        self._head = self._head_start
        self._guard_state = EMPTY
        self.batches = 0

    def _roll_back(self, undo: Undo) -> None:
        undo()
        self._head, self._guard_state, self.batches = undo.head, undo.guard, undo.batches

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Everything the stream changed, and the network, as contiguous tensors."""
        with self._lock:
            state = super().state_dict(*args, **kwargs)
            for key, value in state.items():
                if isinstance(value, Tensor):
                    state[key] = value.contiguous()
            return state

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Go on where a saved stream was. Checked as a whole before anything is changed."""
        with self._lock:
            if strict:
                own, settings = self.state_dict(), self.recipe.settings()
                persistence.check_compatible(state_dict, own, self.method, settings)
            return super().load_state_dict(state_dict, strict, assign)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        about = persistence.describe(self.method, self.recipe.settings(), self._layout)
        counters = (self.batches, self.bad_batches, self.frozen)
        own = persistence.pack(about, counters, self._guard_state, self._head, self._learner)
        for key, value in own.items():
            destination[f"{prefix}{persistence.PREFIX}{key}"] = value

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        own_prefix = prefix + persistence.PREFIX
        own = {k: state_dict.pop(k) for k in [*state_dict] if k.startswith(own_prefix)}
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._restore({key.removeprefix(own_prefix): value for key, value in own.items()})

    def _restore(self, own: Mapping[str, Tensor]) -> None:
        about = persistence.read_about(own)
        if self._layout is None and "order" in about:
            self._prepare(Layout(tuple(about["order"]), about["classifier"]))
        counters = own["counters"].tolist()
        self.batches, self.bad_batches, self.frozen = counters[0], counters[1], bool(counters[2])
        self._guard_state = persistence.read_guard(own)
        self._head = persistence.read_head(own)
        if self._learner is not None:
            self._learner.set_optimizer_state(persistence.read_optimizer(own, self._learner))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RecipeAdapter:
        """Move what is not a parameter or a buffer along with the network."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self._learner is not None:
            self._learner.apply(fn)
        for name in ("_head", "_head_start"):
            state = getattr(self, name)
            if state is not None:
                setattr(self, name, {k: _moved(v, fn) for k, v in state.items()})
        self._guard_state = self._guard_state._replace(
            marginal=_moved(self._guard_state.marginal, fn)
        )
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._lock = threading.RLock()

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        if self.seed is None:
            yield
            return
        with torch.random.fork_rng():
            torch.manual_seed(self.seed + self.batches)
            yield


def _detached(value: object) -> object:
    return value.detach() if isinstance(value, Tensor) else value


def _moved(value: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    """Follow a change of device, but keep counts, labels and float32 as they are."""
    return value.to(fn(torch.empty(0, device=value.device)).device)
