"""The Envoy configuration that goes with a policy: pure functions from plain data to what Envoy reads as JSON.

`bootstrap` is the whole file for `envoy -c`. With a `dynamic_dir` its pools and routes are two files in that directory,
made by `render_dynamic`: Envoy reloads each when it is moved into place (written in place it goes unnoticed). Put
`cds.json` there before `rds.json`, so that no route names a pool that Envoy doesn't have yet.

Built with the types of envoy-data-plane, so that a misspelt field fails here and in mypy, not in Envoy. Importing them
takes 0.4 s: workers have no business here.
"""

import warnings

with warnings.catch_warnings():
    # envoy-data-plane 2.2 uses pydantic in a way that pydantic 2.12 deprecates; nothing we could change.
    warnings.simplefilter("ignore", DeprecationWarning)
    from seawall.mesh.bootstrap import bootstrap, bootstrap_json, render_dynamic
    from seawall.mesh.clusters import clusters
    from seawall.mesh.routes import charged_by_envoy, routes
    from seawall.mesh.settings import MeshSettings

__all__ = [
    "MeshSettings",
    "bootstrap",
    "bootstrap_json",
    "charged_by_envoy",
    "clusters",
    "render_dynamic",
    "routes",
]
