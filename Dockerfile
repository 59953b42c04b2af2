# Two images:
#   docker build --target development -t sapwood-dev .    what .ci/run needs; runs it
#   docker build --target node -t sapwood-node .          a node of a long-lived cluster
# For example: docker run sapwood-node node join 'LINE'   with the line that `sapwood up --listen` prints.
FROM debian:bookworm-slim AS base
ENV DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv gcc g++ libc6-dev ca-certificates && rm -rf /var/lib/apt/lists/*

FROM base AS development
RUN apt-get update && apt-get install -y --no-install-recommends make git procps && rm -rf /var/lib/apt/lists/*
WORKDIR /sapwood
COPY scripts/test_packages.txt scripts/install_test_packages.sh scripts/
RUN scripts/install_test_packages.sh && rm -rf /var/lib/apt/lists/*
COPY . .
CMD [".ci/run"]

FROM base AS node
WORKDIR /build
COPY . .
RUN python3 -m venv /opt/sapwood && /opt/sapwood/bin/pip install --no-cache-dir '.[server]' extras/* && rm -rf /build/*
RUN useradd --create-home sapwood
ENV PATH=/opt/sapwood/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER sapwood
WORKDIR /home/sapwood
ENTRYPOINT ["sapwood"]
CMD ["--help"]
