package v1

import (
	"encoding/json"
	"time"

	"github.com/brig-run/brig"
)

// Events of running code, in addition to stdout and stderr. EventCodeStarted is
// the first event and is sent when the code begins to run.
const (
	EventCodeStarted = "code_started" // CodeStarted
	EventOutput      = "output"       // Rich
	EventException   = "exception"    // Exception
)

// ContextRequest is the request to create an interpreter that keeps its
// variables.
type ContextRequest struct {
	Language string            `json:"language,omitempty" doc:"python (the default), javascript, typescript, bash, or a Jupyter kernel of the image" pattern:"^(?:jupyter:)?[A-Za-z0-9+#._][A-Za-z0-9+#._-]{0,55}$"`
	Cwd      string            `json:"cwd,omitempty" doc:"working directory; default /workspace" maxLength:"4096" pattern:"^/[^\\x00]*$"`
	Env      map[string]string `json:"env,omitempty" doc:"environment variables in addition to the sandbox's" maxItems:"1000" keys:"^[^=\\x00]+$" items:"^[^\\x00]*$"`
}

// Context is an interpreter in a sandbox that keeps its variables.
type Context struct {
	ID       string            `json:"id"`
	Sandbox  string            `json:"sandbox" doc:"ID of the sandbox"`
	Language string            `json:"language"`
	Cwd      string            `json:"cwd"`
	Env      map[string]string `json:"env,omitempty"`
	State    string            `json:"state" doc:"idle, busy, or dead: the interpreter ended, and the next run starts another"`
	Flavor   string            `json:"flavor" doc:"the interpreter: cpython, node, bash or jupyter"`
	Version  string            `json:"version" doc:"version of the interpreter"`
	Count    int               `json:"execution_count" doc:"number of runs since the interpreter started"`
	Created  time.Time         `json:"created"`
}

// Contexts is a list of contexts, oldest first.
type Contexts struct {
	Contexts []Context `json:"contexts" nullable:"false"`
}

// CodeRequest is the request to run code in a context.
type CodeRequest struct {
	Code      string            `json:"code" doc:"source code" minLength:"1"`
	Context   string            `json:"context_id,omitempty" doc:"the context's ID; default: the sandbox's default context of the language" minLength:"1" maxLength:"128"`
	Language  string            `json:"language,omitempty" doc:"python (the default), javascript, typescript, bash, or a Jupyter kernel of the image; not together with context_id" pattern:"^(?:jupyter:)?[A-Za-z0-9+#._][A-Za-z0-9+#._-]{0,55}$"`
	Env       map[string]string `json:"env,omitempty" doc:"environment variables for this run only" maxItems:"1000" keys:"^[^=\\x00]+$" items:"^[^\\x00]*$"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" doc:"wall time from the start of the code, after which it is interrupted" minimum:"0" maximum:"9223372036854"`
	Uncounted bool              `json:"uncounted,omitempty" doc:"whether to leave the execution count of a Python context as it is"`
	Stream    bool              `json:"stream,omitempty" doc:"answer with events while the code runs" hidden:"true"`
}

// CodeStarted reports that code is running.
type CodeStarted struct {
	Context string `json:"context_id"`
	Count   int    `json:"execution_count"`
}

// Rich is one value in several representations.
type Rich struct {
	Data map[string]json.RawMessage `json:"data" doc:"the value by MIME type: a string, base64 for images and PDF, JSON for JSON types"`
	Main bool                       `json:"main" doc:"whether it is the value of the last expression"`

	Metadata  map[string]json.RawMessage `json:"metadata,omitempty" doc:"describes the representations, for example the size of an image"`
	DisplayID string                     `json:"display_id,omitempty" doc:"the ID of a display that the code may update"`
	Update    bool                       `json:"update,omitempty" doc:"whether it replaces the values with the same display_id. Results have the last update already; there it is true if an earlier run displayed the value"`
}

// Exception is the exception that ended code.
type Exception struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// CodeAnswer is the result of running code.
type CodeAnswer struct {
	Context string `json:"context_id"`
	Count   int    `json:"execution_count"`
	Text    string `json:"text" doc:"value of the last expression as text"`
	Outputs
	Results     []Rich     `json:"results" nullable:"false" doc:"displayed values and the value of the last expression, in order"`
	Error       *Exception `json:"error" doc:"the exception that ended the code, if any"`
	TimedOut    bool       `json:"timed_out"`
	Interrupted bool       `json:"interrupted" doc:"the caller disconnected or interrupted it"`
	Lost        bool       `json:"lost" doc:"the interpreter ended, and its variables are lost"`
	OOMKilled   bool       `json:"oom_killed" doc:"the sandbox exceeded its memory limit and ended"`
	// SandboxEnded is absent if the sandbox outlived the code.
	SandboxEnded string    `json:"sandbox_ended,omitempty" doc:"why the sandbox ended while the code ran: the reason of its exit"`
	Started      time.Time `json:"started"`
	DurationMS   float64   `json:"duration_ms"`
	QueuedMS     float64   `json:"queued_ms" doc:"time in the queue"`
}

// Shelf is the state of the warm pool for one class of sandboxes.
type Shelf struct {
	Provider string  `json:"provider,omitempty" doc:"provider of the pooled sandboxes"`
	Image    string  `json:"image" doc:"digest"`
	Language string  `json:"language" doc:"language of the ready interpreter; empty for none"`
	Limits   *Limits `json:"limits"`
	Target   int     `json:"target" doc:"target number of ready sandboxes"`
	Ready    int     `json:"ready"`
	Making   int     `json:"making"`
	Hits     int64   `json:"hits"`
	Misses   int64   `json:"misses"`
	Failed   int64   `json:"failed"`
	RefillMS float64 `json:"refill_ms" doc:"median time to create a pooled sandbox"`
}

