"""The one engine that runs every recipe.

begin -> (forward, objective, backward, step) x steps -> commit -> answer, or roll back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftnorm.adapter import _saving as persistence
from driftnorm.adapter._checks import check_input, normalizes_input, refuse_export
from driftnorm.adapter._contract import Adapter, BatchReport
from driftnorm.adapter._learner import is_finite
from driftnorm.adapter._network import Call, ConvertedNetwork
from driftnorm.adapter._outputs import detached
from driftnorm.adapter._probe import Layout, check_classifier_name
from driftnorm.adapter._setup import assign_statistics, build_learner, check_batch_norm, start_head
from driftnorm.adapter._state import StreamState
from driftnorm.adapter._watch import Watch
from driftnorm.adapter.guard import Guard, Policy, Signals, Verdict, read_signals
from driftnorm.errors import BadBatchError, warn
from driftnorm.heads import HeadState
from driftnorm.recipe import Recipe
from driftnorm.selection import needs_forward_order

__all__ = ["RecipeAdapter"]


class _Refused(Exception):
    """This batch must leave no trace; the last good state answers it."""


class _Stopped(Exception):
    """The guard found harm, or is in doubt; the source answers this batch."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.why)
        self.harm = verdict.finding == "harm"


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

    @torch.inference_mode(False)
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
        if reset_every is not None and not (type(reset_every) is int and reset_every >= 1):
            raise ValueError(f"`reset_every` must be a whole number >= 1, got {reset_every!r}.")
        self.method = method
        self.recipe = recipe
        self.guard = guard if isinstance(guard, Guard) else Guard(policy=guard)
        self.on_bad_batch = on_bad_batch
        self.episodic = episodic
        self.reset_every = reset_every
        self.seed = seed
        self._classifier = classifier
        self._lock = threading.RLock()
        if network.training:
            warn(
                "the network was handed over in training mode; the adapter runs it in evaluation "
                "mode (call `.eval()` before `adapt` to silence this)."
            )
        self._layout: Layout | None = None
        self._reverted = False
        self.last = None
        self.converted = ConvertedNetwork(network, logits, channels_last, inplace)
        self._layers = self.converted.layers
        self._state = StreamState(self._layers)
        self._watch = Watch(self.guard, recipe, episodic, self._state)
        self._fingerprint = persistence.fingerprint(self.converted)
        try:
            if classifier is not None:
                check_classifier_name(self.converted.network, classifier)
            check_batch_norm(network, self._layers, recipe, method)
            selectors = (recipe.only, *(selector for selector, _ in recipe.per_layer))
            if not recipe.needs_classifier and not any(map(needs_forward_order, selectors)):
                self._prepare(Layout(tuple(self._layers)))
        except BaseException:
            self.converted.revert()  # an in-place conversion that failed leaves no trace
            raise

    @property
    def batches(self) -> int:
        """How many batches it has adapted to since the start or the last reset."""
        return self._state.batches

    @property
    def bad_batches(self) -> int:
        """How many batches were refused."""
        return self._state.bad_batches

    @property
    def alarms(self) -> int:
        """How many times the guard found adaptation harmful."""
        return self._state.alarms

    @property
    def frozen(self) -> bool:
        """Whether it answers without adapting."""
        return self._state.frozen

    def _prepare(self, layout: Layout) -> None:
        """Give every layer its statistics, and find what is trained and what answers."""
        network, recipe = self.converted.network, self.recipe
        chosen = assign_statistics(self._layers, recipe, layout)
        learner = build_learner(network, recipe, layout, chosen)
        head = start_head(network, recipe, layout)
        self._state.prepare(learner, head)
        self._layout = layout
        self.converted.watch(None if head is None else layout.classifier)

    # ------------------------------------------------------------------ the contract

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a batch, and adapt to it unless frozen.

        Takes what the network takes; the first tensor in it is the batch. Returns what the network
        returns, detached; with a classifier-side method, the logits.
        """
        refuse_export()
        if torch.compiler.is_compiling():
            # Importing the compiler takes a second: only where it is at work already.
            eagerly = torch.compiler.disable(self._respond)  # type: ignore[no-untyped-call]
            return eagerly(args, kwargs)
        return self._respond(args, kwargs)

    def _respond(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._reverted:
            raise RuntimeError(
                "this adapter was reverted; call `adapt` again to adapt its network."
            )
        with self._lock, torch.inference_mode(False), self._own_randomness():
            call = Call.of(args, kwargs)
            check_input(call.x, self.converted.network)
            return self._serve(call)

    def logits_in(self, answer: Any) -> Tensor:
        """The logits in what a call returned."""
        # A head answers with logits alone; before its first batch the network itself does.
        from_head = self.recipe.head is not None and isinstance(answer, Tensor)
        return answer if from_head else self.converted.logits(answer)

    @torch.inference_mode(False)
    def reset(self) -> None:
        """Back to the state in which the adapter was built, bit for bit."""
        with self._lock:
            self._state.reset()
            self._watch.forget()
            self.last = None

    def freeze(self) -> RecipeAdapter:
        """From now on, answer with the current state and do not adapt."""
        self._state.frozen = True
        return self

    def unfreeze(self) -> RecipeAdapter:
        """Adapt again."""
        self._state.frozen = False
        return self

    @torch.inference_mode(False)
    def bake(self) -> nn.Module:
        """An independent, plain network that answers as the frozen adapter does."""
        with self._lock:
            weight = self._centroids(self._state.head) if self._head_answers else None
            return self.converted.bake(self._found_classifier, weight)

    def export_onnx(self, path: str | Path, example: Tensor, *, tolerance: float = 1e-3) -> float:
        """Write the baked network as ONNX; see :func:`driftnorm.export_onnx`."""
        from driftnorm.adapter.export import export_onnx

        return export_onnx(self, path, example, tolerance=tolerance)

    @torch.inference_mode(False)
    def revert(self) -> nn.Module:
        """The source network again; with ``inplace=True``, the very one that was given."""
        with self._lock:
            self.reset()
            if not self.converted.inplace:
                return self.converted.source_copy(self._found_classifier)
            self._reverted = True
            return self.converted.revert()

    def __repr__(self) -> str:
        options = {"episodic": False, "reset_every": None, "on_bad_batch": "keep", "seed": None}
        changed = [f"{k}={getattr(self, k)!r}" for k, v in options.items() if getattr(self, k) != v]
        settings = [self.recipe.settings(), f"guard={self.guard.policy!r}", *changed]
        return (
            f"driftnorm.Adapter({self.method!r} on {self.converted.kind} with {len(self._layers)} "
            f"batch-norm layers: {', '.join(filter(None, settings))}; "
            f"{self.batches} batches seen{', frozen' if self.frozen else ''})"
        )

    # ------------------------------------------------------------------ one batch

    def _serve(self, call: Call) -> Any:
        samples = len(call.x)
        if samples == 0:
            self.last = BatchReport("empty", 0)
            return self._unadapted_answer(call)
        if call.x.is_floating_point() and not is_finite([call.x]):
            return self._refuse("the input holds NaN or infinite values", call)
        call = self.converted.lay_out(call)
        if self._layout is None:
            needed = self.recipe.needs_classifier
            self._prepare(self.converted.discover(call, self._classifier, needed))
        if self.frozen:
            self.last = BatchReport("frozen", samples)
            return self._settled_answer(call)
        state = self._state
        undo = state.remember()
        try:
            if self.episodic or (self.reset_every and self.batches >= self.reset_every):
                state.restart()
            return self._adapt(call)
        except _Refused as refused:
            undo()
            return self._refuse(str(refused), call)
        except _Stopped as stopped:
            known = state.guard
            undo()
            if stopped.harm:
                state.restart()
                state.frozen = self.guard.policy == "freeze"
            state.guard = known.restarted() if stopped.harm else known
            self.last = BatchReport("guarded", samples, reason=str(stopped))
            return self._source_answer(call)
        except BaseException:
            undo()
            raise

    def _adapt(self, call: Call) -> Any:
        state = self._state
        self._reseed(call.x.device)
        output, logits, loss = self._optimise(call)
        if state.learner is None or self.recipe.predict == "after":
            with torch.no_grad():
                output, logits = self.converted.run(call)
        if not is_finite([logits]):
            raise _Refused("the network's answer is not finite")
        answer, head = self._answer(output)
        proposed = [p for layer in self._layers.values() if (p := layer.pending) is not None]
        # Put together first: a sum for each of them costs more than all numbers are worth.
        if proposed and not is_finite([torch.cat([t for p in proposed for t in p[:2]])]):
            raise _Refused("the batch makes the statistics of a layer non-finite")
        signals = read_signals(logits)
        self._look(call, logits, signals)
        for layer in self._layers.values():
            layer.commit()
        state.head = head
        state.guard = state.guard.after(signals)
        state.batches += 1
        about = (signals.entropy, signals.spread, loss)
        self.last = BatchReport("adapted", len(call.x), *about, source=self._watch.asked)
        return answer.detach() if isinstance(answer, Tensor) else detached(answer)

    def _look(self, call: Call, logits: Tensor, signals: Signals) -> None:
        """Warn about the batch; stop it if the guard finds that the source would do better."""
        self._watch.look(call.x, signals)
        if self.batches == 0:
            self._watch.look_at_logits(logits)
        first_batch = self.batches == 0 and self._layout is not None and bool(self._layout.order)
        if first_batch and not normalizes_input(self.converted.network):
            assert self._layout is not None
            self._watch.look_at_first(call.x, self._layers[self._layout.order[0]])

        def ask_source(images: int) -> Tensor:
            return self.converted.logits(self._source_answer(call.first(images)))

        learner = self._state.learner
        moved = 0.0 if learner is None else learner.distance()
        verdict = self._watch.audit(logits, signals, ask_source, moved)
        if verdict.finding != "fine":
            raise _Stopped(verdict)

    def _optimise(self, call: Call) -> tuple[Any, Any, float | None]:
        """The gradient steps; returns the last forward's output, its logits and the loss."""
        output = logits = value = None
        learner, objective = self._state.learner, self.recipe.objective
        if learner is None or objective is None:
            return output, logits, value
        for step in range(self.recipe.steps):
            if step and self.recipe.count == "step":
                for layer in self._layers.values():
                    layer.commit()
            with torch.enable_grad():
                learner.require_grad()
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
        head = self._state.head
        if self.recipe.head is None or head is None or self.converted.features is None:
            return output, head
        features, linear = self.converted.features
        if features.dim() != 2:
            raise TypeError(
                f"{type(self.recipe.head).__name__} gives an image one class, but the classifier "
                f"takes features of shape {tuple(features.shape)}, as for dense prediction; choose "
                f"a method that adapts batch norm, such as 'gprebn' or 'bn'."
            )
        after = self.recipe.head.update(head, features.float(), linear.float())
        return self._from_centroids(after), after

    @property
    def _head_answers(self) -> bool:
        """Before any batch the adapter is the source: its own classifier answers."""
        return self._state.head is not None and self.batches > 0

    def _from_centroids(self, state: HeadState | None) -> Tensor:
        assert self.converted.features is not None
        features, linear = self.converted.features
        return F.linear(features.float(), self._centroids(state)).to(linear.dtype)

    def _centroids(self, state: HeadState | None) -> Tensor:
        assert self.recipe.head is not None
        assert state is not None
        return self.recipe.head.weights(state)

    def _settled_answer(self, call: Call) -> Any:
        self._reseed(call.x.device)
        output = self.converted.settled(call)
        return self._from_centroids(self._state.head) if self._head_answers else output

    def _source_answer(self, call: Call) -> Any:
        """What the network would have said without any adaptation."""
        if self._state.learner is None:
            return self.converted.source(call)
        with self._state.learner.at_start():
            return self.converted.source(call)

    def _refuse(self, why: str, call: Call) -> Any:
        self._state.bad_batches += 1
        self.last = BatchReport("bad", len(call.x), reason=why)
        message = f"a batch after {self.batches} good ones was not adapted to: {why}"
        if self.on_bad_batch == "raise":
            raise BadBatchError(f"{message}. No state was changed.")
        who = "the source" if self.episodic else "the last good state"
        warn(f"{message}; {who} answers it (bad batches so far: {self.bad_batches}).")
        return self._unadapted_answer(call)

    def _unadapted_answer(self, call: Call) -> Any:
        """To a batch that changes nothing; no state of another batch answers in an episode."""
        return self._source_answer(call) if self.episodic else self._settled_answer(call)

    # ------------------------------------------------------------------ state

    @property
    def _found_classifier(self) -> str | None:
        return None if self._layout is None else self._layout.classifier

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Everything the stream changed, and the network: a copy, in contiguous tensors."""
        with self._lock, torch.inference_mode(False):
            state = super().state_dict(*args, **kwargs)
            for key in [*state]:
                if key.startswith(kwargs.get("prefix", "")) and isinstance(state[key], Tensor):
                    state[key] = state[key].detach().clone(memory_format=torch.contiguous_format)
            return state

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Go on where a saved stream was. Checked as a whole before anything is changed."""
        with self._lock, torch.inference_mode(False):
            persistence.check_network(state_dict, self.state_dict())
            return super().load_state_dict(state_dict, strict, assign)

    @property
    def _about(self) -> dict[str, Any]:
        about = {"method": self.method, "settings": self.recipe.settings()}
        return {**about, "fingerprint": self._fingerprint}

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for key, value in self._state.pack(self._about, self._layout).items():
            destination[f"{prefix}{persistence.PREFIX}{key}"] = value

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        if local_metadata.get("assign_to_params_buffers"):
            raise ValueError("`assign=True` would part the optimiser from its parameters.")
        own_prefix = prefix + persistence.PREFIX
        own = {k: state_dict.pop(k) for k in [*state_dict] if k.startswith(own_prefix)}
        # Before the network's own values change: the optimiser takes its start from them.
        self._restore({key.removeprefix(own_prefix): value for key, value in own.items()})
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _restore(self, own: Mapping[str, Tensor]) -> None:
        about = persistence.read_about(own, self._about)
        if self._layout is None and "order" in about:
            self._prepare(Layout(tuple(about["order"]), about["classifier"]))
        home = next((p.device for p in self.converted.parameters()), torch.device("cpu"))
        self._state.unpack(own, home)

    @torch.inference_mode(False)
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RecipeAdapter:
        """Move what is not a parameter or a buffer along with the network."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._state.move(fn)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._lock = threading.RLock()

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """With a seed, leave the caller's random numbers alone."""
        if self.seed is None:
            yield
            return
        home = next((p.device.type for p in self.converted.parameters()), "cpu")
        elsewhere = {} if home in ("cpu", "meta") else {"device_type": home}
        with torch.random.fork_rng(**elsewhere):
            yield

    def _reseed(self, device: torch.device) -> None:
        """With a seed, the random numbers of a batch depend on how many came before it only."""
        if self.seed is None:
            return
        if device.type == "cpu":
            # Where CUDA is not at work, `torch.manual_seed` notes the call stack for it, slowly.
            torch.default_generator.manual_seed(self.seed + self.batches)
        else:
            torch.manual_seed(self.seed + self.batches)
