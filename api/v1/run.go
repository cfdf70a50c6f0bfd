package v1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"path"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// RunRequest is the request to run a one-shot program: language and code, or a
// command.
type RunRequest struct {
	Language  string            `json:"language,omitempty" doc:"python, javascript, typescript or bash" enum:"python,python3,py,javascript,js,node,nodejs,typescript,ts,bash,sh,shell" example:"python"`
	Code      string            `json:"code,omitempty" doc:"source code in language" minLength:"1" example:"print(6*7)"`
	Command   []string          `json:"command,omitempty" doc:"instead of code: a program and its arguments, without a shell" minItems:"1" maxItems:"10000" items:"^[^\\x00]*$"`
	Image     string            `json:"image,omitempty" doc:"name or digest of an image; default host" minLength:"1" maxLength:"512"`
	Step      *Step             `json:"step,omitempty" doc:"run the Python code as one cell of a notebook in which each cell has its own sandbox"`
	Arguments Object            `json:"arguments,omitempty" doc:"arguments of the code's function main, whose return value is the result"`
	Env       map[string]string `json:"env,omitempty" maxItems:"1000" keys:"^[^=\\x00]+$" items:"^[^\\x00]*$"`
	Files     Files             `json:"files,omitempty" doc:"files to write below /workspace before the program starts"`
	Limits    *Limits           `json:"limits,omitempty"`
	Egress    *Egress           `json:"egress,omitempty" doc:"egress rules; default: no network access"`
	Secrets   []SecretUse       `json:"secrets,omitempty" doc:"secrets for the program" maxItems:"50"`
	Workspace *WorkspaceUse     `json:"workspace,omitempty" doc:"workspace at /workspace"`
	Volumes   []VolumeMount     `json:"volumes,omitempty" doc:"volumes to mount" maxItems:"16"`
	Require   map[string]string `json:"require,omitempty" doc:"minimum enforcement by area, for example {\"memory\": \"boundary\"}; otherwise the run is rejected" keys:"^(?:isolation|memory|cpus|processes|open_files|disk|output|time|egress|secrets|workspace)$" items:"^(?:none|gaps|boundary)$"`
	Placement *Placement        `json:"placement,omitempty" doc:"selects the provider; default: the tenant's routing"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" doc:"wall time after which the whole process tree is killed" minimum:"0" maximum:"9223372036854"`
	GraceMS   int64             `json:"grace_ms,omitempty" doc:"time after SIGTERM at the timeout until SIGKILL; together with timeout_ms at most the maximum timeout; default 0" minimum:"0" maximum:"600000"`
	User      string            `json:"user,omitempty" doc:"user (the default), root, or the IDs of another user and its group, such as 1001:1001"`
	Name      string            `json:"name,omitempty" doc:"name of the sandbox; default: a generated name" pattern:"^[a-z0-9][a-z0-9-]{0,62}$"`
	Labels    map[string]string `json:"labels,omitempty" maxItems:"64" keys:"^[^\\x00\\n]{1,128}$" items:"^[^\\x00\\n]*$"`
	Stdin     *string           `json:"stdin,omitempty" doc:"text for standard input"`
	StdinB64  []byte            `json:"stdin_b64,omitzero" doc:"bytes for standard input, in base64"`
	Stream    bool              `json:"stream,omitempty" doc:"answer with events while the program runs" hidden:"true"`
	Streams   []string          `json:"streams,omitzero" doc:"which of stdout and stderr to stream; default both. The result has them all the same" enum:"stdout,stderr" hidden:"true"`
}

// Object is a JSON object that is passed on unchanged.
type Object json.RawMessage

// Shape returns the JSON type of an Object for strict decoding.
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

// File is an input file with content or content_b64.
type File struct {
	Path       string  `json:"path" doc:"relative to /workspace" minLength:"1" maxLength:"1024" pattern:"^[^/\\x00](?:[^\\x00]*[^/\\x00])?$" example:"data/in.csv"`
	Content    *string `json:"content,omitempty"`
	ContentB64 []byte  `json:"content_b64,omitzero"`
	Mode       Mode    `json:"mode,omitempty" doc:"permission bits; default 0644"`
}

// Files are input files: a list of File, or an object that maps paths to
// contents.
type Files []File

// Shape returns the JSON type of Files for strict decoding.
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

