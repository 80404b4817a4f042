# The image of Seawall: the wheel and the locked requirements in a virtual environment, an unprivileged user, no sources.
#   docker build -t seawall .
FROM python:3.11.13-slim-bookworm AS build
WORKDIR /build
COPY requirements/build.txt requirements/run.txt requirements/
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt \
 && python -m venv /opt/seawall \
 && /opt/seawall/bin/pip install --no-cache-dir --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY examples/policy.yaml examples/
COPY seawall seawall
COPY ext_authz ext_authz
COPY ratelimit ratelimit
COPY ext_proc ext_proc
RUN /opt/build/bin/hatchling build -t wheel -d /wheel \
 && /opt/seawall/bin/pip install --no-cache-dir --no-index --no-deps /wheel/*.whl

FROM python:3.11.13-slim-bookworm
COPY --from=build /opt/seawall /opt/seawall
# Volumes that are empty take over the owner of these.
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin seawall \
 && install -d -o seawall -g seawall -m 0755 /run/seawall /var/lib/seawall/envoy
ENV PATH=/opt/seawall/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
ENTRYPOINT ["seawall"]
CMD ["serve"]
# Ready as /readyz says: at least one worker serves. For another command than `serve` give another check.
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9902/readyz', timeout=2)"]
