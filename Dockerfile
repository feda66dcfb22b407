# miue on a CPU, for clusters and for those who want no Python of their own:
#   docker build -t miue .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" miue train features --labels labels.csv --out run
FROM python:3.11-slim AS wheel
WORKDIR /source
RUN pip install --no-cache-dir "build>=1.2"
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m build --wheel --outdir /wheels .

FROM python:3.11-slim
# the address of PyTorch's wheels without CUDA makes the image smaller
ARG PIP_EXTRA_INDEX_URL
COPY constraints.txt /tmp/constraints.txt
COPY --from=wheel /wheels /tmp/wheels
RUN wheel=$(ls /tmp/wheels/*.whl) \
    && pip install --no-cache-dir --constraint /tmp/constraints.txt \
        "miue[slides,pandas] @ file://$wheel" \
    && rm -r /tmp/wheels /tmp/constraints.txt \
    && useradd --create-home miue \
    && install --directory --mode 1777 /data
USER miue
WORKDIR /data
ENTRYPOINT ["miue"]
CMD ["--help"]
