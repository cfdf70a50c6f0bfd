package rest

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/brig-run/brig/audit"
	"github.com/brig-run/brig/door/wire"
)

// route is one row of the API: what the router and the document need.
type route struct {
	id, method, pattern string
	tag, summary        string
	notes               string // what the summary has no room for
	handle              func(w http.ResponseWriter, r *http.Request, q url.Values) error
	open                bool // needs no key
	query               []parameter
	in                  any      // the body's document, if it takes one
	optional            bool     // the body may be empty
	archive             bool     // the body is an archive
	octets              bool     // the body is bytes, or may be
	out                 any      // the answer's document
	status              int      // of the answer; 200 if zero
	text                bool     // the answer is text
	page                bool     // the answer is a page for people
	lax                 bool     // the query may have more than is known of
	file                bool     // the answer is a file's content, or a range of it
	whole               bool     // the answer is a file's content
	lasting             bool     // the answer goes on for as long as somebody listens
	events              []string // the events that it can stream before its result
}

// routes is the only list of the API's routes.
func (a *api) routes() []route {
	get, post, put, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	file := []parameter{
		{name: "path", doc: "absolute, or relative to the user's home; it must be given"},
		{name: "user", doc: "whose home is meant, and who owns what is made: user (the default) or root"},
	}
	output := []string{wire.EventStarted, wire.EventStdout, wire.EventStderr, wire.EventDescriptor3, wire.EventPing}
	progress := []string{wire.EventProgress, wire.EventPing}
	return append(slices.Concat(a.authRoutes(), a.tenancyRoutes(), a.providerRoutes()), []route{
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
		{id: "set-egress", method: put, pattern: "/v1/sandboxes/{name}/egress", tag: "sandboxes", summary: "Change where a running sandbox may connect to",
			handle: a.setEgress, in: wire.Egress{}, out: wire.Sandbox{}},
		{id: "attest-sandbox", method: post, pattern: "/v1/sandboxes/{name}/attest", tag: "sandboxes", summary: "Find out what is enforced on a sandbox, from its host and from inside",
			handle: a.attest, in: wire.AttestRequest{}, optional: true, out: wire.Sandbox{}},
		{id: "logs", method: get, pattern: "/v1/sandboxes/{name}/logs", tag: "sandboxes", summary: "Get what a sandbox's programs wrote",
			handle: a.logs, text: true, query: []parameter{
				{name: "tail", doc: "only the last lines; 0 for all", number: true},
				{name: "times", doc: "true for the time, in UTC, before every line", yes: true},
			}},

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

		{id: "read-file", method: get, pattern: "/v1/sandboxes/{name}/files/content", tag: "files", summary: "Download a regular file",
			notes:  "A Range header of one range from an offset on is served, beside which offset and length are refused. The header X-Entry has the file's Entry, as JSON in ASCII. A download that fails midway breaks the connection.",
			handle: a.download, file: true, query: append(slices.Clone(file),
				parameter{name: "offset", doc: "where to begin, in bytes; default 0", number: true},
				parameter{name: "length", doc: "how many bytes at most; default to the end", number: true})},
		{id: "write-file", method: put, pattern: "/v1/sandboxes/{name}/files/content", tag: "files", summary: "Make a file of the body, and the directories above it",
			notes:  "A file that is there is replaced in place. Headers X-Metadata-… become its metadata, their names in lower case.",
			handle: a.upload, octets: true, out: wire.Entry{}, query: append(slices.Clone(file),
				parameter{name: "mode", doc: "permission bits in octal digits; default 0644 for a new file, what it has for another"})},
		{id: "list-files", method: get, pattern: "/v1/sandboxes/{name}/files", tag: "files", summary: "List a directory",
			handle: a.listFiles, out: wire.Entries{}, query: append(slices.Clone(file),
				parameter{name: "depth", doc: "how many levels down; default 1", number: true})},
		{id: "stat-file", method: get, pattern: "/v1/sandboxes/{name}/files/stat", tag: "files", summary: "Get what is at a path; a link is not followed",
			handle: a.stat, out: wire.Entry{}, query: file},
		{id: "make-directory", method: post, pattern: "/v1/sandboxes/{name}/files/mkdir", tag: "files", summary: "Make a directory and those above it",
			handle: a.makeDir, in: wire.MakeDirRequest{}, out: wire.Entry{}, status: http.StatusCreated},
		{id: "move-file", method: post, pattern: "/v1/sandboxes/{name}/files/move", tag: "files", summary: "Rename; what has the new name is replaced",
			handle: a.move, in: wire.MoveRequest{}, out: wire.Entry{}},
		{id: "remove-file", method: del, pattern: "/v1/sandboxes/{name}/files", tag: "files", summary: "Remove what is at a path, with all that is below",
			handle: a.removeFile, status: http.StatusNoContent, query: file},
		{id: "compose-file", method: post, pattern: "/v1/sandboxes/{name}/files/compose", tag: "files", summary: "Make one file of several, and remove those",
			handle: a.compose, in: wire.ComposeRequest{}, out: wire.Entry{}},
		{id: "watch-files", method: get, pattern: "/v1/sandboxes/{name}/files/watch", tag: "files", summary: "Follow what changes in a directory",
			handle: a.watch, lasting: true, out: wire.WatchEnd{}, events: []string{wire.EventWatching, wire.EventChange, wire.EventPing},
			query: append(slices.Clone(file), parameter{name: "recursive", doc: "true to see what is below its directories, too", yes: true})},

		{id: "start-process", method: post, pattern: "/v1/sandboxes/{name}/processes", tag: "processes", summary: "Start a process that nobody waits for",
			handle: a.startProcess, in: wire.ProcessRequest{}, out: wire.Process{}, status: http.StatusCreated},
		{id: "list-processes", method: get, pattern: "/v1/sandboxes/{name}/processes", tag: "processes", summary: "List processes that run or have ended of late, oldest first",
			handle: a.processList, out: wire.Processes{}},
		{id: "attach-process", method: get, pattern: "/v1/sandboxes/{name}/processes/{pid}/output", tag: "processes", summary: "Follow what a process writes until it ends",
			handle: a.attach, lasting: true, out: wire.Result{}, events: []string{wire.EventStdout, wire.EventStderr, wire.EventPing},
			query: []parameter{{name: "offset", doc: "where in all of its output to begin; of what is too old only the newest is told. -1 is what it writes from now on; default 0", number: true}}},
		{id: "process-input", method: post, pattern: "/v1/sandboxes/{name}/processes/{pid}/input", tag: "processes", summary: "Write to a process's standard input or terminal",
			handle: a.processInput, in: wire.ProcessInput{}, octets: true, status: http.StatusNoContent},
		{id: "close-process-input", method: post, pattern: "/v1/sandboxes/{name}/processes/{pid}/close_input", tag: "processes", summary: "Close a process's standard input",
			handle: a.closeInput, status: http.StatusNoContent},
		{id: "signal-process", method: post, pattern: "/v1/sandboxes/{name}/processes/{pid}/signal", tag: "processes", summary: "Send a signal to a process and its group",
			handle: a.signalProcess, in: wire.SignalRequest{}, status: http.StatusNoContent},
		{id: "resize-terminal", method: post, pattern: "/v1/sandboxes/{name}/processes/{pid}/resize", tag: "processes", summary: "Tell a process how large its terminal is",
			handle: a.resize, in: wire.Terminal{}, status: http.StatusNoContent},

		{id: "dial-port", method: get, pattern: "/v1/sandboxes/{name}/ports/{port}", tag: "ports", summary: "Connect to a TCP port inside a sandbox",
			notes:  "Send Connection: Upgrade and Upgrade: tcp. After the answer the connection is the one inside: bytes both ways, each of which may be closed alone.",
			handle: a.dialPort, lasting: true, status: http.StatusSwitchingProtocols},

		{id: "list-images", method: get, pattern: "/v1/images", tag: "images", summary: "List images",
			handle: a.images, out: wire.Images{}},
		{id: "import-image", method: post, pattern: "/v1/images/import", tag: "images", summary: "Import a root file system, an OCI layout or a docker archive",
			handle: a.importImage, archive: true, out: wire.Image{}, events: progress,
			query: []parameter{{name: "name", doc: "the image's name"}}},
		{id: "build-image", method: post, pattern: "/v1/images/build", tag: "images", summary: "Build an image of Debian packages",
			handle: a.buildImage, in: wire.BuildRequest{}, out: wire.Image{}, events: progress},
		{id: "pull-image", method: post, pattern: "/v1/images/pull", tag: "images", summary: "Pull an image from a registry",
			handle: a.pullImage, in: wire.PullRequest{}, out: wire.Image{}, events: progress},
		{id: "get-image", method: get, pattern: "/v1/images/*", tag: "images", summary: "Get an image by name or digest",
			handle: a.getImage, out: wire.Image{}},
		{id: "remove-image", method: del, pattern: "/v1/images/*", tag: "images", summary: "Remove an image that no sandbox uses",
			handle: a.removeImage, status: http.StatusNoContent},

		{id: "templates", method: get, pattern: "/v1/templates", tag: "templates", summary: "List the templates that sandboxes can be made from",
			handle: a.templates, out: wire.Templates{}},
		{id: "put-secret", method: put, pattern: "/v1/secrets/{name}", tag: "secrets", summary: "Make a secret, or give it another value",
			handle: a.putSecret, in: wire.SecretRequest{}, out: wire.Secret{}},
		{id: "list-secrets", method: get, pattern: "/v1/secrets", tag: "secrets", summary: "List secrets, without their values",
			handle: a.secrets, out: wire.Secrets{}},
		{id: "remove-secret", method: del, pattern: "/v1/secrets/{name}", tag: "secrets", summary: "Forget a secret",
			handle: a.removeSecret, status: http.StatusNoContent},
		{id: "rotate-key", method: post, pattern: "/v1/secrets/rotate_key", tag: "secrets", summary: "Encrypt all secrets under a new key",
			handle: a.rotateKey, out: wire.Resealed{}},

		{id: "create-workspace", method: post, pattern: "/v1/workspaces", tag: "workspaces", summary: "Make an empty workspace",
			handle: a.createWorkspace, in: wire.WorkspaceRequest{}, out: wire.Workspace{}, status: http.StatusCreated},
		{id: "list-workspaces", method: get, pattern: "/v1/workspaces", tag: "workspaces", summary: "List workspaces by name",
			handle: a.workspaces, out: wire.Workspaces{}},
		{id: "remove-workspace", method: del, pattern: "/v1/workspaces/{name}", tag: "workspaces", summary: "Forget a workspace with all versions",
			handle: a.removeWorkspace, status: http.StatusNoContent},
		{id: "list-workspace-versions", method: get, pattern: "/v1/workspaces/{name}/versions", tag: "workspaces", summary: "List a workspace's versions, newest first",
			handle: a.workspaceVersions, out: wire.WorkspaceVersions{}},
		{id: "list-workspace-files", method: get, pattern: "/v1/workspaces/{name}/versions/{version}/files", tag: "workspaces", summary: "List a version's files and links by path",
			notes:  "The version 0 is the newest. What was captured outside /workspace is among them.",
			handle: a.workspaceFiles, out: wire.WorkspaceFiles{}, query: []parameter{{name: "path", doc: "only what is at and below this one; default everywhere"}}},
		{id: "read-workspace-file", method: get, pattern: "/v1/workspaces/{name}/versions/{version}/files/content", tag: "workspaces", summary: "Download a file of a version",
			notes:  "A download that fails midway breaks the connection.",
			handle: a.readWorkspaceFile, whole: true, query: []parameter{{name: "path", doc: "as it is listed. It must be given"}}},
		{id: "diff-workspace", method: get, pattern: "/v1/workspaces/{name}/diff", tag: "workspaces", summary: "List the paths in which two versions differ",
			handle: a.diffWorkspace, out: wire.WorkspaceDiff{}, query: []parameter{
				{name: "from", doc: "a version; 0 is the empty one before the first. It must be given", number: true},
				{name: "to", doc: "another. It must be given", number: true},
			}},
		{id: "restore-workspace", method: post, pattern: "/v1/workspaces/{name}/restore", tag: "workspaces", summary: "Make a new version with the content of an old one",
			handle: a.restoreWorkspace, in: wire.RestoreRequest{}, out: wire.WorkspaceVersion{}, status: http.StatusCreated},
		{id: "commit-workspace", method: post, pattern: "/v1/sandboxes/{name}/commit", tag: "workspaces", summary: "Make a version of what a sandbox has at /workspace",
			notes:  "Its changes since the version that it began with go on top of the newest. If somebody else has changed one of these paths meanwhile, nothing is committed (409).",
			handle: a.commitWorkspace, out: wire.WorkspaceCommit{}},

		{id: "audit", method: get, pattern: "/v1/audit", tag: "audit", summary: "Read the tenant's audit log, oldest first",
			handle: a.audit, out: audit.Page{}, query: auditQuery()},

		{id: "capabilities", method: get, pattern: "/v1/capabilities", tag: "server", summary: "Get how far each area can be enforced here",
			handle: a.capabilities, out: wire.Capabilities{}},
		{id: "alerts", method: get, pattern: "/v1/alerts", tag: "server", summary: "Get what is wrong with the service, the worst first",
			handle: a.alerts, out: wire.Alerts{}},
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
	}...)
}
