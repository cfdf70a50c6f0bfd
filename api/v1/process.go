package v1

import (
	"math"
	"time"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// Octets is the media type of raw bytes.
const Octets = "application/octet-stream"

// ProcessRequest is the request to start a background process, with either
// command or shell.
type ProcessRequest struct {
	Command   []string          `json:"command,omitempty" doc:"the program and its arguments, without a shell" minItems:"1" maxItems:"10000" items:"^[^\\x00]*$"`
	Shell     string            `json:"shell,omitempty" doc:"a script for the image's shell" minLength:"1" pattern:"^[^\\x00]*$"`
	Env       map[string]string `json:"env,omitempty" doc:"environment variables that override the sandbox's" maxItems:"1000" keys:"^[^=\\x00]+$" items:"^[^\\x00]*$"`
	Cwd       string            `json:"cwd,omitempty" doc:"working directory; default the sandbox's default_cwd, else /workspace" maxLength:"4096" pattern:"^/[^\\x00]*$"`
	User      string            `json:"user,omitempty" doc:"user (the default), root, or the IDs of another user and its group, such as 1001:1001"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" doc:"wall time after which the whole process tree is killed; default unlimited" minimum:"0" maximum:"9223372036854"`
	Terminal  *Terminal         `json:"terminal,omitempty" doc:"terminal size; without it, the process has pipes instead of a terminal"`
	NoInput   bool              `json:"no_input,omitempty" doc:"empty standard input; otherwise the standard input stays open"`
	Tag       string            `json:"tag,omitempty" doc:"a name that the caller chose" maxLength:"256" pattern:"^[^\\x00]*$"`
}

// Terminal is the size of a terminal, in characters.
type Terminal struct {
	Columns int `json:"columns" doc:"1 to 65535" minimum:"1" maximum:"65535"`
	Rows    int `json:"rows" doc:"1 to 65535" minimum:"1" maximum:"65535"`
}

// Process is a started process, together with the request that started it.
type Process struct {
	PID int `json:"pid" doc:"process ID inside the sandbox"`
	ProcessRequest
	Started time.Time `json:"started"`
	Written int64     `json:"written" doc:"number of output bytes so far"`
	Running bool      `json:"running"`
	Result  *Result   `json:"result,omitempty" doc:"how the process ended, without its output"`
}

// Processes is a list of processes, oldest first.
type Processes struct {
	Processes []Process `json:"processes" nullable:"false"`
}

// ProcessInput is input for a process: data or data_b64.
type ProcessInput struct {
	Data    *string `json:"data,omitempty" doc:"text"`
	DataB64 []byte  `json:"data_b64,omitzero" doc:"bytes, in base64"`
}

// SignalRequest is the request to send a signal to a process and its group.
type SignalRequest struct {
	Signal string `json:"signal" doc:"for example SIGTERM; SIGKILL also ends everything that the process started" pattern:"^SIG[A-Z0-9+-]{1,16}$" example:"SIGTERM"`
}

// FromProcessSpec converts s to its wire type.
func FromProcessSpec(s brig.ProcessSpec) ProcessRequest {
	c := s.Command
	out := ProcessRequest{
		Command: c.Argv, Shell: c.Shell, Env: c.Env, Cwd: c.Dir, User: c.User, TimeoutMS: FromDuration(c.Timeout),
		NoInput: s.NoInput, Tag: s.Tag,
	}
	if t := s.Terminal; t != nil {
		out.Terminal = &Terminal{Columns: int(t.Columns), Rows: int(t.Rows)}
	}
	return out
}

// Domain converts r to its domain type. It returns an error if a field is not
// valid.
func (r ProcessRequest) Domain() (brig.ProcessSpec, error) {
	if err := CheckDuration("timeout_ms", r.TimeoutMS); err != nil {
		return brig.ProcessSpec{}, err
	}
	if r.Terminal != nil {
		if err := r.Terminal.Check("terminal."); err != nil {
			return brig.ProcessSpec{}, err
		}
	}
	return r.domain(), nil
}

func (r ProcessRequest) domain() brig.ProcessSpec {
	out := brig.ProcessSpec{
		Command: brig.Command{Argv: r.Command, Shell: r.Shell, Env: r.Env, Dir: r.Cwd, User: r.User, Timeout: ToDuration(r.TimeoutMS)},
		NoInput: r.NoInput, Tag: r.Tag,
	}
	if r.Terminal != nil {
		size := r.Terminal.Domain()
		out.Terminal = &size
	}
	return out
}

// Check returns an error if a dimension is out of range. prefix is prepended to
// the field names in errors.
func (t Terminal) Check(prefix string) error {
	for _, side := range []struct {
		field string
		n     int
	}{{"columns", t.Columns}, {"rows", t.Rows}} {
		if side.n < 0 || side.n > math.MaxUint16 {
			return brig.InvalidField(prefix+side.field, "is out of range").WithHint("give 1 to %d", math.MaxUint16)
		}
	}
	return nil
}

// Domain converts t to its domain type.
func (t Terminal) Domain() brig.Terminal {
	return brig.Terminal{Columns: uint16(t.Columns), Rows: uint16(t.Rows)}
}

// FromProcess converts p to its wire type.
func FromProcess(p *brig.ProcessInfo) Process {
	out := Process{
		PID: p.PID, Started: p.Started, Written: p.Written, Running: p.Result == nil, ProcessRequest: FromProcessSpec(p.Spec),
	}
	if p.Result != nil {
		r := FromResult(p.Result)
		out.Result = &r
	}
	return out
}

// Domain converts p to its domain type.
func (p Process) Domain() *brig.ProcessInfo {
	out := &brig.ProcessInfo{PID: p.PID, Started: p.Started, Written: p.Written, Spec: p.ProcessRequest.domain()}
	if p.Result != nil {
		out.Result = p.Result.Domain()
	}
	return out
}

// FromProcesses converts a list to its wire type.
func FromProcesses(list []*brig.ProcessInfo) Processes {
	out := Processes{Processes: []Process{}}
	for _, p := range list {
		out.Processes = append(out.Processes, FromProcess(p))
	}
	return out
}

// FromProcessEvent converts a piece of a process's output. It sends incomplete
// characters as bytes instead of buffering them, so that offsets stay exact.
func FromProcessEvent(e brig.ProcessEvent) Chunk {
	if utf8.Valid(e.Output) {
		return Chunk{Data: string(e.Output), Offset: &e.Offset}
	}
	return Chunk{DataB64: e.Output, Offset: &e.Offset}
}
