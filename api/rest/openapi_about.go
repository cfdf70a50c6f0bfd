package rest

import (
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// about is the part of an operation's documentation that is not in the route
// table: a description and an example request body.
type about struct{ doc, example string }

// operationDocs maps operation ids to their documentation. Every operation has an
// entry.
var operationDocs = map[string]about{
	"run":               {"Creates a sandbox, runs a program in it, returns its output and value, and removes the sandbox. The status is 200 even if the program fails: see exit_code and error.", `{"language":"python","code":"print(6*7)"}`},
	"list-runs":         {"Lists the finished runs whose results are kept, the last one to end first.", ""},
	"get-run":           {"Returns the result of a run by the name of its sandbox, for a limited time after its end. Use it after a lost connection.", ""},
	"create-sandbox":    {"Creates a persistent sandbox. It ends with its lease, or when a caller ends it. All fields are optional.", `{"name":"worker-1","ttl_ms":600000,"labels":{"team":"search"}}`},
	"list-sandboxes":    {"Lists the sandboxes of the caller's tenant, in pages, including ended ones until they are removed.", ""},
	"get-sandbox":       {"Returns the sandbox's settings and state and, after its end, the reason.", ""},
	"get-sandbox-usage": {"Returns the processor time, memory and network bytes of the sandbox. The call does not renew the lease and does not resume a paused sandbox. The answer is 501 if the provider measures nothing.", ""},
	"remove-sandbox":    {"Kills the sandbox, and removes its record, files and executions.", ""},
	"exec":              {"Runs a command and returns its result. Give command or shell.", `{"command":["uname","-a"]}`},
	"list-execs":        {"Lists the sandbox's commands with their results, including running ones.", ""},
	"get-exec":          {"Returns a command of the sandbox with its result so far.", ""},
	"stop-sandbox":      {"Sends SIGTERM to the programs of the sandbox and, after the grace period, SIGKILL. The record stays until it is removed.", `{"grace_ms":5000}`},
	"kill-sandbox":      {"Kills all programs of the sandbox immediately. The record stays until it is removed.", `{}`},
	"pause-sandbox":     {"Writes the memory and the files of the sandbox to the server's disk and ends its processes on the host. A sandbox that is paused already stays so.", ""},
	"resume-sandbox":    {"Continues a paused sandbox with its programs, memory and files. Every call that uses a paused sandbox does the same, and concurrent calls wait for one resume.", ""},
	"fork-sandbox":      {"Saves the sandbox while its programs stand still, and starts copies from that, with its memory, programs and files. Each copy has its own ID, name, lease, network and random numbers. The sandbox itself runs on.", `{"count":8}`},
	"extend-sandbox":    {"Sets the end of the sandbox's lease, counted from now.", `{"ttl_ms":600000}`},
	"set-egress":        {"Replaces the sandbox's egress rules, and closes connections that they deny. An empty list denies everything. An omitted bandwidth stays.", `{"rules":[{"host":"api.example.com","ports":[443]}]}`},
	"attest-sandbox":    {"Reads the limits back from the host, and runs a probe in the sandbox.", `{}`},
	"logs":              {"Returns the output of the main program and of commands, as text.", ""},
	"create-context":    {"Starts an interpreter that keeps its variables between runs of code.", `{"language":"python"}`},
	"list-contexts":     {"Lists the sandbox's interpreters with their states.", ""},
	"run-code":          {"Runs code in a context after the context's earlier code, and returns its result. The default is the sandbox's default context of the language.", `{"code":"x = 41\nx + 1"}`},
	"interrupt-context": {"Interrupts the running code. The interpreter keeps its variables.", ""},
	"restart-context":   {"Ends the interpreter, with its variables, and starts another with the same ID.", ""},
	"remove-context":    {"Ends the interpreter and removes the context.", ""},

	"read-file":      {"Returns the contents of a file.", ""},
	"write-file":     {"Writes the request's body to a file.", ""},
	"list-files":     {"Lists a directory of the sandbox, sorted by path.", ""},
	"stat-file":      {"Returns a file's type, size, mode and owner. Does not follow symbolic links.", ""},
	"make-directory": {"Creates a directory in the sandbox.", `{"path":"/workspace/data"}`},
	"move-file":      {"Moves a file or directory to another path, and replaces an existing file there.", `{"from":"/workspace/a.txt","to":"/workspace/b.txt"}`},
	"remove-file":    {"Removes a file, a link, or a directory with its contents.", ""},
	"compose-file":   {"Joins files into one, in order, and removes them. Use it to complete an upload in parts.", `{"source_paths":["/workspace/part-1","/workspace/part-2"],"destination":"/workspace/whole"}`},
	"watch-files":    {"Sends an event for each change in a directory until the client disconnects. If the directory is removed, moved or replaced, the last event has the error SB013.", ""},

	"start-process":       {"Starts a process and returns immediately. Its output is buffered, and several clients can follow it.", `{"command":["sleep","60"]}`},
	"list-processes":      {"Lists processes with their states. Ended processes stay in the list for a limited time.", ""},
	"attach-process":      {"Streams the output of the process from an offset on, until it ends.", ""},
	"process-input":       {"Writes to the process. The body is raw bytes or a JSON document with them.", `{"data":"yes\n"}`},
	"close-process-input": {"Closes the process's standard input.", ""},
	"signal-process":      {"Sends a signal to the process and its group.", `{"signal":"SIGTERM"}`},
	"resize-terminal":     {"Changes the size of a process's terminal.", `{"columns":120,"rows":40}`},
	"dial-port":           {"Turns the request's connection into a TCP connection to a port of the sandbox.", ""},

	"list-images":  {"Lists the images with their names.", ""},
	"import-image": {"Creates an image from an archive in the request's body.", ""},
	"build-image":  {"Builds an image from packages of a Debian release.", `{"name":"tools","packages":["git","jq"],"suite":"bookworm"}`},
	"pull-image":   {"Pulls an image from a registry, and stores it under the requested reference.", `{"ref":"python:3.11-slim"}`},
	"tag-image":    {"Creates an alias of a local image. Sandboxes that request the alias use the image, and their notes say so. An image that is pulled, imported or built under the same name takes precedence.", `{"image":"host","name":"python:3.11-slim"}`},
	"get-image":    {"Returns an image.", ""},
	"remove-image": {"Removes a name of an image. The image is removed with its last name.", ""},

	"templates":     {"Lists the templates in the server's configuration.", ""},
	"put-secret":    {"Creates or changes a secret. Omitted fields stay unchanged. The server never returns the value.", `{"value":"correct horse battery","hosts":["api.example.com"]}`},
	"list-secrets":  {"Lists the secrets of the caller's tenant by name.", ""},
	"remove-secret": {"Removes a secret. Sandboxes that already have it keep it until they end.", ""},
	"rotate-key":    {"Creates a new key, and encrypts the secrets of all tenants with it. For operators.", ""},

	"create-workspace":        {"Creates a workspace without a version.", `{"name":"notes"}`},
	"list-workspaces":         {"Lists the workspaces of the caller's tenant with their newest versions.", ""},
	"remove-workspace":        {"Removes a workspace. Sandboxes keep their copies.", ""},
	"list-workspace-versions": {"Lists the versions of a workspace with their sizes and creators.", ""},
	"list-workspace-files":    {"Lists the files of a version.", ""},
	"read-workspace-file":     {"Returns the contents of a file of a version.", ""},
	"diff-workspace":          {"Lists the paths that differ between two versions.", ""},
	"restore-workspace":       {"Creates a new version with the content of an old one. No version is lost.", `{"version":1}`},
	"commit-workspace":        {"Saves the sandbox's changes as a new version.", ""},

	"create-volume":         {"Creates a volume. Sandboxes mount it with the field volumes of their creation.", `{"name":"data","size":"1GiB"}`},
	"list-volumes":          {"Lists the volumes of the caller's tenant.", ""},
	"get-volume":            {"Returns a volume by its name or its ID.", ""},
	"remove-volume":         {"Removes a volume. Its name is free at once.", ""},
	"list-volume-files":     {"Lists a directory of a volume, sorted by path.", ""},
	"stat-volume-file":      {"Returns the properties of a path of a volume. Does not follow symbolic links.", ""},
	"read-volume-file":      {"Returns the contents of a file of a volume.", ""},
	"write-volume-file":     {"Writes the request's body to a file of a volume. Without force, the file must not exist.", ""},
	"make-volume-directory": {"Creates a directory in a volume.", `{"path":"/models","force":true}`},
	"set-volume-attributes": {"Changes the owner or the mode of a path of a volume. Omitted fields stay unchanged.", `{"path":"/models","uid":0}`},
	"remove-volume-file":    {"Removes a file, a link, or a directory with its contents.", ""},

	"list-events":     {"Lists changes of the state of sandboxes, as far back as the audit log has them.", ""},
	"create-webhook":  {"Creates a webhook. It receives the events from then on, each at least once and in order.", `{"name":"ci","url":"https://hooks.example/brig","secret":"correct horse battery","events":["created","ended"]}`},
	"list-webhooks":   {"Lists the webhooks of the caller's tenant. The server never returns a secret.", ""},
	"get-webhook":     {"Returns a webhook.", ""},
	"update-webhook":  {"Changes a webhook. Omitted fields stay unchanged.", `{"enabled":false}`},
	"remove-webhook":  {"Removes a webhook with its deliveries.", ""},
	"list-deliveries": {"Lists the newest 100 deliveries of a webhook, the newest first.", ""},
	"replay-webhook":  {"Delivers the events since a time again.", `{"since":"2026-11-29T00:00:00Z"}`},

	"whoami":         {"Returns the caller's name, tenant, role and scopes.", ""},
	"login":          {"Starts a sign-in with the configured identity provider.", ""},
	"callback":       {"The identity provider redirects browsers here to complete a sign-in.", ""},
	"create-session": {"Starts a browser session with the API key in the Authorization header.", ""},
	"list-sessions":  {"Lists active sessions.", ""},
	"end-session":    {"Ends a session and its running requests.", ""},
	"logout":         {"Ends the caller's session and removes the cookie.", ""},

	"create-key":     {"Creates an API key with at most the caller's rights.", `{"name":"ci","role":"member","ttl_ms":86400000}`},
	"list-keys":      {"Lists API keys without their values.", ""},
	"revoke-key":     {"Revokes a key permanently. Its grants and running requests end too.", ""},
	"create-grant":   {"Creates a token that expires and has a part of the caller's rights, for example for one sandbox.", `{"role":"member","sandboxes":["worker-1"],"ttl_ms":60000}`},
	"create-tenant":  {"Creates a tenant with its own sandboxes, secrets and keys. For operators.", `{"name":"acme","quota":{"sandboxes":20}}`},
	"list-tenants":   {"Lists all tenants with their quotas. For operators.", ""},
	"get-own-tenant": {"Returns the quota and ceilings of the caller's tenant.", ""},
	"get-tenant":     {"Returns the quota and ceilings of a tenant. For operators.", ""},
	"update-tenant":  {"Changes a tenant's quota, budget and ceilings. Omitted fields, nested ones included, keep their values. For operators.", `{"quota":{"sandboxes":50}}`},
	"remove-tenant":  {"Removes a tenant without sandboxes, with its keys and usage. For operators.", ""},
	"usage":          {"Returns executions, times, memory and bytes by tenant and day.", ""},

	"list-providers":     {"Lists providers with their configurations, and kinds without a provider. Secrets are masked. For operators.", ""},
	"configure-provider": {"Configures a provider of an available kind. For operators.", `{"terms":{"max":10}}`},
	"test-provider":      {"Runs a test program with a configuration and returns the result. Stores nothing. For operators.", `{}`},
	"activate-provider":  {"Makes a provider the active one, which is used without a routing. For operators.", ""},
	"remove-provider":    {"Removes a provider's configuration. For operators.", ""},
	"get-routing":        {"Returns the routing of a tenant, or the default routing. For operators.", ""},
	"set-routing":        {"Changes the routing of a tenant, or the default one. Omitted fields keep their values, and an empty list removes one. For operators.", `{"order":[]}`},

	"audit":        {"Returns records of the audit log with their hashes, in pages.", ""},
	"capabilities": {"Returns the active provider's level of enforcement for each area.", ""},
	"alerts":       {"Lists alerts that are pending, firing, or were resolved within the last hour. For operators.", ""},
	"pool":         {"Returns the number of pooled sandboxes by class. For operators.", ""},
	"version":      {"Returns the version of the server.", ""},
	"healthz":      {"Responds while the process works. Needs no key.", ""},
	"readyz":       {"Returns 503 while the server cannot create sandboxes. Needs no key.", ""},
	"openapi":      {"Returns this OpenAPI document. Needs no key.", ""},
	"metrics":      {"Returns metrics of all tenants. For operators.", ""},
}

// tags describes the groups of operations.
func tags() []*huma.Tag {
	return slices.Clone([]*huma.Tag{
		{Name: "run", Description: "Programs in their own sandbox"},
		{Name: "sandboxes", Description: "Persistent sandboxes, and commands in them"},
		{Name: "code", Description: "Interpreters that keep their variables"},
		{Name: "files", Description: "Files in sandboxes"},
		{Name: "processes", Description: "Processes in sandboxes"},
		{Name: "ports", Description: "Connections into sandboxes"},
		{Name: "images", Description: "Root file systems of sandboxes"},
		{Name: "templates", Description: "Named settings for sandboxes"},
		{Name: "secrets", Description: "Values that sandboxes use and clients cannot read"},
		{Name: "workspaces", Description: "Directories that outlive sandboxes"},
		{Name: "volumes", Description: "Directories that several sandboxes mount at the same time"},
		{Name: "webhooks", Description: "Lifecycle events of sandboxes, and their receivers"},
		{Name: "sessions", Description: "Browser sessions and sign-in"},
		{Name: "keys", Description: "API keys and tokens"},
		{Name: "tenants", Description: "Tenants, their quotas and their usage"},
		{Name: "providers", Description: "Where sandboxes are made"},
		{Name: "audit", Description: "The audit log"},
		{Name: "server", Description: "The server itself"},
	})
}
