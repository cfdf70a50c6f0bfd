package brig

import (
	"encoding/json"
	"path"
	"strings"
	"time"
)

// Language is a programming language that Run supports.
type Language string

// The languages of Run.
const (
	Python     Language = "python"
	JavaScript Language = "javascript"
	TypeScript Language = "typescript"
	Bash       Language = "bash"
)

// Languages lists every language, in the order of the help text.
var Languages = []Language{Python, JavaScript, TypeScript, Bash}

// aliases maps the accepted names to languages.
var aliases = map[string]Language{
	"python": Python, "python3": Python, "py": Python,
	"javascript": JavaScript, "js": JavaScript, "node": JavaScript, "nodejs": JavaScript,
	"typescript": TypeScript, "ts": TypeScript,
	"bash": Bash, "sh": Bash, "shell": Bash,
}

// ParseLanguage finds a language by its name or a usual alias.
func ParseLanguage(s string) (Language, error) {
	if l, ok := aliases[s]; ok {
		return l, nil
	}
	return "", InvalidField("language", "unknown language %q", Clip(s, 80)).
		WithHint("use one of: python, javascript, typescript, bash")
}

// JupyterPrefix is the prefix of a language that is the name of a Jupyter
// kernel.
const JupyterPrefix = "jupyter:"

// ParseContextLanguage is like ParseLanguage, for contexts, which also support the
// Jupyter kernels of an image.
func ParseContextLanguage(s string) (Language, error) {
	if l, ok := aliases[s]; ok {
		return l, nil
	}
	// "jupyter:python3" selects a kernel whose language is one of Languages.
	name := strings.TrimPrefix(s, JupyterPrefix)
	if len(name) == 0 || len(name) > 64 || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789+#._-") != "" || name[0] == '-' {
		return "", InvalidField("language", "%q is not a language", Clip(s, 80)).
			WithHint("use python, javascript, typescript, bash, or the name of a Jupyter kernel that the image has")
	}
	return Language(s), nil
}

// Program is the program of a run: code or a command in its own ephemeral
// sandbox. Run removes the sandbox when the program has ended, for any reason.
type Program struct {
	// Either Language and Code are set, or Command.
	Language Language
	Code     string
	Command  []string

	// SandboxName is the sandbox's name. Default: "py-", "js-" or "sh-" and 8 hex
	// digits.
	SandboxName string
	Image       string
	// Step runs the code as one cell of a notebook, with the state of earlier
	// cells, but in an ephemeral sandbox. It requires Python.
	Step *Step
	// Arguments is a JSON object. If it is set, main(**Arguments) in Python or
	// main(Arguments) in JavaScript is called, and its value is the result.
	Arguments json.RawMessage
	// Artifacts creates the directory artifacts/ before the program starts, and
	// removes it afterwards if it is empty. Otherwise the program creates the
	// directory. RAGFlow's programs rely on this; it is not part of the REST
	// API.
	Artifacts bool
	Env       map[string]string
	// Files are written under /workspace before the program starts.
	Files  []File
	Limits Limits
	// Egress are the program's egress rules. Default: all connections blocked.
	Egress Egress
	// Secrets are the secrets that the program receives.
	Secrets []SecretUse
	// Workspace is the workspace mounted at /workspace.
	Workspace WorkspaceUse
	// Volumes are the volumes to mount. The sandbox of a program with volumes is never a pooled one.
	Volumes []VolumeMount
	// Require is the minimum enforcement. If the provider cannot meet it, the
	// program does not run.
	Require Requirement
	// Placement selects the provider; see Spec.
	Placement Placement
	// Timeout is the wall time after which the program is ended. Default: 30 s.
	Timeout time.Duration
	// Grace is the time that the program has to end after its timeout. Brig
	// sends SIGTERM at the timeout, and SIGKILL after Grace; Outcome.Signal
	// reports the signal. Default: 0, which kills the program immediately. The sum
	// of Timeout and Grace must not exceed the maximum timeout. Grace does not
	// apply to a provider that runs whole programs.
	Grace  time.Duration
	User   string
	Labels map[string]string
}

// Step is the position of a cell in a notebook in which every cell has its own
// sandbox.
type Step struct {
	// State is Outcome.Step.State of the previous cell; nil for the first. These
	// bytes are untrusted, because a sandbox produced them. Only the next sandbox
	// parses them, and it executes no part of them.
	State json.RawMessage
	// Count is the number of cells before this one.
	Count int
	// Packages are the requirement specifiers of the cell's Python packages, from
	// Outcome.Step of the previous cell. They are installed from the operator's
	// index, outside of any cell, in a directory that no cell can change.
	Packages []string
}