// Pool is the state of the warm pool.
type Pool struct {
	Shelves []Shelf `json:"shelves" nullable:"false"`
}

// FromContext converts c to its wire type.
func FromContext(c *brig.CodeContext) Context {
	return Context{
		ID: c.ID, Sandbox: string(c.Sandbox), Language: string(c.Spec.Language), Cwd: c.Spec.Dir, Env: c.Spec.Env,
		State: string(c.State), Flavor: c.Flavor, Version: c.Version, Count: c.Count, Created: c.Created,
	}
}

// Domain converts c to its domain type.
func (c Context) Domain() *brig.CodeContext {
	return &brig.CodeContext{
		ID: c.ID, Sandbox: brig.ID(c.Sandbox),
		Spec:  brig.ContextSpec{Language: brig.Language(c.Language), Dir: c.Cwd, Env: c.Env},
		State: brig.ContextState(c.State), Flavor: c.Flavor, Version: c.Version, Count: c.Count, Created: c.Created,
	}
}

// FromContexts converts a list to its wire type.
func FromContexts(list []*brig.CodeContext) Contexts {
	out := Contexts{Contexts: []Context{}}
	for _, c := range list {
		out.Contexts = append(out.Contexts, FromContext(c))
	}
	return out
}

// Domain converts r to its domain type. It returns an error if a field is not
// valid.
func (r CodeRequest) Domain() (brig.Code, error) {
	language, err := ToContextLanguage(r.Language)
	if err != nil {
		return brig.Code{}, err
	}
	return brig.Code{Context: r.Context, Language: language, Source: r.Code, Uncounted: r.Uncounted, Env: r.Env, Timeout: ToDuration(r.TimeoutMS)},
		CheckDuration("timeout_ms", r.TimeoutMS)
}

// ToContextLanguage parses the language of a context. An empty string selects
// the default language.
func ToContextLanguage(s string) (brig.Language, error) {
	if s == "" {
		return "", nil
	}
	return brig.ParseContextLanguage(s)
}

// FromCodeResult converts r to its wire type.
func FromCodeResult(r *brig.CodeResult) CodeAnswer {
	out := CodeAnswer{
		Context: r.Context, Count: r.Count, Outputs: FromOutputs(r.Stdout, r.Stderr), Results: FromRich(r.Outputs),
		TimedOut: r.TimedOut, Interrupted: r.Interrupted, Lost: r.Lost,
		OOMKilled: r.OOMKilled, SandboxEnded: string(r.SandboxEnded),
		Started: r.Started, DurationMS: Millis(r.Duration), QueuedMS: Millis(r.Queued),
	}
	for _, o := range r.Outputs {
		if o.Main {
			// The guest may send text/plain data that is not a JSON string.
			// Text then stays empty.
			_ = json.Unmarshal(o.Data["text/plain"], &out.Text)
		}
	}
	if r.Error != nil {
		e := Exception(*r.Error)
		out.Error = &e
	}
	return out
}

// Domain converts a to its domain type.
func (a CodeAnswer) Domain() *brig.CodeResult {
	r := &brig.CodeResult{
		Context: a.Context, Count: a.Count, Outputs: toRich(a.Results),
		TimedOut: a.TimedOut, Interrupted: a.Interrupted, Lost: a.Lost,
		OOMKilled: a.OOMKilled, SandboxEnded: brig.ExitReason(a.SandboxEnded),
		Started: a.Started, Duration: FromMillis(a.DurationMS), Queued: FromMillis(a.QueuedMS),
	}
	r.Stdout, r.Stderr = a.Outputs.Domain()
	if a.Error != nil {
		e := brig.CodeError(*a.Error)
		r.Error = &e
	}
	return r
}

// FromRichValue converts a value to its wire type.
func FromRichValue(v brig.Rich) Rich {
	return Rich{Data: v.Data, Main: v.Main, Metadata: v.Metadata, DisplayID: v.DisplayID, Update: v.Update}
}

// Domain converts r to its domain type.
func (r Rich) Domain() brig.Rich {
	return brig.Rich{Data: r.Data, Main: r.Main, Metadata: r.Metadata, DisplayID: r.DisplayID, Update: r.Update}
}

// FromRich converts values to their wire type.
func FromRich(values []brig.Rich) []Rich {
	out := make([]Rich, 0, len(values))
	for _, v := range values {
		out = append(out, FromRichValue(v))
	}
	return out
}

func toRich(values []Rich) (out []brig.Rich) {
	for _, v := range values {
		out = append(out, v.Domain())
	}
	return out
}

// FromPool converts shelves to their wire type.
func FromPool(shelves []brig.PoolClass) Pool {
	out := Pool{Shelves: []Shelf{}}
	for _, s := range shelves {
		out.Shelves = append(out.Shelves, Shelf{
			Provider: s.Provider, Image: s.Image, Language: string(s.Language), Limits: FromLimits(s.Limits),
			Target: s.Target, Ready: s.Ready, Making: s.Making, Hits: s.Hits, Misses: s.Misses, Failed: s.Failed,
			RefillMS: Millis(s.Refill),
		})
	}
	return out
}

// Domain converts p to its domain type.
func (p Pool) Domain() (out []brig.PoolClass) {
	for _, s := range p.Shelves {
		out = append(out, brig.PoolClass{
			Provider: s.Provider, Image: s.Image, Language: brig.Language(s.Language), Limits: s.Limits.Domain(),
			Target: s.Target, Ready: s.Ready, Making: s.Making, Hits: s.Hits, Misses: s.Misses, Failed: s.Failed,
			Refill: FromMillis(s.RefillMS),
		})
	}
	return out
}
