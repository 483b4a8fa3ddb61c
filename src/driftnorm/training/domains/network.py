"""A network that is trained on domains: features, dropout, a linear classifier, and a mode of BN.

Three modes of batch norm (see the reference of each experiment which one it used):

* ``"frozen"``: the layers are there, their statistics stay those of the pre-training, their affine
  parameters are trained. This paper's and DomainBed's published setting.
* ``"trained"``: ordinary training-mode layers.
* ``"fused"``: folded into the convolutions before them. T3A's setting; nothing is left to adapt.

Fixed features stay as the pre-training left them, whatever the mode, and only the classifier is
trained. This is the paper's "pre-trained" network, in contrast to a fine-tuned one.
"""

from __future__ import annotations

import copy
from typing import Literal, get_args

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftnorm._internal.arguments import check_choice, check_number
from driftnorm.models import head_of
from driftnorm.models.fusion import fused

BatchNormMode = Literal["frozen", "trained", "fused"]


class DomainNetwork(nn.Module):
    """``classifier(dropout(featurizer(images)))``.

    Args:
        model: Takes images in [0, 1] and ends in a linear classifier, as `driftnorm.models.load`
            builds it; taken apart, not copied (but for ``"fused"``).
        batch_norm: How batch-norm layers are trained.
        dropout: On the features, while training.
        fixed: Train the classifier only.
    """

    def __init__(
        self,
        model: nn.Module,
        batch_norm: BatchNormMode = "frozen",
        dropout: float = 0.0,
        *,
        fixed: bool = False,
    ) -> None:
        super().__init__()
        check_choice("batch_norm", batch_norm, get_args(BatchNormMode))
        check_number("dropout", dropout, least=0, below=1)
        if batch_norm == "fused":
            model = fused(model)
        head = head_of(model)
        if head is None:
            raise ValueError("`model` must end in a linear classifier, but it has no linear layer.")
        self.head_name, classifier = head
        model.set_submodule(self.head_name, nn.Identity())
        self.batch_norm, self.fixed = batch_norm, fixed
        self.featurizer = model.requires_grad_(not fixed)
        self.dropout = nn.Dropout(dropout)
        self.classifier = classifier
        self.train(self.training)

    @property
    def width(self) -> int:
        """How many features there are."""
        return self.classifier.in_features

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return self.classifier.out_features

    def features(self, images: Tensor) -> Tensor:
        """What the classifier gets, (N, width)."""
        features: Tensor = self.dropout(self.featurizer(images))
        return features

    def forward(self, images: Tensor) -> Tensor:
        """The logits, (N, num_classes)."""
        logits: Tensor = self.classifier(self.features(images))
        return logits

    def train(self, mode: bool = True) -> DomainNetwork:
        """As usual, but frozen statistics and fixed features stay as they are."""
        super().train(mode)
        if self.fixed:
            self.featurizer.eval()
        elif self.batch_norm == "frozen":
            for module in self.featurizer.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def assembled(self) -> nn.Module:
        """A copy of the model as it was before it was taken apart, with the trained weights."""
        model = copy.deepcopy(self.featurizer)
        model.set_submodule(self.head_name, copy.deepcopy(self.classifier))
        return model.requires_grad_(True).eval()