// StepOutcome is the result of a step in addition to its output and its error.
type StepOutcome struct {
	// Outputs are displayed values and the value of the last expression, in
	// order, bounded by MaxOutputs.
	Outputs []Rich
	// State is the input for the next step; nil if the interpreter died. It is
	// not stored with the outcome.
	State json.RawMessage
	// Packages are the packages of the step and those that its code installed
	// with pip.
	Packages []string
}

// Limits on Step.State: its size in bytes and its nesting depth.
const (
	MaxState      = 8 * MiB
	MaxStateDepth = 32
)

// File is one input file or one artifact. Path is relative to /workspace for
// input files and to /workspace/artifacts for artifacts.
type File struct {
	Path string
	Data []byte
	Mode uint32 // permission bits; 0 means 0644
}

// Outcome is the result of a Program.
type Outcome struct {
	Result
	// Sandbox is the name of the removed sandbox. GetRun finds the outcome by it.
	Sandbox string
	// ID is the ID of that sandbox; empty if the program needed no sandbox.
	ID ID
	// Value is the return value of main as JSON; nil if main returned no value
	// (null is the JSON null).
	Value json.RawMessage
	// Step is the result of the step, if the program was a step.
	Step *StepOutcome `json:",omitempty"`
	// Artifacts are the files directly in artifacts/ whose extensions are in
	// ArtifactTypes.
	Artifacts []File
	// Skipped are the names of artifacts that exceeded the limits of number or
	// size.
	Skipped []string
	// Error is the program's error, if any.
	Error *ProgramError
	// Image is the image in which the program ran, if the request named an alias.
	Image string `json:",omitempty"`
	// Route is the provider that ran the program, with the reason.
	Route Route `json:",omitzero"`
	// Pool is the origin of the sandbox.
	Pool PoolUse
	// Workspace is the commit of the program's changes in its workspace, if the
	// mode is direct.
	Workspace *WorkspaceCommit `json:",omitempty"`
}

// ProgramError is the failure of a program, separate from its output.
type ProgramError struct {
	// Code is the SB code of a verdict (SB005 for a timeout, SB006 for memory);
	// empty if the program's own exception ended it.
	Code string `json:"code,omitempty"`
	// Name is the kind of a verdict, or the type of the exception.
	Name      string `json:"name"`
	Message   string `json:"message"`
	Traceback string `json:"traceback,omitempty"`
	Hint      string `json:"hint,omitempty"`
}

// Limits on the artifacts that a program returns.
const (
	MaxArtifacts    = 20       // number of files
	MaxArtifactSize = 10 << 20 // bytes per file
)

// ArtifactTypes maps the extensions of artifacts to their media types.
var ArtifactTypes = map[string]string{
	".csv": "text/csv", ".html": "text/html", ".jpeg": "image/jpeg",
	".jpg": "image/jpeg", ".json": "application/json", ".pdf": "application/pdf",
	".png": "image/png", ".svg": "image/svg+xml",
}

// IsArtifactName reports whether name is a valid path of an artifact below artifacts/
// with a known extension.
func IsArtifactName(name string) bool {
	_, known := ArtifactTypes[strings.ToLower(path.Ext(name))]
	return known && len(name) <= 1024 && name == path.Clean(name) && !path.IsAbs(name) && name != ".." && !strings.HasPrefix(name, "../") &&
		!strings.ContainsAny(name, "\x00\\")
}

// Limits on an environment.
const (
	maxEnv      = 1000    // number of variables
	maxEnvBytes = 1 << 20 // total bytes of names and values
)

// CheckEnv returns an error, which names the field, for an invalid or too large
// environment.
func CheckEnv(field string, env map[string]string) error {
	if len(env) > maxEnv {
		return InvalidField(field, "%d variables are too many", len(env)).WithHint("give at most %d", maxEnv)
	}
	size := 0
	for k, v := range env {
		size += len(k) + len(v)
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return InvalidField(field, "%q cannot be a variable", Clip(k, 80)).
				WithHint("names are not empty and have no =; neither names nor values have NUL")
		}
	}
	if size > maxEnvBytes {
		return InvalidField(field, "%d bytes are too many", size).WithHint("give at most 1MiB; put larger things into files")
	}
	return nil
}
