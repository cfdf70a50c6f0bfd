package brig

import (
	"encoding/json"
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
	return "", InvalidField("language", "unknown language %q", s).
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
		return "", InvalidField("language", "%q is not a language", s).
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
	// Arguments is a JSON object. When set, main(**Arguments) in Python or
	// main(Arguments) in JavaScript is called and its value is the result.
	Arguments json.RawMessage
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
	// Timeout is wall time. Default 30 s.
	Timeout time.Duration
	User    string
	Labels  map[string]string
}

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
	// Value is what main returned, as JSON; nil when nothing was returned in
	// that way (null is the JSON null).
	Value json.RawMessage
	// Artifacts are the files that the program left in artifacts/.
	Artifacts []File
	// Skipped names artifacts that were too many or too large to come out.
	Skipped []string
	// Error says what went wrong, if something did.
	Error *ProgramError
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
