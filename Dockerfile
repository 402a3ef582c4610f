# One image for web and workers. Everything is installed here, by hash; nothing is downloaded when it runs.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app

COPY requirements.lock ./
RUN pip install --require-hashes --only-binary :all: -r requirements.lock \
    && useradd --system --uid 10001 --no-create-home toolgate \
    && install --directory --owner toolgate /data /data/workspace

COPY manage.py LICENSE ./
COPY scripts/healthy.py scripts/
COPY approvals approvals
COPY catalog catalog
COPY config config
COPY docs docs
COPY plans plans
COPY static static
COPY templates templates
COPY toolgate toolgate
RUN python -m compileall -q approvals catalog config plans toolgate

USER toolgate
ENV TOOLGATE_WORKSPACE=/data/workspace
VOLUME /data
EXPOSE 8000
CMD ["python", "manage.py", "serve", "--host", "0.0.0.0", "--port", "8000"]