// RunAnswer is the result of a program.
type RunAnswer struct {
	Sandbox          string           `json:"sandbox" doc:"name of the removed sandbox; GET /v1/runs/{name} returns this result again"`
	ID               string           `json:"id,omitempty" doc:"ID of the sandbox"`
	Value            json.RawMessage  `json:"result" doc:"return value of main, or null"`
	HasResult        bool             `json:"has_result" doc:"whether main returned a value; distinguishes null from no value"`
	Step             *StepAnswer      `json:"step,omitempty" doc:"state for the next step"`
	Artifacts        []Artifact       `json:"artifacts" nullable:"false" doc:"files that the program wrote directly in artifacts/, with the extension csv, html, jpeg, jpg, json, pdf, png or svg"`
	ArtifactsSkipped []string         `json:"artifacts_skipped,omitempty" doc:"artifacts that were skipped because they were too many or too large"`
	Error            *ProgramError    `json:"error" doc:"the program's error, if any"`
	Image            string           `json:"image,omitempty" doc:"the image that was used, if the caller named an alias"`
	Route            *Route           `json:"route,omitempty" doc:"the provider that ran it, and why"`
	Pool             string           `json:"pool,omitempty" doc:"hit if a pooled sandbox was ready, otherwise miss"`
	Workspace        *WorkspaceCommit `json:"workspace,omitempty" doc:"result of saving a workspace of the mode direct"`
	Result
}

// Step is the position of a cell in a notebook, and the state that the previous
// cell left.
type Step struct {
	State Object `json:"state,omitempty" doc:"step.state of the previous result; omitted for the first step"`
	Count int    `json:"count,omitempty" doc:"number of earlier steps" minimum:"0"`
	// Packages are pip requirements.
	Packages []string `json:"packages,omitempty" doc:"step.packages of the previous result: Python packages to install"`
}

// StepAnswer contains the outputs of a step, and the state for the next step.
type StepAnswer struct {
	Outputs []Rich `json:"outputs" nullable:"false" doc:"displayed values, and the value of the last expression"`
	State   Object `json:"state,omitempty" doc:"for the next step; missing if the interpreter ended early"`
	// Packages are pip requirements.
	Packages []string `json:"packages,omitempty" doc:"for the next step: Python packages that were installed with %pip or !pip"`
}

// Artifact is an output file.
type Artifact struct {
	Path       string `json:"path" doc:"relative to /workspace/artifacts"`
	MIMEType   string `json:"mime_type"`
	Size       int64  `json:"size"`
	ContentB64 []byte `json:"content_b64"`
	Mode       Mode   `json:"mode,omitempty"`
}

// ProgramError is a program's failure, which is reported separately from its
// output.
type ProgramError struct {
	Code      string `json:"code,omitempty" doc:"code of a verdict (SB005 for a timeout); empty for an exception of the program"`
	Name      string `json:"name" doc:"kind of the verdict, or type of the exception"`
	Message   string `json:"message"`
	Traceback string `json:"traceback,omitempty"`
	Hint      string `json:"hint,omitempty"`
}

// FromProgram converts p to its wire type.
func FromProgram(p brig.Program) RunRequest {
	out := RunRequest{
		Language: string(p.Language), Code: p.Code, Command: p.Command, Image: p.Image, Arguments: Object(p.Arguments),
		Env: p.Env, Limits: FromLimits(p.Limits), TimeoutMS: FromDuration(p.Timeout), GraceMS: FromDuration(p.Grace),
		User: p.User, Name: p.SandboxName, Labels: p.Labels,
		Egress: FromEgress(p.Egress), Secrets: FromSecrets(p.Secrets),
		Workspace: FromWorkspaceUse(p.Workspace), Volumes: FromVolumeMounts(p.Volumes), Require: FromRequirement(p.Require), Placement: FromPlacement(p.Placement),
	}
	if p.Step != nil {
		out.Step = &Step{State: Object(p.Step.State), Count: p.Step.Count, Packages: p.Step.Packages}
	}
	for _, f := range p.Files {
		out.Files = append(out.Files, File{Path: f.Path, ContentB64: notNil(f.Data), Mode: Mode(f.Mode)})
	}
	return out
}

