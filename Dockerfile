# One worker of passback. See docker-compose.yml for two of them behind a proxy, with Redis.
#
# It listens on every address of its container, so it asks for PASSBACK_API_KEYS=OWNER:KEY, or,
# where everybody who can reach it may use it, for PASSBACK_ALLOW_ANONYMOUS=yes.

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
# image.txt has the extras that scripts/lock.py names (IMAGE_EXTRAS)
COPY requirements/build.txt requirements/image.txt requirements/
RUN python -m venv /build && /build/bin/pip install --require-hashes -r requirements/build.txt \
    && python -m venv /opt/passback \
    && /opt/passback/bin/pip install --require-hashes -r requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY server server
COPY client_tools client_tools
RUN /build/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /dist . \
    && /opt/passback/bin/pip install --no-deps --no-index /dist/*.whl \
    && /opt/passback/bin/pip uninstall --yes pip

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home passback \
    && install -d -o passback -g passback -m 0700 /data
COPY --from=build /opt/passback /opt/passback
ENV PATH=/opt/passback/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PASSBACK_HOST=0.0.0.0 \
    PASSBACK_PORT=8000 \
    PASSBACK_STORE=sqlite:////data/passback.db
USER passback
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; \
        r.urlopen('http://127.0.0.1:' + os.environ['PASSBACK_PORT'] + '/readyz', timeout=2)"]
ENTRYPOINT ["passback"]
CMD ["serve"]
