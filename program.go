package brig

import (
	"encoding/json"
	"path"
	"strings"
	"time"
)

// Language is a programming language that Run understands.
type Language string

// The languages of Run.
const (
	Python     Language = "python"
	JavaScript Language = "javascript"
	TypeScript Language = "typescript"
	Bash       Language = "bash"
)

// Languages lists every language, in the order in which help shows them.
var Languages = []Language{Python, JavaScript, TypeScript, Bash}

// aliases are other words by which callers know a language.
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

// JupyterPrefix begins a language that is the name of a Jupyter kernel.
const JupyterPrefix = "jupyter:"

// ParseContextLanguage is ParseLanguage for contexts, which also interpret
// what an image has a Jupyter kernel for.
func ParseContextLanguage(s string) (Language, error) {
	if l, ok := aliases[s]; ok {
		return l, nil
	}
	// "jupyter:python3" names a kernel of which the language is one of ours.
	name := strings.TrimPrefix(s, JupyterPrefix)
	if len(name) == 0 || len(name) > 64 || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789+#._-") != "" || name[0] == '-' {
		return "", InvalidField("language", "%q is not a language", Clip(s, 80)).
			WithHint("use python, javascript, typescript, bash, or the name of a Jupyter kernel that the image has")
	}
	return Language(s), nil
}

// Program is a one-shot: code or a command that gets a sandbox of its own,
// which is gone when it ends, however it ends.
type Program struct {
	// Language and Code, or Command: exactly one of the two forms.
	Language Language
	Code     string
	Command  []string

	// Name is the sandbox's name. Default "py-", "js-" or "sh-" and 8 hex.
	Name  string
	Image string
	// Step has the code run as one cell of a notebook, with what the cells
	// before have left, in a sandbox of its own all the same. For Python.
	Step *Step
	// Arguments is a JSON object. When set, main(**Arguments) in Python or
	// main(Arguments) in JavaScript is called and its value is the result.
	Arguments json.RawMessage
	// Artifacts has the folder artifacts/ be there when the program starts, and
	// be taken away if nothing was put there. Otherwise the program makes it. It
	// is what RAGFlow's programs count on, and no part of the REST API.
	Artifacts bool
	Env       map[string]string
	// Files are written under /workspace before the program starts.
	Files  []File
	Limits Limits
	// Egress says where the program may connect to. Default nowhere.
	Egress Egress
	// Secrets are given to the program.
	Secrets []SecretUse
	// Workspace is what the program has at /workspace.
	Workspace WorkspaceUse
	// Require is the least that must be enforced; otherwise nothing runs.
	Require Requirement
	// Placement says where it wants to run; see Spec.
	Placement Placement
	// Timeout is wall time. Default 30 s.
	Timeout time.Duration
	// Grace is how long code whose time is over may take to end by itself: it is
	// sent SIGTERM, and killed when that is over too, which Outcome.Signal says.
	// Default none: it is killed at once. Both together are no longer than the
	// longest timeout. A provider that is given whole programs
	// ends them in its own way.
	Grace  time.Duration
	User   string
	Labels map[string]string
}

// Step is where a cell stands in a notebook whose every cell has a sandbox of
// its own.
type Step struct {
	// State is what Outcome.Step said of the cell before; nil at the beginning.
	// It is data that a sandbox has made: nobody but the next sandbox reads it,
	// and nothing that it brings is run for that.
	State json.RawMessage
	// Count is how many cells there were before.
	Count int
	// Packages are requirements of Python packages that the cell is to have, as
	// Outcome.Step said of the cell before. They are installed apart from any
	// cell, from the operator's index, and lie where no cell can change them.
	Packages []string
}

// StepOutcome is what a step leaves beside its output and its error.
type StepOutcome struct {
	// Outputs are what was displayed, and the last expression's value, in
	// order; bounded by MaxOutputs.
	Outputs []Rich
	// State is what the next step is to be given; nil if the interpreter did
	// not live to say so. It is not kept with the outcome.
	State json.RawMessage
	// Packages are those of the step, with what it has asked pip for itself.
	Packages []string
}

// Bounds of a state: its bytes, and how deep it is nested.
const (
	MaxState      = 8 * MiB
	MaxStateDepth = 32
)

// File is one file that goes in, or an artifact that comes out. Path is
// relative to /workspace on the way in and to /workspace/artifacts on the way
// out.
type File struct {
	Path string
	Data []byte
	Mode uint32 // permission bits; 0 means 0644
}

// Outcome is how a Program ended.
type Outcome struct {
	Result
	// Sandbox is the name of the sandbox that is gone; GetRun finds the
	// outcome by it again.
	Sandbox string
	// ID is that sandbox's id; empty if the program needed none.
	ID ID
	// Value is what main returned, as JSON; nil when nothing was returned in
	// that way (null is the JSON null).
	Value json.RawMessage
	// Step is what a step leaves, if the program was one.
	Step *StepOutcome `json:",omitempty"`
	// Artifacts are the files that the program left directly in artifacts/, of
	// the kinds that ArtifactTypes has.
	Artifacts []File
	// Skipped names artifacts that were too many or too large to come out.
	Skipped []string
	// Error says what went wrong, if something did.
	Error *ProgramError
	// Route says where it ran, and why there.
	Route Route `json:",omitzero"`
	// Pool says whether the sandbox was waiting or had to be made.
	Pool PoolUse
	// Workspace is what became of what the program wrote in its workspace, if
	// its mode is direct.
	Workspace *WorkspaceCommit `json:",omitempty"`
}

// ProgramError is a program's failure, told apart from its output.
type ProgramError struct {
	// Code is the SB code of a verdict (SB005 for a timeout, SB006 for
	// memory); empty when the program's own exception ended it.
	Code string `json:"code,omitempty"`
	// Name is the kind of a verdict, or the type of the exception.
	Name      string `json:"name"`
	Message   string `json:"message"`
	Traceback string `json:"traceback,omitempty"`
	Hint      string `json:"hint,omitempty"`
}

// Rules for artifacts: which files of artifacts/ come out.
const (
	MaxArtifacts    = 20       // files
	MaxArtifactSize = 10 << 20 // bytes of one file
)

// ArtifactTypes maps the extensions that come out to their media types.
var ArtifactTypes = map[string]string{
	".csv": "text/csv", ".html": "text/html", ".jpeg": "image/jpeg",
	".jpg": "image/jpeg", ".json": "application/json", ".pdf": "application/pdf",
	".png": "image/png", ".svg": "image/svg+xml",
}

// ArtifactName reports whether a file of this name may come out: of a known
// type, below artifacts/ and nowhere else.
func ArtifactName(name string) bool {
	_, known := ArtifactTypes[strings.ToLower(path.Ext(name))]
	return known && len(name) <= 1024 && name == path.Clean(name) && !path.IsAbs(name) && !strings.HasPrefix(name, "..") &&
		!strings.ContainsAny(name, "\x00\\")
}
