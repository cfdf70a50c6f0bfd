# Brig. `make help` lists the targets. `make demo` and `make test` install what they
# need on a fresh Debian machine with Go.

BIN := bin
EMBEDDED := cmd/brig/embedded
# The version of everything that a commit builds. brig prints it, and the names of
# packages contain it.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# The tags are last: brig-shim adds one.
FLAGS := -trimpath -ldflags "-s -w" -tags grpcnotrace
STATIC := CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/brig-run/brig/internal/version.linked=$(VERSION)" -tags grpcnotrace
# Only brig contains its commit. Other programs that a commit does not change keep
# their bytes, so their tests stay in the test cache.
PART_OF := CGO_ENABLED=0 go build -buildvcs=false $(FLAGS)
GO_SOURCES := $(shell find . -name '*.go' -not -path './tools/*' -not -path './ui/node_modules/*' -not -name '*_test.go') go.mod go.sum cmd/brig/brig.service $(wildcard interpreter/driver/* store/sqlite/migrations/*)

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

# The documents as a site. The start page is README.md, and other documents that
# pages link to are in it.
SITE := ui/site/site.zip

$(SITE): .ci/site README.md $(wildcard *.md docs/*.md docs/*/*.md docs/images/* api/*/COMPAT.md sdk/*/README.md)
	./.ci/site $(BIN)/site $@

docs-site: $(SITE) ## the documents as a site with a search index, in bin/site and in brig; needs pip

$(BIN)/brig: $(GO_SOURCES) $(CONSOLE) $(SITE) $(EMBEDDED)/brig-agent.gz $(EMBEDDED)/brig-engine.gz $(EMBEDDED)/brig-shim.gz
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

test-steady: setup test-programs ## make test five times beside two busy loops, with a table of the unsteady tests: RUNS=N
	@$(BIN)/test/suite steady -runs $(or $(RUNS),5)

# Tests do not build programs. This builds them, with the same flags, so that
# everything is compiled once.
TESTS := $(BIN)/test
# The tools of packages. Their versions are in a module of their own.
RELEASE_TOOLS := $(TESTS)/nfpm $(TESTS)/cyclonedx-gomod $(TESTS)/minisign
test-programs: build $(BIN)/brig-bench $(TESTS)/image $(RELEASE_TOOLS) ## the programs that tests run, in bin/test
	@mkdir -p $(TESTS)
	@rm -rf $(TESTS)/unpacked $(BIN)/race/test/unpacked
	$(PART_OF) -o $(TESTS)/suite ./.ci/suite
	$(PART_OF) -o $(TESTS)/probe ./e2e/probe
	$(PART_OF) -o $(TESTS)/runsc gvisor.dev/gvisor/runsc
	$(STATIC),failpoints -o $(TESTS)/brig-failpoints ./cmd/brig
	cd examples/go && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o ../../$(TESTS)/grade .
	cd tools/agentrun && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o ../../$(TESTS)/agentrun-client .
	CGO_ENABLED=0 go test -trimpath -tags grpcnotrace -c -o $(TESTS)/prefilter.test ./internal/prefilter
	CGO_ENABLED=0 go test -trimpath -tags grpcnotrace,failpoints -c -o $(TESTS)/e2e.test ./e2e

# The server, the shim and the agent with the race detector. The agent runs in
# images without a C library, so it is static. brig carries the others in it. A
# brig with failpoints is all of them itself, which it cannot be with cgo.
RACE := $(BIN)/race
RACED := CGO_ENABLED=1 go build -buildvcs=false -race -trimpath -ldflags '-linkmode external -extldflags "-static"' -tags grpcnotrace,osusergo,netgo
# Writes a file as gzip without compression. With the race detector, a server takes nine
# seconds to decompress its programs at every start.
STORED := python3 -c 'import gzip, sys; sys.stdout.buffer.write(gzip.compress(open(sys.argv[1], "rb").read(), 0, mtime=0))'
race-programs: test-programs ## the programs of the part race, in bin/race
	@mkdir -p $(RACE)/test
	$(RACED) -o $(RACE)/brig-agent ./cmd/brig-agent
	$(RACED),shim -o $(RACE)/brig-shim ./cmd/brig-shim
	cp $(BIN)/brig-engine $(RACE)/brig-engine
	for name in agent engine shim; do $(STORED) $(RACE)/brig-$$name > $(RACE)/brig-$$name.gz || exit 1; done
	printf '{"Replace":{"%s/brig-agent.gz":"%s/brig-agent.gz","%s/brig-engine.gz":"%s/brig-engine.gz","%s/brig-shim.gz":"%s/brig-shim.gz"}}' \
		$(CURDIR)/$(EMBEDDED) $(CURDIR)/$(RACE) $(CURDIR)/$(EMBEDDED) $(CURDIR)/$(RACE) $(CURDIR)/$(EMBEDDED) $(CURDIR)/$(RACE) > $(RACE)/overlay.json
	$(RACED) -overlay $(RACE)/overlay.json -o $(RACE)/brig ./cmd/brig
	for name in $$(ls $(TESTS)); do [ $$name = e2e.test ] || ln -sf ../../test/$$name $(RACE)/test/; done
	CGO_ENABLED=1 go test -race -trimpath -tags grpcnotrace,failpoints -c -o $(RACE)/test/e2e.test ./e2e

mutants: setup test-programs ## small faults in security-relevant code, and which tests detect them: N=25 FOR=1h
	cd tools/gremlins && CGO_ENABLED=0 go build -buildvcs=false -trimpath -o ../../$(TESTS)/gremlins github.com/go-gremlins/gremlins/cmd/gremlins
	$(PART_OF) -o $(TESTS)/mutants ./.ci/mutants
	$(TESTS)/mutants -gremlins $(CURDIR)/$(TESTS)/gremlins -n $(or $(N),25) -for $(or $(FOR),1h)

attack: setup test-programs ## try to get out in every way that is known, and say what came of it
	@BRIG_BIN_DIR=$(CURDIR)/$(BIN) go run ./.ci/attack

lint: ## gofmt, vet, golangci-lint, and vale for the documents
	@./.ci/lint

$(RELEASE_TOOLS) &: tools/release/go.mod tools/release/go.sum
	@mkdir -p $(TESTS)
	cd tools/release && CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags "-s -w" -o ../../$(TESTS)/ \
		aead.dev/minisign/cmd/minisign github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod github.com/goreleaser/nfpm/v2/cmd/nfpm

$(TESTS)/image: $(GO_SOURCES)
	$(PART_OF) -o $@ ./.ci/image

package: build $(TESTS)/image $(RELEASE_TOOLS) ## packages of this machine's architecture, in bin/
	@VERSION='$(VERSION)' ./.ci/package $(BIN)

release: $(CONSOLE) $(SITE) $(TESTS)/image $(RELEASE_TOOLS) ## everything that a release has, for amd64 and arm64, in bin/release; MINISIGN_KEY signs it
	@./.ci/release $(BIN)/release

release-check: $(TESTS)/image $(RELEASE_TOOLS) ## build the release of HEAD a second time, elsewhere and from nothing, and compare it with bin/release
	@./.ci/release-check $(BIN)/release

previous: ## the brig of an earlier commit, for the test of upgrades, in bin/test/brig-previous: FROM=v1.0.0
	@./.ci/previous $(or $(FROM),$(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null)) $(TESTS)/brig-previous

notices: ## the licenses of all linked modules, in bin/THIRD_PARTY_NOTICES
	@mkdir -p $(BIN)
	@./.ci/notices > $(BIN)/THIRD_PARTY_NOTICES

measure-blind: ## 100,000 guesses at a secret on each channel, and the table bin/blind.md; GUESSES=N
	@mkdir -p $(BIN)
	BRIG_GUESSES=$(or $(GUESSES),100000) BRIG_TABLE=$(CURDIR)/$(BIN)/blind.md GOGC=400 CGO_ENABLED=0 nice -n 10 \
		go test -trimpath -tags grpcnotrace ./egress -run TestPartialGuessesAreIndistinguishable -count 1 -parallel 5 -timeout 5h -v

$(BIN)/brig-bench: $(BIN)/brig
	$(STATIC),bench -o $@ ./cmd/brig

bench: $(BIN)/brig-bench ## measure against bare processes, runsc and docker
	$(BIN)/brig-bench run -n 5 --hits 20
	BRIG_BIN_DIR=$(CURDIR)/$(BIN) CGO_ENABLED=0 go test -trimpath -tags grpcnotrace -run '^$$' -bench . -benchtime $(or $(N),20x) ./engine ./store/sqlite ./bench

fuzz: ## every fuzz target for a while: make fuzz FOR=30s
	@./.ci/fuzz $(or $(FOR),10s)

docs-picture: build ## draw the picture of README from real commands
	./.ci/picture $(BIN)/brig

docs: build ## regenerate what is generated in docs/, and the types of API clients
	$(BIN)/brig openapi | python3 -m json.tool > docs/openapi.json
	CGO_ENABLED=0 go test -trimpath -tags grpcnotrace -count 1 ./internal/wiretypes -run TestClientTypesMatchOpenAPI -update
	$(BIN)/brig alerts rules > docs/prometheus-rules.yml
	$(BIN)/brig metrics dashboard > docs/grafana.json
	CGO_ENABLED=0 go test -trimpath -tags grpcnotrace -count 1 ./cmd/brig -run TestReferencePagesMatchCode -update

proto: ## regenerate what is generated of .proto files; needs protoc
	mkdir -p $(BIN)/proto
	GOBIN=$(CURDIR)/$(BIN)/proto go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
	GOBIN=$(CURDIR)/$(BIN)/proto go install connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1
	PATH=$(CURDIR)/$(BIN)/proto:$$PATH protoc -I . --go_out=. --go_opt=module=github.com/brig-run/brig \
		--connect-go_out=. --connect-go_opt=module=github.com/brig-run/brig,package_suffix,simple \
		api/e2b/envd/process.proto api/e2b/envd/filesystem.proto

clean: ## remove what was built
	rm -rf $(BIN) $(EMBEDDED)/*.gz ui/dist/assets ui/dist/index.html ui/dist/icon.svg ui/dist/licenses.md $(SITE)

.PHONY: help build console setup demo test test-all test-changed test-steady test-programs race-programs mutants attack measure-blind lint package release release-check previous notices bench fuzz docs docs-site docs-picture proto clean
