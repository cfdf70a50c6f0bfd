package brig

// Remedy explains an error kind to a user. docs/reference/errors.md is generated
// from it.
type Remedy struct {
	Meaning string   // what went wrong, in a sentence
	Causes  []string // the usual causes
	Fixes   []string // what to do, the most likely fix first
}

// remedies explains every kind. A test checks that it is complete.
var remedies = map[Kind]Remedy{
	NotInitialized: {
		"Brig is not set up.",
		[]string{"there is no data folder or no API key yet", "no provider is active (`providers.active: none`)"},
		[]string{"start `brig serve` once", "set `--data-dir` or `BRIG_DATA_DIR`", "`brig provider activate gvisor`"},
	},
	InvalidConfig: {
		"The configuration file or the settings of a provider are invalid.",
		[]string{"an unknown key", "a value of the wrong type or out of bounds"},
		[]string{"correct the field, and in a file the line, that the message names", "`brig provider describe ID` lists the settings of a provider"},
	},
	ConnectionFailed: {
		"A server, a registry or a provider's service cannot be reached.",
		[]string{"the server does not run or listens on another address", "a network or DNS problem", "no program listens on the port of the sandbox"},
		[]string{"check `--url` and `BRIG_URL`", "`brig provider test ID`", "start the program that should listen"},
	},
	CreationFailed: {
		"A sandbox could not be created.",
		[]string{"the machine lacks something that gVisor needs", "the template's `start` or `ready` command failed"},
		[]string{"`brig doctor`", "the message has the last output of a template's command"},
	},
	Timeout: {
		"The execution did not end before its timeout.",
		[]string{"an endless loop or slow code", "the timeout is too short"},
		[]string{"raise `--timeout` (REST: `timeout_ms`), up to `timeout.max` of the configuration"},
	},
	OutOfMemory: {
		"The sandbox used more memory than its limit. Brig ended the whole sandbox.",
		[]string{"the program needs more memory", "files in `/tmp`, which is memory"},
		[]string{"raise `--memory` (REST: `limits.memory`), up to `limits.max.memory` of the configuration"},
	},
	PolicyBlocked: {
		"A policy rejected the request.",
		[]string{"screening found a forbidden name in the code", "the tenant may not use the image", "an egress rule needs an operator"},
		[]string{"the message names what is forbidden", "an operator can change the policy or the tenant's ceilings"},
	},
	RateLimited: {
		"A quota or a rate limit is reached, or the server is at its capacity.",
		[]string{"too many calls, executions or sandboxes", "the day's processor time is used up", "the field `capacity`: too many callers wait for a sandbox"},
		[]string{"retry after `Retry-After` seconds", "`brig usage` shows what is used", "an operator can raise the quota"},
	},
	Unavailable: {
		"No provider can take the request now.",
		[]string{"the provider is down or full", "the machine has no free memory or disk space", "the provider was lost while the program ran"},
		[]string{"retry after `Retry-After` seconds", "`brig provider ls`, `brig pool`", "configure a second provider"},
	},
	InvalidArgument: {
		"The request is invalid.",
		[]string{"a wrong, missing or unknown field or flag"},
		[]string{"correct the field that the message names"},
	},
	Unauthenticated: {
		"The request has no valid API key.",
		[]string{"no key", "a key that is unknown, revoked or expired", "the key of another server"},
		[]string{"set `--key` or `BRIG_API_KEY`", "`brig whoami` shows whether a key is valid"},
	},
	PermissionDenied: {
		"The key may not do this.",
		[]string{"the key's role is too low", "its scopes do not include the operation"},
		[]string{"use a key with the role or scope that the message names"},
	},
	NotFound: {
		"The object does not exist.",
		[]string{"a wrong name", "it belongs to another tenant", "the sandbox ended more than `keep.sandboxes` ago"},
		[]string{"list what exists, for example with `brig sandbox ls`"},
	},
	AlreadyExists: {
		"The name is taken.",
		[]string{"another object has this name"},
		[]string{"choose another name, or remove the other object"},
	},
	FailedPrecondition: {
		"The request is valid, but not in the current state.",
		[]string{"the sandbox has ended", "the provider cannot enforce what `require` demands", "the object is in use", "a program used descriptors of its interpreter (`ProtocolViolation`)"},
		[]string{"the message names what is missing", "`brig capabilities` shows what is enforced"},
	},
	Unimplemented: {
		"The provider or this build of Brig does not support the request.",
		[]string{"a feature that the active provider lacks"},
		[]string{"choose another provider: `brig provider ls`"},
	},
	Canceled: {
		"The caller disconnected or canceled the request.",
		[]string{"the client closed the connection", "a client or proxy with a short timeout"},
		[]string{"send the request again", "raise the timeout of the client or proxy"},
	},
	Internal: {
		"A bug in Brig.",
		[]string{"see the server's log"},
		[]string{"find the cause in the log by the request's ID, and report it"},
	},
}

// Remedy returns the explanation of k. It is empty for an unknown kind.
func (k Kind) Remedy() Remedy { return remedies[k] }
