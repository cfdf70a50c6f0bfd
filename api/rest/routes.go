package rest

import (
	"net/http"
	"net/url"

	"github.com/brig-run/brig/door/wire"
)

// route is one row of the API: what the router and the document need.
type route struct {
	id, method, pattern string
	tag, summary        string
	handle              func(w http.ResponseWriter, r *http.Request, q url.Values) error
	open                bool // needs no key
	query               []parameter
	in                  any      // the body's document, if it takes one
	optional            bool     // the body may be empty
	archive             bool     // the body is an archive
	out                 any      // the answer's document
	status              int      // of the answer; 200 if zero
	text                bool     // the answer is text
	events              []string // the events that it can stream before its result
}

// routes is the only list of the API's routes.
func (a *api) routes() []route {
	get, post, del := http.MethodGet, http.MethodPost, http.MethodDelete
	output := []string{wire.EventStarted, wire.EventStdout, wire.EventStderr, wire.EventDescriptor3, wire.EventPing}
	progress := []string{wire.EventProgress, wire.EventPing}
	return []route{
		{id: "run", method: post, pattern: "/v1/run", tag: "run", summary: "Run a program in a sandbox of its own",
			handle: a.run, in: wire.RunRequest{}, out: wire.RunAnswer{}, events: output},
		{id: "get-run", method: get, pattern: "/v1/runs/{name}", tag: "run", summary: "Get the outcome of a run that has finished",
			handle: a.getRun, out: wire.RunAnswer{}},

		{id: "create-sandbox", method: post, pattern: "/v1/sandboxes", tag: "sandboxes", summary: "Create a sandbox",
			handle: a.create, in: wire.Spec{}, out: wire.Sandbox{}, status: http.StatusCreated},
		{id: "list-sandboxes", method: get, pattern: "/v1/sandboxes", tag: "sandboxes", summary: "List sandboxes, newest first",
			handle: a.list, out: wire.Sandboxes{}, query: []parameter{
				{name: "label", doc: "key=value; all that are given must match", many: true},
				{name: "state", doc: "only sandboxes in one of these states", many: true},
				{name: "limit", doc: "the page's size, 1 to 1000; default 100", number: true},
				{name: "cursor", doc: "the next_cursor of the page before"},
			}},
		{id: "get-sandbox", method: get, pattern: "/v1/sandboxes/{name}", tag: "sandboxes", summary: "Get a sandbox by name or id",
			handle: a.get, out: wire.Sandbox{}},
		{id: "remove-sandbox", method: del, pattern: "/v1/sandboxes/{name}", tag: "sandboxes", summary: "Kill a sandbox if it lives, and forget it",
			handle: a.remove, status: http.StatusNoContent},
		{id: "exec", method: post, pattern: "/v1/sandboxes/{name}/exec", tag: "sandboxes", summary: "Run a command in a sandbox",
			handle: a.exec, in: wire.ExecRequest{}, out: wire.Result{}, events: output},
		{id: "list-execs", method: get, pattern: "/v1/sandboxes/{name}/execs", tag: "sandboxes", summary: "List a sandbox's executions, newest first",
			handle: a.listExecs, out: wire.Executions{}},
		{id: "get-exec", method: get, pattern: "/v1/sandboxes/{name}/execs/{id}", tag: "sandboxes", summary: "Get an execution, finished or not",
			handle: a.getExec, out: wire.Execution{}},
		{id: "stop-sandbox", method: post, pattern: "/v1/sandboxes/{name}/stop", tag: "sandboxes", summary: "Ask a sandbox's programs to end, then kill them",
			handle: a.stop, in: wire.StopRequest{}, optional: true, out: wire.Sandbox{}},
		{id: "kill-sandbox", method: post, pattern: "/v1/sandboxes/{name}/kill", tag: "sandboxes", summary: "Kill a sandbox at once and keep its record",
			handle: a.kill, in: wire.KillRequest{}, optional: true, out: wire.Sandbox{}},
		{id: "extend-sandbox", method: post, pattern: "/v1/sandboxes/{name}/extend", tag: "sandboxes", summary: "Move the end of a sandbox's lease",
			handle: a.extend, in: wire.ExtendRequest{}, optional: true, out: wire.Sandbox{}},
		{id: "logs", method: get, pattern: "/v1/sandboxes/{name}/logs", tag: "sandboxes", summary: "Get what a sandbox's programs wrote",
			handle: a.logs, text: true, query: []parameter{{name: "tail", doc: "only the last lines; 0 for all", number: true}}},

		{id: "create-context", method: post, pattern: "/v1/sandboxes/{name}/contexts", tag: "code", summary: "Start an interpreter that keeps its variables",
			handle: a.createContext, in: wire.ContextRequest{}, optional: true, out: wire.Context{}, status: http.StatusCreated},
		{id: "list-contexts", method: get, pattern: "/v1/sandboxes/{name}/contexts", tag: "code", summary: "List a sandbox's contexts, oldest first",
			handle: a.contexts, out: wire.Contexts{}},
		{id: "run-code", method: post, pattern: "/v1/sandboxes/{name}/code", tag: "code", summary: "Run code in a context",
			handle: a.runCode, in: wire.CodeRequest{}, out: wire.CodeAnswer{},
			events: []string{wire.EventCodeStarted, wire.EventStdout, wire.EventStderr, wire.EventOutput, wire.EventException, wire.EventPing}},
		{id: "interrupt-context", method: post, pattern: "/v1/sandboxes/{name}/contexts/{id}/interrupt", tag: "code", summary: "Interrupt the code that runs, as Ctrl-C does",
			handle: a.interruptContext, status: http.StatusNoContent},
		{id: "restart-context", method: post, pattern: "/v1/sandboxes/{name}/contexts/{id}/restart", tag: "code", summary: "End an interpreter and start another in its place",
			handle: a.restartContext, out: wire.Context{}},
		{id: "remove-context", method: del, pattern: "/v1/sandboxes/{name}/contexts/{id}", tag: "code", summary: "End an interpreter",
			handle: a.removeContext, status: http.StatusNoContent},

		{id: "list-images", method: get, pattern: "/v1/images", tag: "images", summary: "List images",
			handle: a.images, out: wire.Images{}},
		{id: "import-image", method: post, pattern: "/v1/images/import", tag: "images", summary: "Import a root file system from a tar archive",
			handle: a.importImage, archive: true, out: wire.Image{}, events: progress,
			query: []parameter{{name: "name", doc: "the image's name"}}},
		{id: "build-image", method: post, pattern: "/v1/images/build", tag: "images", summary: "Build an image of Debian packages",
			handle: a.buildImage, in: wire.BuildRequest{}, out: wire.Image{}, events: progress},
		{id: "get-image", method: get, pattern: "/v1/images/*", tag: "images", summary: "Get an image by name or digest",
			handle: a.getImage, out: wire.Image{}},
		{id: "remove-image", method: del, pattern: "/v1/images/*", tag: "images", summary: "Remove an image that no sandbox uses",
			handle: a.removeImage, status: http.StatusNoContent},

		{id: "pool", method: get, pattern: "/v1/pool", tag: "server", summary: "What waits to be used",
			handle: a.pool, out: wire.Pool{}},
		{id: "version", method: get, pattern: "/v1/version", tag: "server", summary: "Get the server's version",
			handle: a.version, out: wire.Version{}},
		{id: "healthz", method: get, pattern: "/healthz", tag: "server", summary: "Is the server alive?",
			handle: a.healthz, open: true, out: wire.Health{}},
		{id: "readyz", method: get, pattern: "/readyz", tag: "server", summary: "Can the server take work?",
			handle: a.readyz, open: true, out: wire.Health{}},
		{id: "openapi", method: get, pattern: "/openapi.json", tag: "server", summary: "This document",
			handle: a.serveOpenAPI, open: true, out: map[string]any{}},
		{id: "metrics", method: get, pattern: "/metrics", tag: "server", summary: "Metrics for Prometheus",
			handle: a.metrics, text: true},
	}
}
