"""scikit-learn's conventions: constructor parameters that can be read, set and shown, and use in pipelines."""

from __future__ import annotations

import inspect
from typing import Any, Self

from kedge.errors import InputError


class Parameters:
    """Base of estimators whose constructors only store what they are given."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's signature
        """Constructor parameters by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Set constructor parameters by name."""
        known = inspect.signature(type(self)).parameters
        for name, value in params.items():
            if name not in known:
                raise InputError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags, TransformerTags  # only scikit-learn calls this

        transformer = TransformerTags() if hasattr(self, "transform") else None
        return Tags(estimator_type=None, target_tags=TargetTags(required=True), transformer_tags=transformer)

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = (f"{k}={v!r}" for k, v in self.get_params().items() if v != defaults[k].default)
        return f"{type(self).__name__}({', '.join(changed)})"
