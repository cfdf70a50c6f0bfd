# Brig. `make help` lists what there is; `make demo` and `make test` set up
# whatever they need on a fresh Debian machine with Go.

BIN := bin
EMBEDDED := cmd/brig/embedded
# The tags are last: brig-shim adds one.
STATIC := CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -tags grpcnotrace
GO_SOURCES := $(shell find . -name '*.go' -not -path './tools/*' -not -path './ui/node_modules/*' -not -name '*_test.go') go.mod go.sum $(wildcard interpreter/driver/* store/sqlite/migrations/*)

.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: $(BIN)/brig ## one static binary, bin/brig

$(BIN)/brig-agent: $(GO_SOURCES)
	$(STATIC) -o $@ ./cmd/brig-agent

$(BIN)/brig-engine: $(GO_SOURCES)
	$(STATIC) -o $@ ./cmd/brig-engine

$(BIN)/brig-shim: $(GO_SOURCES)
	$(STATIC),shim -o $@ ./cmd/brig-shim

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

test: setup build ## the whole suite, race detector on, totals last
	@BRIG_BIN_DIR=$(CURDIR)/$(BIN) ./.ci/test

attack: setup build ## try to get out in every way that is known, and say what came of it
	@BRIG_BIN_DIR=$(CURDIR)/$(BIN) go run ./.ci/attack

lint: ## gofmt, vet, golangci-lint
	@./.ci/lint

package: build ## a Debian package, a container image and the Python package, in bin/
	@./.ci/package $(BIN)

bench: build ## measure against bare processes, runsc and docker
	$(BIN)/brig bench run -n 5 --hits 20
	BRIG_BIN_DIR=$(CURDIR)/$(BIN) CGO_ENABLED=0 go test -run '^$$' -bench . -benchtime $(or $(N),20x) ./engine ./store/sqlite ./bench

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

.PHONY: help build console setup demo test attack lint package bench fuzz docs proto clean
