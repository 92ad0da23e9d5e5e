# Sluice's tasks. They need Go, make and git. deploy/dev/deps.sh lists what tests need beside; those that lack it are left out.

.DEFAULT_GOAL := help

PROGRAMS    := ./sidecar/cmd/sluice-sidecar ./controlplane/cmd/sluice-controlplane ./controlplane/cmd/sluice-injector ./sdk/cmd/sluice \
               ./bench/cmd/sluice-bench
# The packages of all modules of go.work.
PACKAGES    := work
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
BIN         ?= bin/
LDFLAGS     := -s -w -X github.com/sluice-bus/sluice/internal/program.version=$(VERSION)
# The tools that are not the modules' own. What they weigh is said before it is downloaded.
STATICCHECK := honnef.co/go/tools@v0.8.2
BUF         := github.com/bufbuild/buf@v1.75.0
announce     = @[ -d "$$(go env GOMODCACHE)/$(1)" ] || echo "Downloading and building $(1): about $(2) the first time."

# How long `make fuzz` stays at each target.
FUZZTIME ?= 20s
# For how many minutes `make soak` goes on, the seed of its first rounds, and which tests, a regular expression.
MINUTES ?=
SEED    ?=
RUN     ?= .
# What `make bench` runs, a regular expression, and for how long each.
BENCH     ?= .
BENCHTIME ?= 1s
# Further flags for the sidecar that `make run` starts beside its control plane.
ARGS ?=

.PHONY: help
help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# No C and trimmed paths here, in vet, lint and what tests start: what they have in common is then compiled once. The version
# is the linker's alone: the Go tool would refuse to look it up in a checkout that another user owns.
.PHONY: build
build: ## Build the programs into bin/ (1 to 2 min the first time, with 116 MB of modules; then 2 s)
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)" -o $(BIN) $(PROGRAMS)

.PHONY: run
run: build ## Build and start a control plane and a sidecar with their data in .sluice/, and print what to try (as build)
	@deploy/dev/run.sh $(ARGS)

.PHONY: demo
demo: build ## Build and show a shop at work on three sidecars, on STORE, a MongoDB, or a model of one in memory (as build)
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -o bin/ ./test/mongomodel/cmd/mongomodel
	@STORE='$(STORE)' deploy/dev/demo.sh

.PHONY: screenshots
screenshots: build ## Take the pictures of the console in docs/images, of the demo, with Chromium and Node.js (2 min)
	@deploy/dev/screenshots.sh

.PHONY: test
test: ## Check the format and run every test (STRICT=1: leave nothing out) (9 min the first time, 1 where results are cached)
	@deploy/dev/test.sh

.PHONY: test-js
test-js: ## Build sdk/js and run its tests, which are part of make test, too (30 s; npm downloads 20 MB the first time)
	CGO_ENABLED=0 go test -trimpath -vet=off ./test/jstest

.PHONY: race
race: ## Run the tests of what has goroutines with the race detector, at a short size (6 min the first time)
	@deploy/dev/race.sh

.PHONY: deps
deps: ## Install the Debian packages that the tests need, as root (1 to 2 min and 278 MB where all is missing)
	@deploy/dev/deps.sh install

# Tests on MongoDB run on the server of MONGODB_URI, else on a model of one.
.PHONY: test-server
test-server: ## Say which server the tests run on: MONGODB_URI (20 s the first time, then 4 s)
	CGO_ENABLED=0 go test -trimpath -vet=off -count=1 -run '^TestDescribe$$' -v ./test/mongotest

.PHONY: lint
lint: vet ## Run go vet and staticcheck (2 min the first time, then 7 s)
	$(call announce,$(STATICCHECK),6 MB)
	CGO_ENABLED=0 GOFLAGS="$$(go env GOFLAGS) -trimpath" go run $(subst @,/cmd/staticcheck@,$(STATICCHECK)) $(PACKAGES)

