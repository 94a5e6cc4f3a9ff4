"""The boosting packages, by the name in the spec."""

from ml_assets.spec.training import Boosted, LightGbm
from ml_assets.training.boosting.engine import Engine


def engine_of(model: Boosted) -> Engine:
    """The package of a family; it is not loaded yet."""
    if isinstance(model, LightGbm):
        from ml_assets.training.boosting.by_lightgbm import LightGbmEngine

        return LightGbmEngine()
    from ml_assets.training.boosting.by_xgboost import XGBoostEngine

    return XGBoostEngine()
