# What people and CI run. Everything happens in a virtual environment of its own, .venv.

PYTHON ?= $(firstword $(foreach p,python3 python3.11 python3.12 python3.13 python3.14,$(shell \
	$(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))) python3)
BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE  # else each of the tests' hundreds of processes compiles tfk8s
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

SERIES = from importlib.metadata import version; print(version("tensorflow-cpu").rpartition(".")[0])

VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' tfk8s/version.py)
WHEEL = dist/tfk8s-$(VERSION)-py3-none-any.whl

.PHONY: demo test unit test-training test-faults test-cluster-faults reliability test-chart promtool test-foreign \
	test-foreign-whole test-cluster test-dashboard test-kueue test-gang test-karpenter test-versions \
	test-libraries test-kubernetes-versions test-keras test-entries fuzz check update lock site pictures bench \
	chart push-chart release-inputs release release-images sign clean

# The types of all that commands for Kubernetes load on macOS and Windows: without what runs on Linux or in pods alone.
LINUX_ONLY = ^tfk8s/(backends/(history/claim_reader|local/|local_scripts|meter|.*/raw_terminal)|task/(config|ipc|stream/[flp]|lifetime/record/|programs/|server)|training/|features/metrics/pod|sessions/(forks/[^e]|forks/event|guard_thread|patch|pod/|warm/(entrypoint|script_relay)))
ELSEWHERE = $(BIN)/mypy --follow-imports silent --exclude '$(LINUX_ONLY)'

demo: .venv/local   ## one command to see it work: a graph computed by two TensorFlow servers
	@$(BIN)/tfk8s run --local --tf1 examples/tutorial/cluster.yaml examples/tutorial/two_tasks.py

test: .venv/dev     ## what needs no Kubernetes cluster, without training, faults and fuzzing
	$(BIN)/pytest -n 2 --dist worksteal tests/unit tests/local --ignore tests/local/training  # with a cluster a module

unit: .venv/dev     ## the unit tests that start no program: seconds
	$(BIN)/pytest -n 2 tests/unit -m "not programs"

FUZZED = $(shell sed -n '/^@target/{n;s/def \([a-z_]*\).*/\1/p}' tests/fuzz/targets.py)

fuzz: .venv/dev     ## 100,000 hostile archives, and ten minutes for each parser, twice; hours, before a release
	$(PIP) --editable '.[fuzz]'
	TFK8S_ARCHIVES=100000 TFK8S_FUZZ_SECONDS=$$((600 * $(words $(FUZZED)))) $(BIN)/pytest -n 2 tests/fuzz
	cd tests && for name in $(FUZZED); do ../$(BIN)/python -m fuzz $$name 600 || exit 1; done

test-training: .venv/dev   ## examples and strategies, compared with one process: minutes of training
	$(BIN)/pytest -n 2 --dist worksteal tests/local/training

test-faults: .venv/dev   ## faults: clusters on this machine, and a fake API server
	$(BIN)/pytest tests/faults --ignore tests/faults/test_kube.py

test-cluster-faults: .venv/dev   ## faults on Kubernetes, in the current kubeconfig context; more faults if it is kind's
	$(BIN)/pytest tests/faults/test_kube.py

reliability: .venv/dev   ## both, with all rows; writes docs/reliability.md
	$(BIN)/pytest tests/faults --reliability docs/reliability.md

test-chart: .venv/dev   ## the Helm chart, with Helm; HELM=helm3 selects another Helm
	$(BIN)/pytest tests/chart

test-foreign: .venv/dev   ## README in containers with Docker's default profile; TFK8S_TEST_BASE is their base image
	$(BIN)/pytest tests/foreign

test-foreign-whole: .venv/dev   ## `make test test-training` in the same containers, which takes hours; before a release
	TFK8S_TEST_STAGE=whole $(BIN)/pytest tests/foreign/whole.py

test-cluster: .venv/dev   ## everything on Kubernetes, in the current kubeconfig context
	$(BIN)/pytest tests/cluster

test-kueue: .venv/dev   ## queues of a real Kueue, which is built, in the kind cluster of the current kubeconfig context
	$(BIN)/pytest tests/kueue

test-gang: .venv/dev   ## gangs by PodGroups, in the current kubeconfig context: a kind cluster as in tests/gang/kind.yaml
	$(BIN)/pytest tests/gang

test-karpenter: .venv/dev   ## nodes of a real Karpenter, which is built, in a kind cluster as in tests/gang/kind.yaml; kwok
	$(BIN)/pytest tests/karpenter

