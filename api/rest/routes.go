package rest

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/audit"
)

// route is one row of the route table, for the router and the document.
type route struct {
	id, method, pattern string
	tag, summary        string
	notes               string // text that does not fit into the summary
	handle              handler
	open                bool // needs no key
	query               []parameter
	in                  any      // type of the request body, if any
	optional            bool     // the body may be empty
	archive             bool     // the body is an archive
	octets              bool     // the body is or may be raw bytes
	out                 any      // type of the response
	status              int      // status of the response, 200 if zero
	text                bool     // the response is text
	page                bool     // the response is an HTML page
	lax                 bool     // unknown query parameters are allowed
	file                bool     // the response is a file's content or a range of it
	whole               bool     // the response is a file's content
	longLived           bool     // the response continues until the client disconnects
	events              []string // events that the route can stream before its result
	streamed            bool     // the response is always a stream of events
	large               bool     // the response may need much memory, and waits for nothing in a sandbox
	names               bool     // the path contains the name of a new object
}

// handler answers a request. q is its query.
type handler func(w http.ResponseWriter, r *http.Request, q url.Values) error

// routes returns all routes of the API. The router and the document use no
// other list.
func (a *api) routes() []route { return withStreams(a.table()) }

func (a *api) table() []route {
	get, post, put, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	file := []parameter{
		{name: "path", doc: "absolute, or relative to the sandbox's working directory (default_cwd or /workspace); ~ is the user's home", required: true, maxLength: maxPath, pattern: pathPattern, example: "/workspace/a"},
		{name: "user", doc: "user whose rights and home apply, and who owns new files: user (the default) or root", enum: []string{"user", "root"}},
	}
	output := []string{v1.EventStarted, v1.EventStdout, v1.EventStderr, v1.EventDescriptor3, v1.EventPing}
	progress := []string{v1.EventProgress, v1.EventPing}
	return append(slices.Concat(a.authRoutes(), a.tenancyRoutes(), a.providerRoutes()), []route{
		{id: "run", method: post, pattern: "/v1/run", tag: "run", summary: "Run a program in its own sandbox",
			handle: a.run, in: v1.RunRequest{}, out: v1.RunAnswer{}, events: output},
		{id: "list-runs", method: get, pattern: "/v1/runs", tag: "run", summary: "List finished runs, the last one to end first",
			notes: "The list has no output, values and artifacts. If the errors of runs are long, a page is shorter than its limit or empty; next_cursor is set if there are more.",
			large: true, handle: a.listRuns, out: v1.Runs{}, query: []parameter{
				{name: "status", doc: "only runs with these statuses", repeated: true, enum: outcomeStatuses(), example: []string{"error", "timeout"}},
				{name: "limit", doc: "page size; default 100", number: true, min: 1, max: 1000, example: 100},
				{name: "cursor", doc: "next_cursor of the previous page"},
			}},
		{id: "get-run", method: get, pattern: "/v1/runs/{name}", tag: "run", summary: "Get the result of a finished run",
			large: true, handle: a.getRun, out: v1.RunAnswer{}},

		{id: "create-sandbox", method: post, pattern: "/v1/sandboxes", tag: "sandboxes", summary: "Create a sandbox",
			handle: a.create, in: v1.Spec{}, out: v1.Sandbox{}, status: http.StatusCreated},
		{id: "list-sandboxes", method: get, pattern: "/v1/sandboxes", tag: "sandboxes", summary: "List sandboxes, newest first",
			notes: "A page of sandboxes with large environments is shorter than its limit; next_cursor is set if there are more.",
			large: true, handle: a.list, out: v1.Sandboxes{}, query: []parameter{
				{name: "label", doc: "label as key=value; all must match", repeated: true, pattern: labelPattern, example: []string{"team=search"}},
				{name: "state", doc: "only sandboxes in these states", repeated: true, enum: stateNames(), example: []string{"running"}},
				{name: "limit", doc: "page size; default 100", number: true, min: 1, max: 1000, example: 100},
				{name: "cursor", doc: "next_cursor of the previous page"},
			}},
		{id: "get-sandbox", method: get, pattern: "/v1/sandboxes/{name}", tag: "sandboxes", summary: "Get a sandbox by name or ID",
			handle: a.get, out: v1.Sandbox{}},
		{id: "get-sandbox-usage", method: get, pattern: "/v1/sandboxes/{name}/usage", tag: "sandboxes", summary: "Measure a running sandbox",
			handle: a.sandboxUsage, out: v1.SandboxUsage{}},
		{id: "remove-sandbox", method: del, pattern: "/v1/sandboxes/{name}", tag: "sandboxes", summary: "Remove a sandbox",
			handle: a.remove, status: http.StatusNoContent},
		{id: "exec", method: post, pattern: "/v1/sandboxes/{name}/exec", tag: "sandboxes", summary: "Run a command in a sandbox",
			notes:  "The output includes that of the command's children, until the last of them has closed it, for at most 5 s after the command has ended. Redirect the output of a server that the command leaves behind, or start it as a process.",
			handle: a.exec, in: v1.ExecRequest{}, out: v1.Result{}, events: output},
		{id: "list-execs", method: get, pattern: "/v1/sandboxes/{name}/execs", tag: "sandboxes", summary: "List a sandbox's executions, newest first",
			notes: "The list has at most 8 MiB. Ended executions that do not fit have no output, only its size, and no command unless it is short: get them one by one.",
			large: true, handle: a.listExecs, out: v1.Executions{}},
		{id: "get-exec", method: get, pattern: "/v1/sandboxes/{name}/execs/{id}", tag: "sandboxes", summary: "Get an execution, finished or not",
			large: true, handle: a.getExec, out: v1.Execution{}},
		{id: "stop-sandbox", method: post, pattern: "/v1/sandboxes/{name}/stop", tag: "sandboxes", summary: "Stop a sandbox",
			handle: a.stop, in: v1.StopRequest{}, optional: true, out: v1.Sandbox{}},
		{id: "kill-sandbox", method: post, pattern: "/v1/sandboxes/{name}/kill", tag: "sandboxes", summary: "Kill a sandbox",
			handle: a.changeHandler(brig.Service.Kill), in: v1.KillRequest{}, optional: true, out: v1.Sandbox{}},
		{id: "extend-sandbox", method: post, pattern: "/v1/sandboxes/{name}/extend", tag: "sandboxes", summary: "Extend a sandbox's lease",
			handle: a.extend, in: v1.ExtendRequest{}, optional: true, out: v1.Sandbox{}},
		{id: "pause-sandbox", method: post, pattern: "/v1/sandboxes/{name}/pause", tag: "sandboxes", summary: "Save a sandbox's memory and files on disk, and end its processes on the host",
			notes:  "While calls use the sandbox, or a program runs in it that cannot be saved, the answer is 409 and the sandbox runs on; the message names the program. With files_only no program prevents the pause: only the files are kept, without /tmp and /dev/shm.",
			handle: a.pause, in: v1.PauseRequest{}, optional: true, out: v1.Sandbox{}},
		{id: "resume-sandbox", method: post, pattern: "/v1/sandboxes/{name}/resume", tag: "sandboxes", summary: "Continue a paused sandbox, as each use of it does",
			handle: a.changeHandler(brig.Service.Resume), in: v1.ResumeRequest{}, optional: true, out: v1.Sandbox{}},
		{id: "fork-sandbox", method: post, pattern: "/v1/sandboxes/{name}/fork", tag: "sandboxes", summary: "Create copies of a running sandbox",
			notes:  "While calls use the sandbox, or a program runs in it that cannot be saved, the answer is 409 and the sandbox runs on; the message names the program. After an error there are no copies.",
			handle: a.fork, in: v1.ForkRequest{}, optional: true, out: v1.Copies{}, status: http.StatusCreated},
		{id: "set-egress", method: put, pattern: "/v1/sandboxes/{name}/egress", tag: "sandboxes", summary: "Change a sandbox's egress rules",
			handle: a.setEgress, in: v1.EgressChange{}, out: v1.Sandbox{}},
		{id: "attest-sandbox", method: post, pattern: "/v1/sandboxes/{name}/attest", tag: "sandboxes", summary: "Verify the enforcement of a sandbox",
			handle: a.attest, in: v1.AttestRequest{}, optional: true, out: v1.Sandbox{}},
		{id: "logs", method: get, pattern: "/v1/sandboxes/{name}/logs", tag: "sandboxes", summary: "Get a sandbox's logs",
			notes:  "With follow=true, or with an Accept header for it, the answer is a stream of events. A log that is followed counts as use of the sandbox.",
			handle: a.logs, text: true, out: v1.LogEnd{}, events: []string{v1.EventLog, v1.EventPing}, query: []parameter{
				{name: "tail", doc: "number of last lines; 0 for all", number: true, max: 1<<31 - 1, example: 100},
				{name: "times", doc: "true to prefix each line with its time in UTC", boolean: true},
				{name: "follow", doc: "true to continue with the later output of the programs, until the sandbox ends", boolean: true},
			}},

		{id: "create-context", method: post, pattern: "/v1/sandboxes/{name}/contexts", tag: "code", summary: "Start an interpreter that keeps its variables",
			handle: a.createContext, in: v1.ContextRequest{}, optional: true, out: v1.Context{}, status: http.StatusCreated},
		{id: "list-contexts", method: get, pattern: "/v1/sandboxes/{name}/contexts", tag: "code", summary: "List a sandbox's contexts, oldest first",
			handle: a.contexts, out: v1.Contexts{}},
		{id: "run-code", method: post, pattern: "/v1/sandboxes/{name}/code", tag: "code", summary: "Run code in a context",
			handle: a.runCode, in: v1.CodeRequest{}, out: v1.CodeAnswer{},
			events: []string{v1.EventCodeStarted, v1.EventStdout, v1.EventStderr, v1.EventOutput, v1.EventException, v1.EventPing}},
		{id: "interrupt-context", method: post, pattern: "/v1/sandboxes/{name}/contexts/{id}/interrupt", tag: "code", summary: "Interrupt running code, like Ctrl-C",
			handle: a.interruptContext, status: http.StatusNoContent},
		{id: "restart-context", method: post, pattern: "/v1/sandboxes/{name}/contexts/{id}/restart", tag: "code", summary: "Restart an interpreter",
			handle: a.restartContext, out: v1.Context{}},
		{id: "remove-context", method: del, pattern: "/v1/sandboxes/{name}/contexts/{id}", tag: "code", summary: "End an interpreter",
			handle: a.removeContext, status: http.StatusNoContent},

		{id: "read-file", method: get, pattern: "/v1/sandboxes/{name}/files/content", tag: "files", summary: "Download a regular file",
			notes:  "A Range header with one range works, but not together with offset and length. The header X-Entry has the file's Entry, as JSON in ASCII. If a download fails midway, the connection breaks.",
			handle: a.download, file: true, query: append(slices.Clone(file),
				parameter{name: "offset", doc: "offset of the first byte; default 0", number: true, example: 0},
				parameter{name: "length", doc: "maximum number of bytes; default: to the end", number: true, example: 1024})},
		{id: "write-file", method: put, pattern: "/v1/sandboxes/{name}/files/content", tag: "files", summary: "Upload a file",
			notes:  "Replaces an existing file in place, and creates missing directories. Headers X-Metadata-… become the file's metadata, with names in lower case.",
			handle: a.upload, octets: true, out: v1.Entry{}, query: append(slices.Clone(file),
				parameter{name: "mode", doc: "permission bits in octal digits; default 0644 for a new file, unchanged for an existing one", pattern: "^[0-7]{1,3}$|^0[0-7]{3}$", example: "0644"})},
		{id: "list-files", method: get, pattern: "/v1/sandboxes/{name}/files", tag: "files", summary: "List a directory",
			handle: a.listFiles, out: v1.Entries{}, query: append(slices.Clone(file),
				parameter{name: "depth", doc: "number of levels; default 1", number: true, max: 1<<31 - 1, example: 1})},
		{id: "stat-file", method: get, pattern: "/v1/sandboxes/{name}/files/stat", tag: "files", summary: "Get a file's properties",
			handle: a.stat, out: v1.Entry{}, query: file},
		{id: "make-directory", method: post, pattern: "/v1/sandboxes/{name}/files/mkdir", tag: "files", summary: "Create a directory and its parents",
			handle: a.makeDir, in: v1.MakeDirRequest{}, out: v1.Entry{}, status: http.StatusCreated},
		{id: "move-file", method: post, pattern: "/v1/sandboxes/{name}/files/move", tag: "files", summary: "Move a file or directory",
			handle: a.move, in: v1.MoveRequest{}, out: v1.Entry{}},
		{id: "remove-file", method: del, pattern: "/v1/sandboxes/{name}/files", tag: "files", summary: "Remove a file or directory",
			handle: a.removeFile, status: http.StatusNoContent, query: append([]parameter{{name: "path", doc: file[0].doc, required: true, nonempty: true, maxLength: maxPath, pattern: pathPattern, example: file[0].example}}, file[1:]...)},
		{id: "compose-file", method: post, pattern: "/v1/sandboxes/{name}/files/compose", tag: "files", summary: "Join files",
			handle: a.compose, in: v1.ComposeRequest{}, out: v1.Entry{}},
		{id: "watch-files", method: get, pattern: "/v1/sandboxes/{name}/files/watch", tag: "files", summary: "Watch a directory for changes",
			handle: a.watch, longLived: true, out: v1.WatchEnd{}, events: []string{v1.EventWatching, v1.EventChange, v1.EventPing},
			query: append(slices.Clone(file), parameter{name: "recursive", doc: "true to include its subdirectories", boolean: true})},

		{id: "start-process", method: post, pattern: "/v1/sandboxes/{name}/processes", tag: "processes", summary: "Start a detached process",
			handle: a.startProcess, in: v1.ProcessRequest{}, out: v1.Process{}, status: http.StatusCreated},
		{id: "list-processes", method: get, pattern: "/v1/sandboxes/{name}/processes", tag: "processes", summary: "List running and recently ended processes, oldest first",
			handle: a.listProcesses, out: v1.Processes{}},
		{id: "attach-process", method: get, pattern: "/v1/sandboxes/{name}/processes/{pid}/output", tag: "processes", summary: "Follow a process's output",
			handle: a.attach, longLived: true, out: v1.Result{}, events: []string{v1.EventStdout, v1.EventStderr, v1.EventPing},
			query: []parameter{{name: "offset", doc: "offset in the output from which to start; output that is no longer buffered is skipped; -1 starts with new output; default 0", number: true, min: -1, example: 0}}},
		{id: "process-input", method: post, pattern: "/v1/sandboxes/{name}/processes/{pid}/input", tag: "processes", summary: "Write to a process's standard input or terminal",
			handle: a.processInput, in: v1.ProcessInput{}, octets: true, status: http.StatusNoContent},
		{id: "close-process-input", method: post, pattern: "/v1/sandboxes/{name}/processes/{pid}/close_input", tag: "processes", summary: "Close a process's standard input",
			handle: a.closeInput, status: http.StatusNoContent},
		{id: "signal-process", method: post, pattern: "/v1/sandboxes/{name}/processes/{pid}/signal", tag: "processes", summary: "Send a signal to a process and its group",
			handle: a.signalProcess, in: v1.SignalRequest{}, status: http.StatusNoContent},
		{id: "resize-terminal", method: post, pattern: "/v1/sandboxes/{name}/processes/{pid}/resize", tag: "processes", summary: "Resize a process's terminal",
			handle: a.resize, in: v1.Terminal{}, status: http.StatusNoContent},

		{id: "dial-port", method: get, pattern: "/v1/sandboxes/{name}/ports/{port}", tag: "ports", summary: "Connect to a TCP port inside a sandbox",
			notes:  "Send Connection: Upgrade and Upgrade: tcp. After the response, both sides send bytes, and can close their direction separately.",
			handle: a.dialPort, longLived: true, status: http.StatusSwitchingProtocols},

		{id: "list-images", method: get, pattern: "/v1/images", tag: "images", summary: "List images",
			handle: a.images, out: v1.Images{}},
		{id: "import-image", method: post, pattern: "/v1/images/import", tag: "images", summary: "Import a root file system, an OCI layout or a docker archive",
			handle: a.importImage, archive: true, out: v1.Image{}, events: progress,
			query: []parameter{{name: "name", doc: "name of the image", required: true, pattern: namePattern, example: "tools"}}},
		{id: "build-image", method: post, pattern: "/v1/images/build", tag: "images", summary: "Build an image from Debian packages",
			handle: a.buildImage, in: v1.BuildRequest{}, out: v1.Image{}, events: progress},
		{id: "pull-image", method: post, pattern: "/v1/images/pull", tag: "images", summary: "Pull an image from a registry",
			handle: a.pullImage, in: v1.PullRequest{}, out: v1.Image{}, events: progress},
		{id: "tag-image", method: post, pattern: "/v1/images/tag", tag: "images", summary: "Give an image another name",
			handle: a.tagImage, in: v1.TagRequest{}, out: v1.Image{}},
		{id: "get-image", method: get, pattern: "/v1/images/*", tag: "images", summary: "Get an image by name or digest",
			handle: a.getImage, out: v1.Image{}},
		{id: "remove-image", method: del, pattern: "/v1/images/*", tag: "images", summary: "Remove an image that no sandbox uses",
			handle: a.removeImage, status: http.StatusNoContent},

		{id: "templates", method: get, pattern: "/v1/templates", tag: "templates", summary: "List templates",
			handle: a.templates, out: v1.Templates{}},
		{id: "put-secret", method: put, pattern: "/v1/secrets/{name}", tag: "secrets", summary: "Create or change a secret",
			handle: a.putSecret, in: v1.SecretRequest{}, out: v1.Secret{}, names: true},
		{id: "list-secrets", method: get, pattern: "/v1/secrets", tag: "secrets", summary: "List secrets, without their values",
			handle: a.secrets, out: v1.Secrets{}},
		{id: "remove-secret", method: del, pattern: "/v1/secrets/{name}", tag: "secrets", summary: "Remove a secret",
			handle: a.removeSecret, status: http.StatusNoContent},
		{id: "rotate-key", method: post, pattern: "/v1/secrets/rotate_key", tag: "secrets", summary: "Rotate the encryption key of secrets",
			handle: a.rotateKey, out: v1.Resealed{}},

		{id: "create-workspace", method: post, pattern: "/v1/workspaces", tag: "workspaces", summary: "Create an empty workspace",
			handle: a.createWorkspace, in: v1.WorkspaceRequest{}, out: v1.Workspace{}, status: http.StatusCreated},
		{id: "list-workspaces", method: get, pattern: "/v1/workspaces", tag: "workspaces", summary: "List workspaces by name",
			large: true, handle: a.workspaces, out: v1.Workspaces{}},
		{id: "remove-workspace", method: del, pattern: "/v1/workspaces/{name}", tag: "workspaces", summary: "Remove a workspace with all versions",
			handle: a.removeWorkspace, status: http.StatusNoContent},
		{id: "list-workspace-versions", method: get, pattern: "/v1/workspaces/{name}/versions", tag: "workspaces", summary: "List a workspace's versions, newest first",
			large: true, handle: a.workspaceVersions, out: v1.WorkspaceVersions{}},
		{id: "list-workspace-files", method: get, pattern: "/v1/workspaces/{name}/versions/{version}/files", tag: "workspaces", summary: "List a version's files and links by path",
			notes: "Includes captures from outside /workspace. Version 0 is the newest.",
			large: true, handle: a.workspaceFiles, out: v1.WorkspaceFiles{}, query: []parameter{{name: "path", doc: "only this absolute path and the files below it; default: all", pattern: "^(/|$)", example: "/workspace"}}},
		{id: "read-workspace-file", method: get, pattern: "/v1/workspaces/{name}/versions/{version}/files/content", tag: "workspaces", summary: "Download a file of a version",
			notes:  "If a download fails midway, the connection breaks.",
			handle: a.readWorkspaceFile, whole: true, query: []parameter{{name: "path", doc: "path of the file, as listed", required: true, nonempty: true, example: "/workspace/a"}}},
		{id: "diff-workspace", method: get, pattern: "/v1/workspaces/{name}/diff", tag: "workspaces", summary: "Compare two versions",
			large: true, handle: a.diffWorkspace, out: v1.WorkspaceDiff{}, query: []parameter{
				{name: "from", doc: "a version; 0 is the empty workspace before the first", required: true, number: true, max: 1<<31 - 1, example: 0},
				{name: "to", doc: "the other version", required: true, number: true, max: 1<<31 - 1, example: 1},
			}},
		{id: "restore-workspace", method: post, pattern: "/v1/workspaces/{name}/restore", tag: "workspaces", summary: "Restore an old version",
			large: true, handle: a.restoreWorkspace, in: v1.RestoreRequest{}, out: v1.WorkspaceVersion{}, status: http.StatusCreated},
		{id: "commit-workspace", method: post, pattern: "/v1/sandboxes/{name}/commit", tag: "workspaces", summary: "Save a sandbox's workspace as a new version",
			notes:  "The changes since the sandbox's base version go on top of the newest version. If another sandbox changed one of these paths since, nothing is saved (409).",
			handle: a.commitWorkspace, out: v1.WorkspaceCommit{}},

		{id: "audit", method: get, pattern: "/v1/audit", tag: "audit", summary: "Read the tenant's audit log, oldest first",
			large: true, handle: a.audit, out: audit.Page{}, query: auditQuery()},

		{id: "capabilities", method: get, pattern: "/v1/capabilities", tag: "server", summary: "Get the enforcement capabilities",
			handle: a.capabilities, out: v1.Capabilities{}},
		{id: "alerts", method: get, pattern: "/v1/alerts", tag: "server", summary: "List alerts, the most severe first",
			handle: a.alerts, out: v1.Alerts{}},
		{id: "pool", method: get, pattern: "/v1/pool", tag: "server", summary: "Get the warm pool",
			handle: a.pool, out: v1.Pool{}},
		{id: "version", method: get, pattern: "/v1/version", tag: "server", summary: "Get the server's version",
			handle: a.version, out: v1.Version{}},
		{id: "healthz", method: get, pattern: "/healthz", tag: "server", summary: "Check that the server is alive",
			handle: a.healthz, open: true, out: v1.Health{}},
		{id: "readyz", method: get, pattern: "/readyz", tag: "server", summary: "Check that the server can take work",
			handle: a.readyz, open: true, out: v1.Health{}},
		{id: "openapi", method: get, pattern: "/openapi.json", tag: "server", summary: "Get this document",
			handle: a.serveOpenAPI, open: true, out: map[string]any{}},
		{id: "metrics", method: get, pattern: "/metrics", tag: "server", summary: "Get metrics in Prometheus's format",
			handle: a.metrics, text: true},
	}...)
}
