# Sluice's tasks. They need Go, make and git; `make test` also needs a C compiler for the race detector, and Node.js with
# npm and Chromium for the console's tests, and Prometheus with promtool for those of deploy/.

.DEFAULT_GOAL := help

PROGRAMS    := ./sidecar/cmd/sluice-sidecar ./controlplane/cmd/sluice-controlplane ./sdk/cmd/sluice ./bench/cmd/sluice-bench
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS     := -s -w -X github.com/sluice-bus/sluice/internal/program.version=$(VERSION)
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
BUF         := go run github.com/bufbuild/buf/cmd/buf@v1.75.0

# How long `make fuzz` stays at each target.
FUZZTIME ?= 20s
# What `make bench` runs, a regular expression, and for how long each.
BENCH     ?= .
BENCHTIME ?= 1s
# Further flags for the sidecar that `make run` starts beside its control plane.
ARGS ?=

.PHONY: help
help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# The version is the linker's alone: the Go tool would refuse to look it up in a checkout that another user owns.
.PHONY: build
build: ## Build the programs into bin/ (static, no C)
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)" -o bin/ $(PROGRAMS)

.PHONY: run
run: build ## Build and start a control plane and a sidecar with their data in .sluice/, and print what to try
	@deploy/dev/run.sh $(ARGS)

.PHONY: test
test: check-cc check-browser check-promtool check-fmt vet lint test-server ## Check format, vet, lint, and run every test with the race detector
	CGO_ENABLED=1 go test -race -timeout 20m ./...

# Tests of the MongoDB log run on the server of MONGODB_URI, else on a FerretDB that this builds: a minute the first time.
.PHONY: test-server
test-server: ## Build the MongoDB test server, and say which server the tests run on (MONGODB_URI)
	go test -count=1 -run '^TestDescribe$$' -v ./internal/mongotest

.PHONY: lint
lint: ## Run staticcheck
	$(STATICCHECK) ./...

.PHONY: vet
vet: ## Run go vet
	go vet ./...

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME (20s)
	@grep -rHo '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' . | sort | while IFS=: read -r file target; do \
		target=$${target#func }; \
		echo "== $$(dirname "$$file") $$target"; \
		go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
	done

.PHONY: bench
bench: ## Run the Go benchmarks (BENCH, BENCHTIME); bin/sluice-bench loads a running sidecar
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem ./...

.PHONY: docker
docker: ## Build the images sluice-sidecar and sluice-controlplane, with docker
	for target in sidecar controlplane; do \
		docker build -f deploy/docker/Dockerfile --target $$target -t sluice-$$target:$(VERSION) --build-arg VERSION=$(VERSION) . || exit 1; \
	done

# A module of its own, since what it needs is large: the first time takes minutes.
.PHONY: check-deploy
check-deploy: ## Check deploy/ against Kubernetes' types, with kustomize, and by Compose's loader
	cd deploy/deploytest/schema && go test -count=1 ./...

.PHONY: generate
generate: ## Make the Go code of the protobuf schemas anew; it is committed
	$(BUF) generate

.PHONY: fmt
fmt: ## Format the code
	gofmt -w .

.PHONY: clean
clean: ## Remove what was built, and the data of make run
	rm -rf bin .sluice

.PHONY: check-fmt
check-fmt:
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt): $$unformatted"; exit 1; fi

# A compiler without the C library's headers is not enough, so one is tried.
.PHONY: check-cc
check-cc:
	@printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | $$(go env CC) -x c -o /dev/null - 2>/dev/null || \
	{ echo "the race detector needs a C compiler; on Debian: apt-get install gcc libc6-dev"; exit 1; }

.PHONY: check-browser
check-browser:
	@for need in node npm; do command -v $$need >/dev/null || missing="$$missing $$need"; done; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing="$$missing chromium"; \
	if [ -n "$$missing" ]; then echo "the console's tests need$$missing; on Debian: apt-get install nodejs npm chromium"; exit 1; fi

.PHONY: check-promtool
check-promtool:
	@for need in prometheus promtool openssl; do command -v $$need >/dev/null || missing="$$missing $$need"; done; \
	if [ -n "$$missing" ]; then echo "the tests of deploy/ need$$missing; on Debian: apt-get install prometheus openssl"; exit 1; fi
