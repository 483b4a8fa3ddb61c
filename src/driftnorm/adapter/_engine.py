"""The one engine that runs every recipe.

All that a stream changes is one immutable tree. A batch drafts a new one; the commit is one
assignment, so a batch that fails before it leaves no trace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from driftnorm._internal.arguments import check_choice, check_whole
from driftnorm._internal.counts import counted
from driftnorm.adapter import _saved_state as saved_state
from driftnorm.adapter._batch import (
    Stopped,
    answer_of,
    check_draft,
    experience,
    kept_parts,
    review,
    serving,
)
from driftnorm.adapter._checks import (
    check_input,
    check_unlabelled,
    reads_integers,
    refuse_export,
)
from driftnorm.adapter._contract import Adapter, BatchReport
from driftnorm.adapter._network import Call, ConvertedNetwork
from driftnorm.adapter._outputs import detached
from driftnorm.adapter._pass import Pass
from driftnorm.adapter._probe import Layout, check_classifier_name
from driftnorm.adapter._randomness import caller_kept, reseed
from driftnorm.adapter._setup import (
    assign_statistics,
    check_batch_norm,
    source_classifier,
    start_values,
    trained_names,
)
from driftnorm.adapter._state_checks import check_network, check_state
from driftnorm.adapter._step import Draft, LiveStep, Refused, Setting
from driftnorm.adapter._tree import converted, mapped, mean_of, moved
from driftnorm.adapter._watch import GUARD, Watch
from driftnorm.adapter.guard import Alarm, Guard, Policy, read_signals
from driftnorm.errors import BadBatchError, warn
from driftnorm.functional import Moments, is_finite
from driftnorm.parts.contract import Part, Serving, Update, Verdict
from driftnorm.parts.layers import needs_forward_order
from driftnorm.parts.statistics import tracked_moments
from driftnorm.recipe import Recipe

_TAUGHT_NOTHING = "nothing to learn: one value per channel has no variance, and no step was taken"


@final
class RecipeAdapter(Adapter):
    """Runs a :class:`~driftnorm.Recipe` on a network.

    ``adapter.parameters()`` are the source's: what a stream has learned is part of the adapter's
    state, and :meth:`bake` puts it into a network.

    Args:
        network: A trained network; copied, unless ``inplace``.
        recipe: What to do with each batch.
        method: The method's name, for messages.
        classifier: Dotted name of the layer that makes the logits; detected if ``None``.
        logits: Extracts the logits from what the network returns: a function, or the name of a key
            or attribute. Not needed for a tensor, or an object with an attribute ``logits``.
        batch: Name of the argument that is the batch, if it is not the first floating-point tensor
            with two axes or more.
        on_bad_batch: ``"keep"`` answers a bad batch by the last good state, with a warning;
            ``"raise"`` raises :class:`BadBatchError`. Either way nothing changes.
        guard: What to do when adapting seems to do harm: a policy, or a :class:`Guard` with its own
            thresholds.
        episodic: Start from the source again for each batch.
        reset_every: Start from the source again after this many batches; the recipe's own by
            default.
        channels_last: Run in channels-last layout; ``None`` does so where it is safe.
        seed: Makes networks that draw random numbers repeatable, batch by batch, and seeds the
            parts that draw some.
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
        logits: Callable[[Any], Tensor] | str | None = None,
        batch: str | None = None,
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
        check_choice("on_bad_batch", on_bad_batch, ("keep", "raise"))
        if reset_every is not None:
            check_whole("reset_every", reset_every)
        self.method = method
        self.recipe = recipe
        self.guard = guard if isinstance(guard, Guard) else Guard(policy=guard)
        self.on_bad_batch = on_bad_batch
        self.episodic = episodic
        self.reset_every = recipe.reset_every if reset_every is None else reset_every
        self.seed = seed
        self._draws = 0 if seed is None else seed
        self._classifier = classifier
        self._lock = threading.RLock()
        if network.training:
            warn(
                "the network was handed over in training mode; the adapter runs it in evaluation "
                "mode (call `.eval()` before `adapt` to silence this)."
            )
        self._layout: Layout | None = None
        self._trained: tuple[str, ...] = ()
        self._reverted = False
        self.last = None
        self._tree: Mapping[str, Any] = {}
        self._fitted: Mapping[str, Any] = {}
        self._frozen, self._bad_batches = False, 0
        self.converted = ConvertedNetwork(network, logits, channels_last, inplace, recipe.only)
        self._batch = batch
        self._reads_integers = reads_integers(self.converted.network)
        self._layers = self.converted.layers
        self._watch = Watch(self.guard, recipe, episodic)
        self._fingerprint = saved_state.fingerprint(self.converted)
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
        return int(self._tree.get("batches", 0))

    @property
    def bad_batches(self) -> int:
        """How many batches were refused."""
        return self._bad_batches

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """The guard's alarms: when, why, and the numbers behind them."""
        return self.guard.alarms(self._watched)

    @property
    def held(self) -> bool:
        """Whether the source answers for now, because the guard raised an alarm."""
        return bool(self._watched.get("held", 0) > 0 or self._watched.get("trial", False))

    @property
    def _watched(self) -> Mapping[str, Any]:
        """What the guard remembers."""
        found: Mapping[str, Any] = self._tree.get("parts", {}).get(GUARD, {})
        return found

    @property
    def frozen(self) -> bool:
        """Whether it predicts without adapting."""
        return self._frozen

    @property
    def probing(self) -> bool:
        """Whether the network is running for the adapter's own purposes: an audit or a probe.

        Your own forward hooks fire then too; they can check this.
        """
        return self.converted.probing

    @property
    def state(self) -> Mapping[str, Any]:
        """All that the stream changed: a tree of tensors and numbers; do not modify it."""
        return self._tree

    def trained_values(self) -> dict[str, Tensor]:
        """Current values of the parameters that the method trains, by name."""
        start = start_values(self.converted)
        return {**start, **self._tree.get("values", {})}

    def layer_moments(self) -> dict[str, tuple[Moments | None, Moments | None, float]]:
        """For each layer: the source's moments, those of the stream if it tracks any, and eps."""
        layers = self._tree.get("layers", {})
        return {
            name: (layer.source, tracked_moments(layers.get(name, {})), layer.eps)
            for name, layer in self._layers.items()
        }

    def __getattr__(self, name: str) -> Any:
        """Attributes that the adapter lacks are the network's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            inside = self.__dict__.get("_modules", {}).get("converted")
            if inside is None or name.startswith("_") or not hasattr(inside.network, name):
                raise
        return getattr(inside.network, name)

    def _prepare(self, layout: Layout) -> None:
        """Give every layer its statistics, and find what is trained."""
        network, recipe = self.converted.network, self.recipe
        chosen = assign_statistics(self._layers, recipe, layout)
        self._trained = trained_names(network, recipe, layout, chosen)
        self.converted.trains(self._trained)
        start_values(self.converted)  # refuses what cannot be trained
        source_classifier(network, recipe, layout)  # likewise
        self._layout = layout
        self.converted.watch(layout.classifier if recipe.needs_features else None)

    def _setting(self) -> Setting:
        """What parts may rely on, from the network as it is now."""
        assert self._layout is not None
        network = self.converted.network
        return Setting(
            self.recipe,
            self.converted,
            self._layout.order,
            start_values(self.converted),
            source_classifier(network, self.recipe, self._layout),
            self._fitted,
            self._draws,
        )

    # ------------------------------------------------------------------ the contract

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a batch, and adapt to it unless frozen.

        Takes what the network takes; the first floating-point tensor with two axes or more is the
        batch, or what ``batch`` names. Returns what the network returns, detached, with the logits
        that the method answers with; these alone if ``logits=`` is a function that computes them.
        """
        refuse_export()
        if torch.compiler.is_compiling():
            # Importing the compiler takes a second: only if it is loaded already.
            eagerly = torch.compiler.disable(self._respond)  # type: ignore[no-untyped-call]
            return eagerly(args, kwargs)
        return self._respond(args, kwargs)

    def _respond(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._refuse_reverted()
        with self._lock, torch.inference_mode(False), caller_kept(self.seed, self.converted):
            call = Call.of(args, kwargs, self._batch, self._reads_integers)
            check_input(call.x, self.converted.network)
            return self._serve(call)

    def _refuse_reverted(self) -> None:
        if self._reverted:
            raise RuntimeError(
                "this adapter was reverted; call `adapt` again to adapt its network."
            )

    def logits_in(self, answer: Any) -> Tensor:
        """The logits in what a call returned."""
        # Logits alone are the answer of parts where `logits=` computes them.
        from_parts = bool(self.recipe.answer) and isinstance(answer, Tensor)
        return answer if from_parts else self.converted.logits(answer)

    @torch.inference_mode(False)
    def reset(self) -> None:
        """Back to the state in which the adapter was built, bit for bit; what was fitted stays."""
        with self._lock:
            self._tree = {}
            self._frozen, self._bad_batches = False, 0
            self._watch.forget()
            self.last = None

    def freeze(self) -> RecipeAdapter:
        """From now on, answer with the current state and do not adapt."""
        self._frozen = True
        return self

    def unfreeze(self) -> RecipeAdapter:
        """Adapt again."""
        self._frozen = False
        return self

    @torch.inference_mode(False)
    def fit(self, images: Tensor | Iterable[Tensor]) -> RecipeAdapter:
        """Show source-domain images, without labels, to parts that need some.

        What is learned here (EATA's Fisher information) survives :meth:`reset`. Does nothing for
        methods that need no such images.

        Args:
            images: A batch, or batches; a few hundred images in total are enough.
        """
        self._refuse_reverted()
        parts = [part for part in self.recipe.parts if type(part).fit is not Part.fit]
        batches = [images] if isinstance(images, Tensor) else [*images]
        if not parts:
            return self
        if not batches:
            raise ValueError("`images` must hold at least one batch, got none.")
        with self._lock, caller_kept(self.seed, self.converted):
            found: dict[str, list[Any]] = {self.recipe.names[part]: [] for part in parts}
            for batch in batches:
                check_unlabelled(batch)
                call = Call.of((batch,), {})
                check_input(call.x, self.converted.network)
                if not len(call.x):
                    raise ValueError("`images` must not hold an empty batch.")
                if not is_finite([call.x]):
                    raise ValueError("`images` must be finite, got NaN or infinite values.")
                call = self._known(call)
                step = LiveStep(self._setting(), Draft(), call)
                step.look("adapt", grad=True, hidden=True)
                for part in parts:
                    found[self.recipe.names[part]].append(part.fit(step))
            self._fitted = {name: mean_of(trees) for name, trees in found.items()}
        return self

    @torch.inference_mode(False)
    def bake(self) -> nn.Module:
        """An independent, plain network that answers as the frozen adapter does."""
        with self._lock:
            if self.recipe.unbakeable:
                raise ValueError(
                    f"{self.method!r} cannot be baked: {'; '.join(self.recipe.unbakeable)}."
                )
            if self._as_built:
                return self.converted.bake(self._found_classifier, None, {}, {})
            step, who = self._at_rest()
            folded = [w for part in self.recipe.answer if (w := part.fold(step)) is not None]
            layers = step._draft.layers if who.layers is None else who.layers
            weight = folded[-1] if folded else None
            return self.converted.bake(self._found_classifier, weight, who.values, layers)

    def export_onnx(self, path: str | Path, example: Tensor, *, tolerance: float = 1e-3) -> float:
        """Write the baked network as ONNX; see :func:`driftnorm.export_onnx`."""
        from driftnorm.adapter.onnx_file import export_onnx

        return export_onnx(self, path, example, tolerance=tolerance)

    @torch.inference_mode(False)
    def revert(self) -> nn.Module:
        """Return the source network; with ``inplace=True``, the network that was passed in."""
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
            f"driftnorm.Adapter({self.method!r} on {self.converted.kind} with "
            f"{counted(len(self._layers), 'batch-norm layer')}: "
            f"{', '.join(filter(None, settings))}; {counted(self.batches, 'batch')} "
            f"seen{', frozen' if self.frozen else ''})"
        )

    # ------------------------------------------------------------------ one batch

    def _serve(self, call: Call) -> Any:
        samples = len(call.x)
        if samples == 0:
            self.last = BatchReport("empty", 0)
            return self._unadapted_answer(call)
        if call.x.is_floating_point() and not is_finite([call.x]):
            return self._refuse("the input holds NaN or infinite values", call)
        call = self._known(call)
        if self.frozen:
            self.last = BatchReport("frozen", samples)
            return self._settled_answer(call)
        if self.recipe.needs_fit and not self._fitted:
            raise ValueError(
                f"{self.method!r} needs a few hundred images of the source's domain, without "
                "labels: call `adapter.fit(images)` once before the stream."
            )
        if self._watched.get("held", 0) > 0:
            return self._held_answer(call)
        try:
            return self._adapt(call)
        except Refused as refused:
            return self._refuse(str(refused), call)
        except Stopped as stopped:
            verdict = stopped.verdict
            begun = {} if verdict.restart else self._tree
            self._tree = {**begun, "parts": {**begun.get("parts", {}), **stopped.parts}}
            self._frozen = self._frozen or verdict.freeze
            reason, restarted = str(stopped), verdict.restart
            self.last = BatchReport("guarded", samples, reason=reason, restarted=restarted)
            return self._source_answer(call)

    def _known(self, call: Call) -> Call:
        """The batch in the network's layout; the first one reveals how the network runs."""
        call = self.converted.lay_out(call)
        if self._layout is None:
            needed = self.recipe.needs_classifier
            self._prepare(self.converted.discover(call, self._classifier, needed))
        return call

    def _adapt(self, call: Call) -> Any:
        begun: Mapping[str, Any] = self._tree
        over = bool(self.episodic or (self.reset_every and self.batches >= self.reset_every))
        if over:
            alarms = self.guard.kept(self._watched)
            begun = {"parts": {GUARD: alarms}} if alarms else {}
        draft, setting = Draft.of(begun), self._setting()
        reseed(self.seed, draft.batches, call.x.device)
        known = (draft.layers, draft.values, draft.parts)
        step = experience(setting, draft, call)
        forward = step.forward
        if not is_finite([forward.logits]):
            raise Refused("the network's answer is not finite")
        answer = answer_of(self.recipe, step)
        check_draft(draft, begun)
        now = (draft.layers, draft.values, draft.parts)
        taught = any(new is not old for new, old in zip(now, known, strict=True))
        signals = read_signals(forward.logits)
        reviewed = self._review(setting, step, draft, call)
        draft.batches += 1
        tree = draft.tree()
        if reviewed.restart:
            tree = {"parts": kept_parts(self.recipe, draft, GUARD)}
            if reviewed.keep:
                tree["values"] = {**setting.start, **reviewed.keep}
        self._tree = tree  # the commit
        self._frozen = self._frozen or reviewed.freeze
        learns = self.recipe.needs_backward or any(
            statistics.uses_batch for statistics in self.recipe.all_statistics
        )
        self.last = BatchReport(
            "adapted",
            len(call.x),
            *(signals.entropy, signals.spread, step.loss),
            reason=_TAUGHT_NOTHING if learns and not taught else reviewed.reason,
            disagreement=self._watched.get("disagreement", float("nan")),
            source=self._watch.asked,
            restarted=over or reviewed.restart,
        )
        if self.held:  # on trial: it adapts, but does not answer yet
            self.last = replace(self.last, status="guarded", reason=self.alarms[-1].reason)
            return self._source_answer(call)
        return detached(answer)

    def _review(self, setting: Setting, step: LiveStep, draft: Draft, call: Call) -> Verdict:
        """Warn about the batch; returns what the guard and the recipe's reviews ask for."""
        self._watch.look(draft, call.x, step.forward, setting)
        if self._watch.guards:
            alarm = self._watch.audit(draft, call, step.forward, setting)
            if alarm is not None:
                known = self.guard.raised(draft.parts[GUARD], alarm)
                undo = Verdict(restart=True, undo=True, reason=alarm.reason)
                raise Stopped(undo, {GUARD: known})
        return review(self.recipe, step, draft)

    # ------------------------------------------------------------------ answers that change nothing

    @property
    def _as_built(self) -> bool:
        """Whether the source answers: nothing was learned, or kept in a restart."""
        return self._layout is None or not (self.batches or self._tree.get("values"))

    def _at_rest(self, call: Call | None = None) -> tuple[LiveStep, Serving]:
        """A step on the current state that will be discarded."""
        nothing = Call(torch.empty(0)) if call is None else call
        step = LiveStep(self._setting(), Draft.of(self._tree), nothing, frozen=True)
        return step, serving(self.recipe, step)

    def _settled_answer(self, call: Call) -> Any:
        reseed(self.seed, self.batches, call.x.device)
        if self._as_built:
            seen = self.converted.run(call, Pass("settled", self._tree.get("layers", {})))
            return seen.output
        step, who = self._at_rest(call)
        step.look("settled", serving=who)
        return answer_of(self.recipe, step)

    def _held_answer(self, call: Call) -> Any:
        """The source answers, until the guard lets the adapter try again."""
        left = max(0, self._watched["held"] - len(call.x))
        parts = self._tree.get("parts", {})
        served = self._watched.get("served", 0) + 1
        known = {**parts[GUARD], "held": left, "served": served}
        self._tree = {**self._tree, "parts": {**parts, GUARD: known}}
        self.last = BatchReport("guarded", len(call.x), reason=self.alarms[-1].reason)
        return self._source_answer(call)

    def _source_answer(self, call: Call) -> Any:
        """What the unadapted network predicts."""
        return self.converted.run(call, Pass("source", {})).output

    def _refuse(self, why: str, call: Call) -> Any:
        self._bad_batches += 1
        self.last = BatchReport("bad", len(call.x), reason=why)
        message = f"a batch after {self.batches} good ones was not adapted to: {why}"
        if self.on_bad_batch == "raise":
            raise BadBatchError(f"{message}. No state was changed.")
        who = "the source" if self.episodic else "the last good state"
        warn(f"{message}; {who} answers it (bad batches so far: {self.bad_batches}).")
        return self._unadapted_answer(call)

    def _unadapted_answer(self, call: Call) -> Any:
        """For a batch that changes nothing; an episode uses no state of another batch."""
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
        """Resume a saved stream. The whole state is checked before anything is changed."""
        with self._lock, torch.inference_mode(False):
            saved_state.check_format(state_dict)
            check_network(state_dict, self.state_dict())
            return super().load_state_dict(state_dict, strict, assign)

    @property
    def _about(self) -> dict[str, Any]:
        about: dict[str, Any] = {"method": self.method, "settings": self.recipe.settings()}
        about |= {"fingerprint": self._fingerprint, "seed": self._draws}
        if self._layout is not None:
            about |= {"order": list(self._layout.order), "classifier": self._layout.classifier}
        return about

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        counts = {"bad": self._bad_batches, "frozen": self._frozen}
        trees = {"state": self._tree, "fitted": self._fitted, "counts": counts}
        for key, value in saved_state.pack(self._about, trees).items():
            destination[f"{prefix}{saved_state.PREFIX}{key}"] = value

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        if local_metadata.get("assign_to_params_buffers"):
            raise ValueError("`assign=True` would detach the adapter from its parameters.")
        own_prefix = prefix + saved_state.PREFIX
        own = {k: state_dict.pop(k) for k in [*state_dict] if k.startswith(own_prefix)}
        self._restore({key.removeprefix(own_prefix): value for key, value in own.items()})
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _restore(self, own: Mapping[str, Tensor]) -> None:
        about = saved_state.read_about(own, self._about)
        home = next((p.device for p in self.converted.parameters()), torch.device("cpu"))
        trees = saved_state.unpack(own)
        if self._layout is None and "order" in about:
            self._prepare(Layout(tuple(about["order"]), about["classifier"]))
        shapes = {name: value.shape for name, value in start_values(self.converted).items()}
        check_state(trees, self.recipe, self._layers, shapes)

        def home_of(value: Tensor) -> Tensor:
            # Scalars, such as an optimiser's step counters, stay where they are.
            return value.to(home) if value.dim() else value

        self._tree, self._fitted = (mapped(trees[n], home_of) for n in ("state", "fitted"))
        self._draws, counts = int(about["seed"]), trees["counts"]
        self._bad_batches, self._frozen = counts["bad"], counts["frozen"]

    @torch.inference_mode(False)
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RecipeAdapter:
        """Move the state along with the network; it stays in float32 or wider."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        trained = {self.recipe.names[p] for p in self.recipe.parts if isinstance(p, Update)}
        tree = dict(self._tree)
        for name in tree.keys() & {"values", "layers"}:
            tree[name] = converted(tree[name], fn)
        if "parts" in tree:
            tree["parts"] = {
                name: (converted if name in trained else moved)(memory, fn)
                for name, memory in tree["parts"].items()
            }
        self._tree = tree
        self._fitted = converted(self._fitted, fn)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._lock = threading.RLock()