test-dashboard: .venv/dev   ## the live page in Chromium; pictures of its states in build/dashboard
	$(PIP) --editable '.[pictures]'
	$(BIN)/pytest tests/dashboard

test-keras: .venv/dev   ## each layer and optimizer of Keras 3 and tf_keras with each option; writes docs/strategy.md
	cd tests && ../$(BIN)/python -m keras_features $(KERAS)

test-entries: .venv/dev   ## the whole table of docs/entries.md, here and in the current kubeconfig context
	TFK8S_TEST_ENTRIES=all $(BIN)/pytest tests/local/test_entries.py tests/cluster/test_entries.py

test-versions: .venv/dev   ## TensorFlow 2.15 and later, and each Python found here; writes docs/compatibility.md
	cd tests && ../$(BIN)/python -m versions tensorflow $(VERSIONS)

test-libraries: .venv/dev   ## libraries on top of TensorFlow, one by one; writes docs/compatibility.md
	cd tests && ../$(BIN)/python -m versions libraries $(LIBRARIES)

test-kubernetes-versions: .venv/dev   ## CONTEXTS="a b" WHOLE="c" HELMS="helm helm3"; writes docs/compatibility.md
	cd tests && ../$(BIN)/python -m versions kubernetes $(CONTEXTS) --whole $(WHOLE) --helm $(HELMS)

check: .venv/dev    ## style, types, and the layers of modules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(ELSEWHERE) --platform darwin --cache-dir .mypy_cache/darwin tfk8s
	$(ELSEWHERE) --platform win32 --cache-dir .mypy_cache/win32 tfk8s
	$(BIN)/lint-imports
	$(BIN)/hadolint images/*/Dockerfile

update: .venv/dev   ## writes the files that are generated from the code
	$(BIN)/tfk8s schema >docs/job-file.schema.json
	TFK8S_UPDATE=1 $(BIN)/pytest -q tests/unit/jobfile/test_error_page.py tests/unit/jobfile/test_fields.py tests/unit/render

LOCK = $(BIN)/uv pip compile --quiet --generate-hashes --no-annotate --custom-compile-command 'make lock' \
	--python-version 3.11 --python-platform linux

lock: .venv/dev     ## writes the hashes of all that images install; versions change with --upgrade in LOCK only
	for file in images/requirements.txt images/cpu/requirements.txt images/gpu/requirements.txt \
		images/server/requirements.txt; do $(LOCK) --no-deps --output-file $$file $$file || exit 1; done
	$(LOCK) --output-file images/tfk8s/requirements.txt pyproject.toml

site: .venv/docs    ## builds the documentation site into build/site; a broken link or anchor fails
	@rm -rf build/site build/doctrees    # Sphinx warns of a page only when it reads the page
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir website --doctree-dir build/doctrees . build/site
	@echo "open build/site/index.html"

pictures: .venv/docs   ## makes the pictures of the documentation again from real runs; Chromium
	$(PIP) --editable '.[dashboard,notebook,pictures,tensorboard]'
	$(BIN)/python website/pictures.py

bench: .venv/dev    ## measures in one go, and writes bench/results.md; without bench/soak.py and bench/scale.py
	$(BIN)/python bench/results.py

chart:              ## packages the Helm chart into dist/
	helm package --destination dist helm/tfk8s

push-chart: chart   ## pushes the chart to an OCI registry: make push-chart REGISTRY=oci://registry.example/charts
	helm push dist/tfk8s-$(VERSION).tgz $(REGISTRY)

# What signs a release, and lists what an image has. `go run` builds both from their Go modules, whose hashes the
# checksum database of Go has; a program that is installed works as well: COSIGN=cosign SYFT=syft.
COSIGN = go run github.com/sigstore/cosign/v2/cmd/cosign@v2.6.5
SYFT = go run github.com/anchore/syft/cmd/syft@v1.57.1
PROMTOOL = go run github.com/prometheus/prometheus/cmd/promtool@v0.316.0
IMAGES = cpu gpu server

release-inputs:
	@echo '$(BASE_IMAGE)' | grep -Eq '^[^@ ]+@sha256:[0-9a-f]{64}$$' \
	  || { echo 'BASE_IMAGE="$(BASE_IMAGE)" must be NAME@sha256:DIGEST: a tag can be moved'; exit 1; }
	@test -r '$(KEY)' && test -r '$(KEY:.key=.pub)' \
	  || { echo 'KEY="$(KEY)" must be NAME.key, with NAME.pub beside it: cosign generate-key-pair writes both'; exit 1; }
	@grep -q '^## $(VERSION)' CHANGELOG.md || { echo 'CHANGELOG.md does not mention $(VERSION)'; exit 1; }
	@test -z "$$(git status --porcelain)" || { echo 'not committed:'; git status --short; exit 1; }

promtool: .venv/dev ## checks the text of the metrics as Prometheus does; Go
	$(BIN)/python -c 'from tfk8s.features.metrics.pod import NUMBERS, text; \
		print(text({"task": "a/0"}, "Ready", {name: 1 for name, *_ in NUMBERS}, {"loss": "1"}), end="")' \
		| $(PROMTOOL) check metrics

release: release-inputs .venv/dev   ## BASE_IMAGE=python@sha256:… KEY=cosign.key; builds and signs a release in dist/
	$(MAKE) check test promtool
	$(PIP) --editable '.[release]'
	rm -rf dist build
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(MAKE) chart
	$(PYTHON) -m venv --without-pip build/clean
	$(BIN)/pip --python build/clean/bin/python install --quiet --disable-pip-version-check $(WHEEL)
	rm build/clean/lib/python*/site-packages/tfk8s-*/direct_url.json    # names the wheel's folder on this machine
	$(BIN)/cyclonedx-py environment --output-reproducible --output-file dist/tfk8s-$(VERSION).cdx.json build/clean
	build/clean/bin/tfk8s render examples/tutorial/cluster.yaml >build/tutorial.yaml
	tail -n +2 manifests/tutorial.yaml | diff -I '^  tfk8s.zip: ' -I '{tfk8s.dev/zip-sha256: ' - build/tutorial.yaml
	$(BIN)/pip --python build/clean/bin/python install --quiet --disable-pip-version-check '$(WHEEL)[local]'
	cd build && test "$$(clean/bin/tfk8s run --local --tf1 ../examples/tutorial/cluster.yaml ../examples/tutorial/two_tasks.py)" = 238
	$(MAKE) release-images sign
	@echo "next: git tag v$(VERSION), $(BIN)/twine upload dist/*.whl dist/*.tar.gz, the images and the chart: see CONTRIBUTING.md"

