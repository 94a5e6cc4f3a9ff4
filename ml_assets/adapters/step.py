"""What a step is given by Dagster, by the names that the walk's logic knows it by."""

import dagster as dg

StepContext = dg.AssetExecutionContext | dg.AssetCheckExecutionContext
"""The run, its log and its instance, of an asset or of its checks."""
AssetStep = dg.AssetExecutionContext
RunLog = dg.DagsterLogManager
Instance = dg.DagsterInstance
