# Brig. `make help` lists what there is; `make demo` and `make test` set up
# whatever they need on a fresh Debian machine with Go.

BIN := bin
EMBEDDED := cmd/brig/embedded
# The tags are last: brig-shim adds one.
FLAGS := -trimpath -ldflags "-s -w" -tags grpcnotrace
STATIC := CGO_ENABLED=0 go build $(FLAGS)
# Only brig itself says which commit it is of: what a commit does not change
# keeps its bytes, and the tests that depend on it stay in the test cache.
PART_OF := CGO_ENABLED=0 go build -buildvcs=false $(FLAGS)
GO_SOURCES := $(shell find . -name '*.go' -not -path './tools/*' -not -path './ui/node_modules/*' -not -name '*_test.go') go.mod go.sum $(wildcard interpreter/driver/* store/sqlite/migrations/*)

.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: $(BIN)/brig ## one static binary, bin/brig

$(BIN)/brig-agent: $(GO_SOURCES)
	$(PART_OF) -o $@ ./cmd/brig-agent

$(BIN)/brig-engine: $(GO_SOURCES)
	$(PART_OF) -o $@ ./cmd/brig-engine

$(BIN)/brig-shim: $(GO_SOURCES)
	$(PART_OF),shim -o $@ ./cmd/brig-shim

$(EMBEDDED)/%.gz: $(BIN)/%
	gzip -9 -n -c $< > $@.tmp && mv $@.tmp $@

CONSOLE := ui/dist/index.html

$(CONSOLE): $(shell find ui/src ui/public -type f) ui/index.html ui/package.json ui/package-lock.json ui/tsconfig.json ui/vite.config.ts
	./.ci/console

console: $(CONSOLE) ## the web console, with Node.js; without it there is none

$(BIN)/brig: $(GO_SOURCES) $(CONSOLE) $(EMBEDDED)/brig-agent.gz $(EMBEDDED)/brig-engine.gz $(EMBEDDED)/brig-shim.gz
	$(STATIC) -o $@ ./cmd/brig

setup: ## what tests and the demo need of the system
	@./.ci/setup

demo: build ## run untrusted code in a real sandbox and show it
	@./.ci/setup demo
	@./.ci/demo $(BIN)/brig

test: setup test-programs ## the default suite; RUN=TestName runs one test
	@$(BIN)/test/suite test $(if $(RUN),-run '$(RUN)')

test-all: setup test-programs ## everything at full size; PART='egress|docker' runs parts, RUN=TestName one test
	@$(BIN)/test/suite all $(if $(PART),-part '$(PART)') $(if $(RUN),-run '$(RUN)')

test-changed: setup test-programs ## the parts of test-all that belong to what changed since .ci/green.json
	@$(BIN)/test/suite changed

# Tests do not build. What they run is built here, with the same flags, so that
# everything is compiled once.
TESTS := $(BIN)/test
test-programs: build ## the programs that tests run, in bin/test
	@mkdir -p $(TESTS)
	$(PART_OF) -o $(TESTS)/suite ./.ci/suite
	$(PART_OF) -o $(TESTS)/image ./.ci/image
	$(PART_OF) -o $(TESTS)/probe ./e2e/probe
	$(PART_OF) -o $(TESTS)/runsc gvisor.dev/gvisor/runsc
	$(STATIC),failpoints -o $(TESTS)/brig-failpoints ./cmd/brig
	cd examples/go && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o ../../$(TESTS)/grade .
	cd tools/agentrun && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o ../../$(TESTS)/agentrun-client .
	CGO_ENABLED=0 go test -trimpath -tags grpcnotrace -c -o $(TESTS)/prefilter.test ./internal/prefilter
	CGO_ENABLED=0 go test -trimpath -tags grpcnotrace -c -o $(TESTS)/e2e.test ./e2e

# The server, the shim and the agent with the race detector. The agent runs in
# images without a C library, so it is static. brig carries the others in it. A
# brig with failpoints is all of them itself, which it cannot be with cgo.
RACE := $(BIN)/race
RACED := CGO_ENABLED=1 go build -buildvcs=false -race -trimpath -ldflags '-linkmode external -extldflags "-static"' -tags grpcnotrace,osusergo,netgo
race-programs: test-programs ## the programs of the part race, in bin/race
	@mkdir -p $(RACE)/test
	$(RACED) -o $(RACE)/brig-agent ./cmd/brig-agent
	$(RACED),shim -o $(RACE)/brig-shim ./cmd/brig-shim
	cp $(BIN)/brig-engine $(RACE)/brig-engine
	for name in agent engine shim; do gzip -1 -n -c $(RACE)/brig-$$name > $(RACE)/brig-$$name.gz; done
	printf '{"Replace":{"%s/brig-agent.gz":"%s/brig-agent.gz","%s/brig-engine.gz":"%s/brig-engine.gz","%s/brig-shim.gz":"%s/brig-shim.gz"}}' \
		$(CURDIR)/$(EMBEDDED) $(CURDIR)/$(RACE) $(CURDIR)/$(EMBEDDED) $(CURDIR)/$(RACE) $(CURDIR)/$(EMBEDDED) $(CURDIR)/$(RACE) > $(RACE)/overlay.json
	$(RACED) -overlay $(RACE)/overlay.json -o $(RACE)/brig ./cmd/brig
	for name in brig-failpoints image probe runsc grade agentrun-client prefilter.test; do ln -sf ../../test/$$name $(RACE)/test/$$name; done
	CGO_ENABLED=1 go test -race -trimpath -tags grpcnotrace -c -o $(RACE)/test/e2e.test ./e2e

mutants: setup test-programs ## small faults in security-relevant code, and which tests detect them: N=25 FOR=1h
	cd tools/gremlins && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o ../../$(TESTS)/gremlins github.com/go-gremlins/gremlins/cmd/gremlins
	$(PART_OF) -o $(TESTS)/mutants ./.ci/mutants
	$(TESTS)/mutants -gremlins $(CURDIR)/$(TESTS)/gremlins -n $(or $(N),25) -for $(or $(FOR),1h)

attack: setup test-programs ## try to get out in every way that is known, and say what came of it
	@BRIG_BIN_DIR=$(CURDIR)/$(BIN) go run ./.ci/attack

lint: ## gofmt, vet, golangci-lint
	@./.ci/lint

package: build ## a Debian package, a container image and the Python package, in bin/
	@mkdir -p $(TESTS)
	@$(STATIC) -o $(TESTS)/image ./.ci/image
	@./.ci/package $(BIN)

bench: build ## measure against bare processes, runsc and docker
	$(BIN)/brig bench run -n 5 --hits 20
	BRIG_BIN_DIR=$(CURDIR)/$(BIN) CGO_ENABLED=0 go test -trimpath -tags grpcnotrace -run '^$$' -bench . -benchtime $(or $(N),20x) ./engine ./store/sqlite ./bench

fuzz: ## every fuzz target for a while: make fuzz FOR=30s
	@./.ci/fuzz $(or $(FOR),10s)

docs: build ## regenerate what is generated in docs/
	$(BIN)/brig openapi | python3 -m json.tool > docs/openapi.json
	$(BIN)/brig alerts rules > docs/prometheus-rules.yml
	$(BIN)/brig metrics dashboard > docs/grafana.json

proto: ## regenerate what is generated of .proto files; needs protoc
	mkdir -p $(BIN)/proto
	GOBIN=$(CURDIR)/$(BIN)/proto go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
	GOBIN=$(CURDIR)/$(BIN)/proto go install connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1
	PATH=$(CURDIR)/$(BIN)/proto:$$PATH protoc -I . --go_out=. --go_opt=module=github.com/brig-run/brig \
		--connect-go_out=. --connect-go_opt=module=github.com/brig-run/brig,package_suffix,simple \
		api/e2b/envd/process.proto api/e2b/envd/filesystem.proto

clean: ## remove what was built
	rm -rf $(BIN) $(EMBEDDED)/*.gz ui/dist/assets ui/dist/index.html ui/dist/icon.svg

.PHONY: help build console setup demo test test-all test-changed test-programs race-programs mutants attack lint package bench fuzz docs proto clean