.PHONY: vet
vet: ## Run go vet (20 s, then 2 s)
	CGO_ENABLED=0 go vet -trimpath $(PACKAGES)

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME, 20s (40 targets: 15 min)
	@grep -rHo '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' . | sort | while IFS=: read -r file target; do \
		target=$${target#func }; \
		echo "== $$(dirname "$$file") $$target"; \
		go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
	done

.PHONY: soak
soak: ## Run at full size what make test shortens, and repeat what is left to chance for MINUTES; a failure: SEED, RUN (80 min)
	@MINUTES='$(MINUTES)' SEED='$(SEED)' RUN='$(RUN)' deploy/dev/soak.sh

.PHONY: bench
bench: ## Run the Go benchmarks (BENCH, BENCHTIME); bin/sluice-bench run measures a node
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem $(PACKAGES)

# Servers of peers that are no libraries come from Debian's packages, where this may install them, and are started by the measurement
# alone, with folders and ports of their own; a peer without its server has a row that says so.
.PHONY: bench-peers
bench-peers: build ## Measure other systems beside a sidecar, in turn (ARGS: --rounds, --for, --readme bench/README.md; 9 min)
	-@command -v redis-server >/dev/null && [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || \
		apt-get install -y --no-install-recommends redis-server rabbitmq-server
	cd bench/peers && CGO_ENABLED=0 go test -trimpath -vet=off . && CGO_ENABLED=0 go build -trimpath -o ../../bin/sluice-peers .
	bin/sluice-peers --json bin/peers.json --html bin/peers.html $(ARGS)

.PHONY: docker
docker: ## Make the images sluice-sidecar and sluice-controlplane for this machine, and load them into docker (1 min)
	cd deploy/release && GOWORK=off CGO_ENABLED=0 go run -trimpath . -images -dist ../../dist/images -version '$(VERSION)' \
		-platforms "linux/$$(go env GOARCH)"
	for file in dist/images/*.tar; do docker load -i "$$file" || exit 1; done

# A module of its own, since what it needs is large: the first time takes minutes.
.PHONY: check-deploy
check-deploy: ## Check deploy/ against Kubernetes' types, with kustomize, and by Compose's loader (1 min and 28 MB of modules the first time, then 5 s)
	cd deploy/deploytest/schema && GOWORK=off CGO_ENABLED=0 go test -trimpath -vet=off -count=1 ./...

# Modules of their own, too: SDKs of others as their users have them.
.PHONY: check-dapr
check-dapr: build ## Run applications of Dapr's SDKs, for Go and with npm for JavaScript, and CloudEvents' for Go (1 min and 80 MB the first time, then 30 s)
	cd test/dapr && SLUICE_SIDECAR=$(CURDIR)/bin/sluice-sidecar GOWORK=off CGO_ENABLED=0 go test -trimpath -vet=off -count=1 ./...
	cd test/dapr/js && { [ -d node_modules/@dapr ] || npm ci --no-audit --no-fund --ignore-scripts; } && \
		SLUICE_SIDECAR=$(CURDIR)/bin/sluice-sidecar node --test

# Modules of their own, too: Watermill and the Go CDK, with what these need.
.PHONY: check-adapters
check-adapters: build ## Run the suites of Watermill and the Go CDK on sdk/adapters, at a sidecar: SHORT=1 (1 min and 60 MB the first time, then 40 s)
	cd sdk/adapters && SLUICE_SIDECAR=$(CURDIR)/bin/sluice-sidecar CGO_ENABLED=0 go test $(if $(SHORT),-short) -trimpath -vet=off -count=1 \
		./sluicepubsub ./sluicewatermill

.PHONY: tidy
tidy: ## Make each module's go.mod and go.sum what it needs, against the modules of this checkout (1 min)
	CGO_ENABLED=0 go run -trimpath ./test/release tidy

# deploy/RELEASING.md says what these are. A module of its own, too.
.PHONY: release
release: ## Make all files of a release in dist/: VERSION=v1.2.3, PLATFORMS="linux/amd64 …" (8 min the first time, then 4)
	cd deploy/release && GOWORK=off CGO_ENABLED=0 go run -trimpath . -version '$(VERSION)' $(if $(PLATFORMS),-platforms '$(PLATFORMS)')

.PHONY: release-check
release-check: ## Fetch, use and install every module as people will once it is tagged, and the files of a release (5 min the first time)
	CGO_ENABLED=0 go run -trimpath ./test/release check
	cd deploy/release && GOWORK=off CGO_ENABLED=0 go test -trimpath -vet=off -count=1 -timeout 40m .

.PHONY: generate
generate: ## Make the Go code of the protobuf schemas again; it is committed (2 min the first time)
	$(call announce,$(BUF),64 MB)
	go run $(subst @,/cmd/buf@,$(BUF)) generate

.PHONY: alerts
alerts: ## Make deploy/prometheus/alerts.yaml of the table of incidents again; it is committed (1 s)
	CGO_ENABLED=0 go run -trimpath ./controlplane/internal/health/makealerts >deploy/prometheus/alerts.yaml

.PHONY: reference
reference: ## Make the pages of docs/reference of the programs' own tables again; they are committed (1 min the first time, then 2 s)
	CGO_ENABLED=0 go run -trimpath ./docs/internal/makereference

.PHONY: schemas
schemas: build ## Make the JSON Schemas of the files of settings again; they are committed (2 s)
	for program in sluice-sidecar sluice-controlplane; do \
		for flag in config auth-config; do bin/$$program --schema $$flag >deploy/schemas/$$program.$$flag.json || exit 1; done; \
	done
	bin/sluice-sidecar --schema policies >deploy/schemas/policies.json
	bin/sluice-sidecar --schema push >deploy/schemas/push.json

.PHONY: fmt
fmt: ## Format the code (1 s)
	gofmt -w .

.PHONY: clean
clean: ## Remove what was built, and the data of make run (1 s)
	rm -rf bin dist .sluice

.PHONY: check-fmt
check-fmt:
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt): $$unformatted"; exit 1; fi