// Domain converts r to its domain type. It returns an error if a field is not
// valid.
func (r RunRequest) Domain() (brig.Program, error) {
	p := brig.Program{
		Language: brig.Language(r.Language), Code: r.Code, Command: r.Command, SandboxName: r.Name, Image: r.Image,
		Arguments: json.RawMessage(r.Arguments), Env: r.Env, Limits: r.Limits.Domain(), User: r.User, Labels: r.Labels,
		Egress: r.Egress.Domain(), Secrets: ToSecrets(r.Secrets),
		Workspace: r.Workspace.Domain(), Volumes: ToVolumeMounts(r.Volumes), Require: ToRequirement(r.Require), Placement: ToPlacement(r.Placement),
		Timeout: ToDuration(r.TimeoutMS), Grace: ToDuration(r.GraceMS),
	}
	if r.Step != nil {
		p.Step = &brig.Step{State: json.RawMessage(r.Step.State), Count: r.Step.Count, Packages: r.Step.Packages}
	}
	var err error
	if r.Language != "" {
		if p.Language, err = brig.ParseLanguage(r.Language); err != nil {
			return p, err
		}
	}
	if err = CheckDuration("timeout_ms", r.TimeoutMS); err != nil {
		return p, err
	}
	if err = CheckDuration("grace_ms", r.GraceMS); err != nil {
		return p, err
	}
	p.Files, err = r.Files.domain()
	return p, err
}

func (f Files) domain() (out []brig.File, err error) {
	for i, f := range f {
		file := brig.File{Path: f.Path, Data: f.ContentB64, Mode: uint32(f.Mode)}
		switch {
		case f.Content != nil && f.ContentB64 != nil:
			return nil, brig.InvalidField(fmt.Sprintf("files[%d].content_b64", i), "is given beside content").WithHint("give one of the two")
		case f.Content != nil:
			file.Data = []byte(*f.Content)
		case f.ContentB64 == nil:
			return nil, brig.InvalidField(fmt.Sprintf("files[%d].content", i), "is missing").WithHint("give content or content_b64")
		}
		out = append(out, file)
	}
	return out, nil
}

// FromOutcome converts o to its wire type.
func FromOutcome(o *brig.Outcome) RunAnswer {
	out := RunAnswer{
		ID:      string(o.ID),
		Sandbox: o.Sandbox, Value: o.Value, HasResult: o.Value != nil,
		Artifacts: []Artifact{}, ArtifactsSkipped: o.Skipped, Route: FromRoute(o.Route), Image: o.Image, Pool: string(o.Pool), Result: FromResult(&o.Result),
		Workspace: FromWorkspaceCommit(o.Workspace), Error: fromProgramError(o.Error),
	}
	if o.Step != nil {
		out.Step = &StepAnswer{Outputs: FromRich(o.Step.Outputs), State: Object(o.Step.State), Packages: o.Step.Packages}
	}
	for _, f := range o.Artifacts {
		out.Artifacts = append(out.Artifacts, Artifact{
			Path: f.Path, MIMEType: mimeType(f.Path), Size: int64(len(f.Data)), ContentB64: notNil(f.Data), Mode: Mode(f.Mode & 0o777),
		})
	}
	return out
}

func fromProgramError(e *brig.ProgramError) *ProgramError {
	if e == nil {
		return nil
	}
	return &ProgramError{Code: e.Code, Name: e.Name, Message: e.Message, Traceback: e.Traceback, Hint: e.Hint}
}

func (e *ProgramError) domain() *brig.ProgramError {
	if e == nil {
		return nil
	}
	return &brig.ProgramError{Code: e.Code, Name: e.Name, Message: e.Message, Traceback: e.Traceback, Hint: e.Hint}
}

// Domain converts a to its domain type.
func (a RunAnswer) Domain() *brig.Outcome {
	out := &brig.Outcome{
		Result: *a.Result.Domain(), Sandbox: a.Sandbox, ID: brig.ID(a.ID), Skipped: a.ArtifactsSkipped,
		Pool: brig.PoolUse(a.Pool), Route: ToRoute(a.Route), Image: a.Image, Workspace: a.Workspace.Domain(), Error: a.Error.domain(),
	}
	if a.HasResult {
		if out.Value = a.Value; out.Value == nil {
			out.Value = json.RawMessage("null")
		}
	}
	if a.Step != nil {
		out.Step = &brig.StepOutcome{Outputs: toRich(a.Step.Outputs), State: json.RawMessage(a.Step.State), Packages: a.Step.Packages}
	}
	for _, f := range a.Artifacts {
		out.Artifacts = append(out.Artifacts, brig.File{Path: f.Path, Data: f.ContentB64, Mode: uint32(f.Mode)})
	}
	return out
}

// notNil returns b, or an empty slice that is not omitted from JSON.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func mimeType(name string) string {
	if t, ok := brig.ArtifactTypes[path.Ext(name)]; ok {
		return t
	}
	if t, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(name))); err == nil {
		return t
	}
	return "application/octet-stream"
}