release-images: release-inputs   ## the images on BASE_IMAGE, and what each has (SBOM), in dist/
	mkdir -p build/image && cp $(WHEEL) images/tfk8s/requirements.txt build/image
	docker build $(NETWORK:%=--network %) --tag tfk8s/tfk8s:$(VERSION) --build-arg VERSION=$(VERSION) \
		--build-arg BASE_IMAGE=$(BASE_IMAGE) --file images/tfk8s/Dockerfile build/image
	$(SYFT) scan --quiet docker:tfk8s/tfk8s:$(VERSION) --output cyclonedx-json=dist/tfk8s-$(VERSION)-image.cdx.json
	for kind in $(IMAGES); do \
		$(BIN)/tfk8s image build $$kind --tag tfk8s/$$kind:$(VERSION) --base $(BASE_IMAGE) $(NETWORK:%=--network %) \
		&& $(SYFT) scan --quiet docker:tfk8s/$$kind:$(VERSION) \
			--output cyclonedx-json=dist/tfk8s-$(VERSION)-image-$$kind.cdx.json || exit 1; done

sign:               ## signs each file of dist/ with KEY, in no public log, and verifies the signature
	mkdir -p build
	for file in $$(ls dist/* | grep -v sigstore.json); do \
		$(COSIGN) sign-blob --yes --key $(KEY) --tlog-upload=false --bundle $$file.sigstore.json $$file >build/signature \
		&& $(COSIGN) verify-blob --key $(KEY:.key=.pub) --insecure-ignore-tlog --bundle $$file.sigstore.json $$file \
		|| exit 1; done

clean:
	rm -rf .venv dist build docs/reference

.venv/bin/python:
	@$(PYTHON) -m venv .venv

.venv/local: .venv/bin/python pyproject.toml
	@$(PIP) --editable '.[local]'
	@touch $@

.venv/dev: .venv/bin/python pyproject.toml
	$(PIP) --editable '.[dev]'
	$(PIP) --no-deps "tf_keras==$$($(BIN)/python -c '$(SERIES)').*"    # what it depends on is a second TensorFlow
	@touch $@ .venv/local

.venv/docs: .venv/dev
	$(PIP) --editable '.[docs]'
	@touch $@
