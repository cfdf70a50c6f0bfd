package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// RunRequest asks for a one-shot program: language and code, or a command.
type RunRequest struct {
	Language  string            `json:"language,omitempty" doc:"python, javascript, typescript or bash"`
	Code      string            `json:"code,omitempty" doc:"source code in that language"`
	Command   []string          `json:"command,omitempty" doc:"instead of code: a program and its arguments, never parsed by a shell"`
	Image     string            `json:"image,omitempty" doc:"an image's name or digest; default host"`
	Step      *Step             `json:"step,omitempty" doc:"has Python code run as one cell of a notebook whose every cell has a sandbox of its own"`
	Arguments Object            `json:"arguments,omitempty" doc:"passed to the code's main, whose value is the result"`
	Env       map[string]string `json:"env,omitempty"`
	Files     Files             `json:"files,omitempty" doc:"written below /workspace before the program starts"`
	Limits    *Limits           `json:"limits,omitempty"`
	Egress    *Egress           `json:"egress,omitempty" doc:"where the program may connect to; default nowhere"`
	Secrets   []SecretUse       `json:"secrets,omitempty" doc:"secrets that the program is given as variables"`
	Workspace *WorkspaceUse     `json:"workspace,omitempty" doc:"a workspace to have at /workspace"`
	Require   map[string]string `json:"require,omitempty" doc:"the least that must be enforced, by area, for example {\"memory\": \"boundary\"}; otherwise nothing runs"`
	Placement *Placement        `json:"placement,omitempty" doc:"where it wants to run; default where the tenant's routing has it"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" doc:"wall time after which the whole process tree is killed"`
	GraceMS   int64             `json:"grace_ms,omitempty" doc:"how long after timeout_ms code may take to end, which is sent SIGTERM first; both together are no longer than the longest timeout; default none"`
	User      string            `json:"user,omitempty" doc:"user (the default) or root"`
	Name      string            `json:"name,omitempty" doc:"name of the sandbox; one is picked otherwise"`
	Labels    map[string]string `json:"labels,omitempty"`
	Stdin     *string           `json:"stdin,omitempty" doc:"text for standard input"`
	StdinB64  []byte            `json:"stdin_b64,omitzero" doc:"bytes for standard input, in base64"`
	Stream    bool              `json:"stream,omitempty" doc:"answer with events while the program runs"`
	Streams   []string          `json:"streams,omitzero" doc:"which of stdout and stderr to stream; default both. The result has them all the same"`
}

// Object is a JSON object that is passed on as it is.
type Object json.RawMessage

// Shape says what an Object may be on the wire, for strict decoding.
func (Object) Shape(byte) any { return map[string]json.RawMessage{} }

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object) UnmarshalJSON(b []byte) error {
	if string(b) != "null" {
		*o = slices.Clone(b)
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (o Object) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// File is one file that goes in: content or content_b64.
type File struct {
	Path       string  `json:"path" doc:"relative to /workspace"`
	Content    *string `json:"content,omitempty"`
	ContentB64 []byte  `json:"content_b64,omitzero"`
	Mode       Mode    `json:"mode,omitempty" doc:"permission bits; default 0644"`
}

// Files are files that go in: a list of File, or an object of paths and
// contents.
type Files []File

// Shape says what Files may be on the wire, for strict decoding.
func (Files) Shape(first byte) any {
	if first == '{' {
		return map[string]string{}
	}
	return []File{}
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Files) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte("[")) || string(b) == "null" {
		return json.Unmarshal(b, (*[]File)(f))
	}
	var contents map[string]string
	if err := json.Unmarshal(b, &contents); err != nil {
		return err
	}
	*f = (*f)[:0]
	for path, content := range contents {
		*f = append(*f, File{Path: path, Content: &content})
	}
	slices.SortFunc(*f, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// RunAnswer is how a program ended.
type RunAnswer struct {
	Sandbox          string           `json:"sandbox" doc:"name of the sandbox, which is gone; GET /v1/runs/{name} finds this answer again"`
	ID               string           `json:"id,omitempty" doc:"id of that sandbox"`
	Value            json.RawMessage  `json:"result" doc:"the value of main, or null"`
	HasResult        bool             `json:"has_result" doc:"tells a main that returned null from none at all"`
	Step             *StepAnswer      `json:"step,omitempty" doc:"what a step leaves for the next"`
	Artifacts        []Artifact       `json:"artifacts" nullable:"false" doc:"the files that the program left directly in artifacts/ and that end in csv, html, jpeg, jpg, json, pdf, png or svg"`
	ArtifactsSkipped []string         `json:"artifacts_skipped,omitempty" doc:"artifacts that were too many or too large to come out"`
	Error            *ProgramError    `json:"error" doc:"what went wrong with the program, if something did"`
	Route            *Route           `json:"route,omitempty" doc:"where it ran, and why there"`
	Pool             string           `json:"pool,omitempty" doc:"hit when a sandbox was waiting, miss when one had to be made"`
	Workspace        *WorkspaceCommit `json:"workspace,omitempty" doc:"what became of what was written in a workspace whose mode is direct"`
	Result
}

// Step is where a cell stands in a notebook.
type Step struct {
	State Object `json:"state,omitempty" doc:"what the answer of the step before had in step.state; left out at the beginning"`
	Count int    `json:"count,omitempty" doc:"how many steps there were before"`
	// Packages are requirements of pip.
	Packages []string `json:"packages,omitempty" doc:"what the answer of the step before had in step.packages: Python packages to have"`
}

// StepAnswer is what a step leaves.
type StepAnswer struct {
	Outputs []Rich `json:"outputs" nullable:"false" doc:"what was displayed, and the value of the last expression"`
	State   Object `json:"state,omitempty" doc:"for the next step; missing if the interpreter did not live to the end"`
	// Packages are requirements of pip.
	Packages []string `json:"packages,omitempty" doc:"for the next step: the Python packages that were asked for with %pip or !pip"`
}

// Artifact is a file that comes out.
type Artifact struct {
	Path       string `json:"path" doc:"relative to /workspace/artifacts"`
	MIMEType   string `json:"mime_type"`
	Size       int64  `json:"size"`
	ContentB64 []byte `json:"content_b64"`
	Mode       Mode   `json:"mode,omitempty"`
}

// ProgramError is a program's failure, told apart from its output.
type ProgramError struct {
	Code      string `json:"code,omitempty" doc:"the code of a verdict (SB005 for a timeout); empty for the program's own exception"`
	Name      string `json:"name" doc:"the kind of a verdict or the type of the exception"`
	Message   string `json:"message"`
	Traceback string `json:"traceback,omitempty"`
	Hint      string `json:"hint,omitempty"`
}
