"""The Envoy configuration that goes with a policy: pure functions from plain data to what Envoy reads as JSON.

`bootstrap.bootstrap` is the whole file for `envoy -c`. With a `dynamic_dir` its pools and routes are two files in that
directory, made by `bootstrap.render_dynamic`: Envoy reloads each when it is moved into place (written in place it goes
unnoticed). Put `cds.json` there before `rds.json`, so that no route names a pool that Envoy doesn't have yet.

Built with the types of envoy-data-plane, so that a misspelt field fails here and in mypy, not in Envoy.
"""
